#include "checkpoint/torch/pickle.h"

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace fettle {
namespace {

constexpr size_t kMostValues = size_t{1} << 21, kMostRank = 16, kMostArguments = 8, kLongestName = 4096;

enum Opcode : uint8_t {
  kMarkOp = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneOp = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalOp = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTupleOp = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

const std::map<std::string_view, DType> kStorages{
    {"torch.FloatStorage", DType::kF32},  {"torch.HalfStorage", DType::kF16}, {"torch.BFloat16Storage", DType::kBF16},
    {"torch.DoubleStorage", DType::kF64}, {"torch.LongStorage", DType::kI64}, {"torch.IntStorage", DType::kI32},
    {"torch.ShortStorage", DType::kI16},  {"torch.CharStorage", DType::kI8},  {"torch.ByteStorage", DType::kU8},
    {"torch.BoolStorage", DType::kPred}};
const std::set<std::string_view> kFunctions{"collections.OrderedDict", "torch.Size", "torch._utils._rebuild_tensor_v2",
                                            "torch._utils._rebuild_parameter"};

enum class Kind : uint8_t {
  kMark,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,
  kGlobal,
  kStorage,
  kTensor
};

// Values refer to each other by number, so that shared, cyclic and deeply nested values need no special treatment.
using Id = uint32_t;
constexpr Id kMark = 0, kNone = 1, kFalse = 2, kTrue = 3;

struct Value {
  Kind kind;
  int64_t number = 0;     // an int or bool; or the index of a storage or tensor
  std::string_view text;  // a text; or "module.name" of a global
  std::vector<Id> items;  // a tuple or list; for a dict: key, value, key, value, ...
};

struct Storage {
  std::string_view key;
  DType dtype;
  int64_t elements;
};

class Machine {
 public:
  Machine(std::span<const std::byte> pickle, const std::string& path) : pickle_(pickle), path_(path) {
    for (Kind kind : {Kind::kMark, Kind::kNone, Kind::kBool, Kind::kBool}) values_.push_back({kind, 0, {}, {}});
    values_[kTrue].number = 1;
  }

  std::vector<PickledTensor> run() {
    while (true) {
      start_ = at_;
      const auto op = static_cast<uint8_t>(take(1)[0]);
      if (op == kStop) break;
      step(op);
    }
    const Value& result = values_[pop()];
    if (result.kind != Kind::kDict) refuse("it contains a {}, not a dict of tensors", name_of(result.kind));
    return tensors_of(result);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: {} (byte {} of its pickle); expected the tensors of a state dict, as torch.save writes them",
                    path_, fmt::format(format, std::forward<Args>(args)...), start_);
  }

  static const char* name_of(Kind kind) {
    static constexpr const char* kNames[] = {"mark",  "None", "bool", "int",    "float",   "text",
                                             "tuple", "list", "dict", "global", "storage", "tensor"};
    return kNames[static_cast<size_t>(kind)];
  }

  // The next functions read the bytes of the pickle.
  std::string_view take(uint64_t count) {
    if (count > pickle_.size() - at_) refuse("it ends too early");
    at_ += count;
    return {reinterpret_cast<const char*>(pickle_.data()) + at_ - count, static_cast<size_t>(count)};
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));  // pickles are little-endian, like this machine
    return value;
  }
  std::string_view line() {
    const size_t start = at_;
    while (take(1)[0] != '\n')
      if (at_ - start > kLongestName) refuse("a name in it is too long");
    return {reinterpret_cast<const char*>(pickle_.data()) + start, at_ - start - 1};
  }

  // The next functions work with the stack of values and with the memo, in which a pickle stores values for later use.
  void push(Id id) { stack_.push_back(id); }
  void make(Value value) {
    if (values_.size() >= kMostValues) refuse("it has more than {} values", kMostValues);
    values_.push_back(std::move(value));
    push(static_cast<Id>(values_.size() - 1));
  }
  Id pop() {
    if (stack_.empty() || stack_.back() == kMark) refuse("it takes a value from an empty stack");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop(size_t count) {
    std::vector<Id> out(count);
    for (size_t i = count; i-- > 0;) out[i] = pop();
    return out;
  }
  std::vector<Id> pop_to_mark() {
    size_t first = stack_.size();
    while (first > 0 && stack_[first - 1] != kMark) --first;
    if (first == 0) refuse("an instruction takes the values after a mark that does not exist");
    std::vector<Id> out(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first - 1);
    return out;
  }
  Value& top(Kind kind) {
    if (stack_.empty() || values_[stack_.back()].kind != kind) refuse("it lacks a {} that is needed", name_of(kind));
    return values_[stack_.back()];
  }
  const Value& value(Id id, Kind kind) const {
    if (values_[id].kind != kind) refuse("it has a {}, but a {} is needed", name_of(values_[id].kind), name_of(kind));
    return values_[id];
  }

  void remember(uint64_t index) {
    if (stack_.empty() || stack_.back() == kMark) refuse("it stores a value from an empty stack");
    if (memo_.size() >= kMostValues) refuse("it stores more than {} values", kMostValues);
    memo_[index] = stack_.back();
  }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("it loads value {}, which it has not stored", index);
    push(found->second);
  }

  void add_items(const std::vector<Id>& items) {
    if (items.size() % 2 != 0) refuse("a key in it has no value");
    Value& dict = top(Kind::kDict);
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }
  void append(const std::vector<Id>& items) {
    Value& list = top(Kind::kList);
    list.items.insert(list.items.end(), items.begin(), items.end());
  }

  void global(std::string_view module, std::string_view name) {
    const std::string& full = names_.emplace_back(fmt::format("{}.{}", module, name));
    if (!kStorages.contains(full) && !kFunctions.contains(full))
      throw UserError(
          "{}: its pickle uses '{}', which tensors do not need, and Fettle executes nothing from a file. If you trust "
          "the file, load it with PyTorch and save its tensors as safetensors",
          path_, printable(full));
    make({Kind::kGlobal, 0, full, {}});
  }
  static std::string printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 200)) out += c >= 0x20 && c < 0x7f ? c : '?';
    return out;
  }

  void persistent() {
    const std::vector<Id>& id = value(pop(), Kind::kTuple).items;
    if (id.size() != 5 || value(id[0], Kind::kText).text != "storage")
      refuse("it refers to an object that is not a storage");
    const auto type = kStorages.find(value(id[1], Kind::kGlobal).text);
    if (type == kStorages.end()) refuse("a storage's type is '{}'", values_[id[1]].text);
    const int64_t elements = value(id[4], Kind::kInt).number;
    if (elements < 0 || elements > INT64_MAX / 8) refuse("a storage has {} elements", elements);
    if (value(id[2], Kind::kText).text.size() > kLongestName) refuse("a name in it is too long");
    storages_.push_back({values_[id[2]].text, type->second, elements});
    make({Kind::kStorage, static_cast<int64_t>(storages_.size() - 1), {}, {}});
  }

  void call() {
    const Id arguments = pop();
    if (value(arguments, Kind::kTuple).items.size() > kMostArguments)
      refuse("it calls a function with too many values");
    const std::vector<Id> args = values_[arguments].items;  // a copy, because values_ moves when it grows
    const std::string_view function = value(pop(), Kind::kGlobal).text;
    if (function == "collections.OrderedDict") {
      if (!args.empty()) refuse("an OrderedDict has {} arguments", args.size());
      make({Kind::kDict, 0, {}, {}});
    } else if (function == "torch.Size") {
      if (args.size() != 1) refuse("a torch.Size has {} arguments", args.size());
      value(args[0], Kind::kTuple);
      push(args[0]);
    } else if (function == "torch._utils._rebuild_parameter") {
      if (args.size() != 3) refuse("a parameter has {} arguments", args.size());
      value(args[0], Kind::kTensor);
      push(args[0]);
    } else if (function == "torch._utils._rebuild_tensor_v2") {
      rebuild_tensor(args);
    } else {
      refuse("it calls '{}'", function);
    }
  }

  Dims dims_of(Id id) const {
    const std::vector<Id>& items = value(id, Kind::kTuple).items;
    if (items.size() > kMostRank) refuse("a tensor has {} dimensions", items.size());
    Dims out;
    for (const Id item : items) out.push_back(value(item, Kind::kInt).number);
    return out;
  }

  // The arguments are (storage, offset, size, stride, requires_grad, hooks[, metadata]).
  void rebuild_tensor(const std::vector<Id>& args) {
    if (args.size() != 6 && args.size() != 7) refuse("a tensor has {} arguments", args.size());
    const Storage& storage = storages_[static_cast<size_t>(value(args[0], Kind::kStorage).number)];
    PickledTensor tensor;
    tensor.storage = storage.key;
    tensor.storage_elements = storage.elements;
    tensor.offset = value(args[1], Kind::kInt).number;
    tensor.shape = {storage.dtype, dims_of(args[2])};
    tensor.strides = dims_of(args[3]);
    for (size_t i = 5; i < args.size(); ++i)
      if (args[i] != kNone && !value(args[i], Kind::kDict).items.empty())
        refuse("a tensor has hooks or is a conjugate or negative view");
    if (tensor.strides.size() != tensor.shape.dims.size())
      refuse("a tensor has different numbers of strides and dimensions");
    check_view(tensor);
    tensors_.push_back(std::move(tensor));
    make({Kind::kTensor, static_cast<int64_t>(tensors_.size() - 1), {}, {}});
  }

  // Checks that all elements of the view are in the storage. No product overflows.
  void check_view(const PickledTensor& t) const {
    const auto outside = [&] {
      refuse("a tensor of {} with strides {} from element {} does not fit into its storage of {} elements",
             fettle::to_string(t.shape.dims), fettle::to_string(t.strides), t.offset, t.storage_elements);
    };
    if (t.offset < 0 || t.offset > t.storage_elements) outside();
    bool empty = false;
    int64_t elements = 1;
    for (const int64_t size : t.shape.dims) {
      if (size < 0) outside();
      empty |= size == 0;
      if (size > 0 && __builtin_mul_overflow(elements, size, &elements)) outside();
    }
    if (empty) return;
    if (elements > t.storage_elements) outside();  // the view repeats elements, which saved weights never do
    int64_t last = t.offset;
    for (size_t d = 0; d < t.strides.size(); ++d) {
      int64_t reach = 0;
      if (t.strides[d] < 0 || __builtin_mul_overflow(t.shape.dims[d] - 1, t.strides[d], &reach) ||
          __builtin_add_overflow(last, reach, &last))
        outside();
    }
    if (last >= t.storage_elements) outside();
  }

  std::vector<PickledTensor> tensors_of(const Value& dict) {
    std::vector<PickledTensor> out;
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      const Value &key = value(dict.items[i], Kind::kText), &held = values_[dict.items[i + 1]];
      if (!names.insert(key.text).second) refuse("it contains '{}' twice", printable(key.text));
      if (held.kind != Kind::kTensor) refuse("'{}' is a {}, not a tensor", printable(key.text), name_of(held.kind));
      out.push_back(tensors_[static_cast<size_t>(held.number)]);
      out.back().name = key.text;
    }
    return out;
  }

  void step(uint8_t op);

  std::span<const std::byte> pickle_;
  const std::string& path_;
  size_t at_ = 0, start_ = 0;
  std::vector<Value> values_;
  std::vector<Id> stack_;
  std::unordered_map<uint64_t, Id> memo_;
  std::deque<std::string> names_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
};

void Machine::step(uint8_t op) {
  auto whole = [&](int64_t number) { make({Kind::kInt, number, {}, {}}); };
  auto text = [&](std::string_view characters) { make({Kind::kText, 0, characters, {}}); };
  auto tuple = [&](std::vector<Id> items) { make({Kind::kTuple, 0, {}, std::move(items)}); };
  switch (op) {
    case kProto: {
      const int version = number<uint8_t>();
      if (version < 2 || version > 5) refuse("its protocol is {}", version);
      return;
    }
    case kFrame: take(8); return;
    case kMarkOp: return push(kMark);
    case kPop:
      if (stack_.empty()) refuse("it takes a value from an empty stack");
      return stack_.pop_back();
    case kPopMark: pop_to_mark(); return;
    case kDup: {
      const Id id = pop();
      push(id);
      return push(id);
    }
    case kNoneOp: return push(kNone);
    case kNewTrue: return push(kTrue);
    case kNewFalse: return push(kFalse);
    case kBinInt: return whole(number<int32_t>());
    case kBinInt1: return whole(number<uint8_t>());
    case kBinInt2: return whole(number<uint16_t>());
    case kLong1: {
      const auto bytes = static_cast<size_t>(number<uint8_t>());
      if (bytes > 8) refuse("a number in it has {} bytes", bytes);
      const std::string_view digits = take(bytes);
      int64_t value = bytes > 0 && (digits[bytes - 1] & 0x80) != 0 ? -1 : 0;
      std::memcpy(&value, digits.data(), bytes);
      return whole(value);
    }
    case kBinFloat: take(8); return make({Kind::kFloat, 0, {}, {}});
    case kShortBinString:
    case kShortBinUnicode: return text(take(number<uint8_t>()));
    case kBinString:
    case kBinUnicode: return text(take(number<uint32_t>()));
    case kBinUnicode8: return text(take(number<uint64_t>()));
    case kEmptyTuple: return tuple({});
    case kTuple1: return tuple(pop(1));
    case kTuple2: return tuple(pop(2));
    case kTuple3: return tuple(pop(3));
    case kTupleOp: return tuple(pop_to_mark());
    case kEmptyList: return make({Kind::kList, 0, {}, {}});
    case kEmptyDict: return make({Kind::kDict, 0, {}, {}});
    case kAppend: return append(pop(1));
    case kAppends: return append(pop_to_mark());
    case kSetItem: return add_items(pop(2));
    case kSetItems: return add_items(pop_to_mark());
    case kBinPut: return remember(number<uint8_t>());
    case kLongBinPut: return remember(number<uint32_t>());
    case kMemoize: return remember(memo_.size());
    case kBinGet: return recall(number<uint8_t>());
    case kLongBinGet: return recall(number<uint32_t>());
    case kGlobalOp: {
      const std::string_view module = line();
      return global(module, line());
    }
    case kStackGlobal: {
      const Id name = pop(), module = pop();
      return global(value(module, Kind::kText).text, value(name, Kind::kText).text);
    }
    case kBinPersId: return persistent();
    case kReduce: return call();
    case kBuild:  // sets attributes of a dict, such as the _metadata of a state dict
      value(pop(), Kind::kDict);
      top(Kind::kDict);
      return;
    default: refuse("its instruction 0x{:02x} is not needed for checkpoints", op);
  }
}

}  // namespace

std::vector<PickledTensor> read_torch_pickle(std::span<const std::byte> pickle, const std::string& path) {
  return Machine(pickle, path).run();
}

}  // namespace fettle
