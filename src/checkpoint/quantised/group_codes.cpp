#include "checkpoint/quantised/group_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/arrays/host_array.h"
#include "base/error.h"

namespace fettle {
namespace {

using Packing = GroupStorage::Packing;

constexpr int64_t kWordBits = 32;
// kPlaceOf[j] is the place of output 8 * i + j within word i of AWQ's gemm layout. From the low bits on, a word has the
// outputs j = 0, 2, 4, 6, 1, 3, 5, 7.
constexpr std::array<int64_t, 8> kPlaceOf{0, 4, 1, 5, 2, 6, 3, 7};

// Returns how many words `count` codes need.
int64_t words_of(int64_t count, int64_t bits) {
  return (count * bits + kWordBits - 1) / kWordBits;
}

// Returns word number `at` of unaligned little-endian words.
uint32_t word(std::span<const std::byte> bytes, int64_t at) {
  uint32_t out = 0;
  std::memcpy(&out, bytes.data() + at * 4, sizeof(out));
  return out;
}

// Returns code number `at` of the codes in the words whose numbers begin at `first` and rise by `step`. Codes of 3 bits
// may begin in one of these words and end in the next one.
uint8_t unpack(std::span<const std::byte> bytes, int64_t first, int64_t step, int64_t at, int64_t bits) {
  const int64_t place = at * bits / kWordBits, low = at * bits % kWordBits;
  uint64_t two = word(bytes, first + place * step);
  if (low + bits > kWordBits) two |= static_cast<uint64_t>(word(bytes, first + (place + 1) * step)) << kWordBits;
  return static_cast<uint8_t>(two >> low & ((uint64_t{1} << bits) - 1));
}

uint8_t code_at(const GroupParts& parts, std::span<const std::byte> bytes, int64_t output, int64_t input) {
  const GroupStorage& storage = parts.storage;
  switch (storage.packing) {
    case Packing::kGptq: return unpack(bytes, output, parts.outputs, input, storage.bits);
    case Packing::kAwqGemm: return unpack(bytes, input * (parts.outputs / 8) + output / 8, 1, kPlaceOf[output % 8], 4);
    case Packing::kAwqGemv:
    case Packing::kPacked: return unpack(bytes, output * parts.codes.shape.dims[1], 1, input, storage.bits);
  }
  return 0;
}

uint8_t zero_at(const GroupParts& parts, std::span<const std::byte> bytes, int64_t output, int64_t group) {
  const GroupStorage& storage = parts.storage;
  const int64_t columns = parts.zeros.shape.dims[1];
  switch (storage.packing) {
    case Packing::kGptq: {
      const uint8_t stored = unpack(bytes, group * columns, 1, output, storage.bits);
      return static_cast<uint8_t>((stored + (storage.zero_less_one ? 1 : 0)) & ((1 << storage.bits) - 1));
    }
    case Packing::kAwqGemm: return unpack(bytes, group * columns + output / 8, 1, kPlaceOf[output % 8], 4);
    case Packing::kAwqGemv: return unpack(bytes, output * columns, 1, group, 4);
    case Packing::kPacked: return unpack(bytes, group, columns, output, storage.bits);
  }
  return 0;
}

[[noreturn]] void refuse(const StoredTensor& stored, const std::string& wanted) {
  throw UserError("{}: '{}' is {}, wanted {}; download the model again, or correct quantization_config in config.json",
                  stored.file->path().string(), stored.entry->name, stored.entry->shape.to_string(), wanted);
}

// Throws UserError unless the tensor is dense with the wanted shape.
void check_shape(const StoredTensor& stored, const Shape& wanted) {
  if (stored.entry->shape != wanted || !stored.entry->dense()) refuse(stored, wanted.to_string());
}

void check_words(const StoredTensor& stored) {
  const Shape& shape = stored.entry->shape;
  const bool filled = std::ranges::all_of(shape.dims, [](int64_t size) { return size > 0; });
  if (shape.dtype != DType::kI32 || shape.dims.size() != 2 || !filled || !stored.entry->dense())
    refuse(stored, "a matrix of packed i32");
}

}  // namespace

GroupParts find_groups(const GroupStorage& storage, const std::string& module,
                       const std::function<std::optional<StoredTensor>(const std::string& name)>& find) {
  auto get = [&](const std::string& part, const StoredTensor* codes) {
    const std::optional<StoredTensor> found = find(module + "." + part);
    if (!found && codes == nullptr)
      throw UserError("'{}.{}' is missing in the model's weights; download the model again", module, part);
    if (!found)
      throw UserError("{}: '{}.{}' is missing, although there is '{}'; download the model again",
                      codes->file->path().string(), module, part, codes->entry->name);
    return *found;
  };
  const bool packed = storage.packing == Packing::kPacked;
  const StoredTensor codes = get(std::string(storage.codes_name()), nullptr);
  check_words(codes);
  const Dims& words = codes.entry->shape.dims;
  const StoredTensor scales = get(packed ? "weight_scale" : "scales", &codes);
  GroupParts out{.storage = storage,
                 .outputs = 0,
                 .inputs = 0,
                 .codes_file = codes.file,
                 .scales_file = scales.file,
                 .codes = *codes.entry,
                 .scales = *scales.entry,
                 .zeros_file = nullptr,
                 .order_file = nullptr,
                 .zeros = {},
                 .order = {}};
  int64_t &outputs = out.outputs, &inputs = out.inputs;
  switch (storage.packing) {
    case Packing::kGptq: inputs = words[0] * kWordBits / storage.bits, outputs = words[1]; break;
    case Packing::kAwqGemm: inputs = words[0], outputs = words[1] * 8; break;
    case Packing::kAwqGemv:
    case Packing::kPacked: inputs = words[1] * kWordBits / storage.bits, outputs = words[0]; break;
  }
  const int64_t packed_dim = storage.packing == Packing::kGptq ? 0 : 1;
  if (words[packed_dim] * kWordBits % storage.bits != 0)
    refuse(codes, fmt::format("a packed dim of a multiple of {} words, because codes have {} bits", storage.bits,
                              storage.bits));
  if (packed) {  // the last word of a row may have fewer codes
    const StoredTensor shape = get("weight_shape", &codes);
    if (shape.entry->shape.dims != Dims{2} || !shape.entry->dense() ||
        (shape.entry->shape.dtype != DType::kI64 && shape.entry->shape.dtype != DType::kI32))
      refuse(shape, "two integers");
    const HostArray sizes = shape.file->read(*shape.entry);
    auto size = [&](size_t i) -> int64_t {
      return shape.entry->shape.dtype == DType::kI64 ? sizes.as<int64_t>()[i] : sizes.as<int32_t>()[i];
    };
    if (size(0) != outputs || size(1) > inputs || size(1) < 1 || words_of(size(1), storage.bits) != words[1])
      refuse(codes, fmt::format("the packed codes of a weight [{}, {}]", size(0), size(1)));
    inputs = size(1);
  }
  const int64_t groups = storage.groups(inputs);
  const DType dtype = scales.entry->shape.dtype;
  if (dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32) refuse(scales, "floats");
  const bool outputs_first = packed || storage.packing == Packing::kAwqGemv;
  if (storage.packing == Packing::kAwqGemv) {  // the groups are padded to whole words
    const Dims& dims = scales.entry->shape.dims;
    if (dims.size() != 2 || dims[0] != outputs || dims[1] < groups || !scales.entry->dense())
      refuse(scales, fmt::format("floats [{}, at least {}]", outputs, groups));
  } else {
    check_shape(scales, {dtype, outputs_first ? Dims{outputs, groups} : Dims{groups, outputs}});
  }
  const std::string zeros_name = packed ? "weight_zero_point" : "qzeros";
  if (std::optional<StoredTensor> zeros = find(module + "." + zeros_name)) {
    check_words(*zeros);
    const Dims& dims = zeros->entry->shape.dims;
    if (storage.packing == Packing::kAwqGemv) {
      if (dims[0] != outputs || dims[1] < words_of(groups, 4))
        refuse(*zeros, fmt::format("i32 [{}, at least {}]", outputs, words_of(groups, 4)));
    } else {
      const int64_t of_outputs = words_of(outputs, storage.bits);
      check_shape(*zeros, {DType::kI32, packed ? Dims{of_outputs, groups} : Dims{groups, of_outputs}});
    }
    out.zeros_file = zeros->file, out.zeros = *zeros->entry;
  } else if (!packed) {
    get(zeros_name, &codes);
  }
  if (std::optional<StoredTensor> order = find(module + (packed ? ".weight_g_idx" : ".g_idx"))) {
    check_shape(*order, {DType::kI32, {inputs}});
    out.order_file = order->file, out.order = *order->entry;
  } else if (storage.any_order) {
    get(packed ? "weight_g_idx" : "g_idx", &codes);
  }
  return out;
}

std::vector<int32_t> groups_of_inputs(const GroupParts& parts) {
  std::vector<int32_t> out(static_cast<size_t>(parts.inputs));
  const int64_t groups = parts.storage.groups(parts.inputs);
  if (parts.order_file != nullptr) {
    const HostArray stored = parts.order_file->read(parts.order);
    std::ranges::copy(stored.as<int32_t>(), out.begin());
  }
  // compressed-tensors fills an order that was not set with -1.
  const bool unset = parts.storage.packing == Packing::kPacked && std::ranges::find(out, -1) != out.end();
  if (parts.order_file == nullptr || unset) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = parts.storage.group == 0 ? 0 : static_cast<int32_t>(static_cast<int64_t>(i) / parts.storage.group);
    return out;
  }
  for (int32_t group : out)
    if (group < 0 || group >= groups)
      throw UserError("{}: '{}' has the group {}, wanted 0 to {}; download the model again",
                      parts.order_file->path().string(), parts.order.name, group, groups - 1);
  return out;
}

void read_group_codes(const GroupParts& parts, int64_t element, std::span<uint8_t> out) {
  parts.codes_file->with_bytes(parts.codes, [&](std::span<const std::byte> bytes) {
    int64_t output = element / parts.inputs, input = element % parts.inputs;
    for (uint8_t& code : out) {
      code = code_at(parts, bytes, output, input);
      if (++input == parts.inputs) ++output, input = 0;
    }
  });
}

GroupRows::GroupRows(const GroupParts& parts, int64_t first, int64_t last)
    : parts_(parts), first_(first), groups_(parts.storage.groups(parts.inputs)), group_of_(groups_of_inputs(parts)) {
  const int64_t rows = last - first;
  internal_check(first >= 0 && rows >= 0 && last <= parts.outputs, "GroupRows: wanted outputs [{}, {}) of {}", first,
                 last, parts.outputs);
  const auto count = static_cast<size_t>(rows * groups_);
  zeros_.assign(count, static_cast<uint8_t>(1 << (parts.storage.bits - 1)));
  if (parts.zeros_file != nullptr)
    parts.zeros_file->with_bytes(parts.zeros, [&](std::span<const std::byte> bytes) {
      for (int64_t group = 0; group < groups_; ++group)
        for (int64_t row = 0; row < rows; ++row)
          zeros_[static_cast<size_t>(row * groups_ + group)] = zero_at(parts, bytes, first + row, group);
    });
  const bool outputs_first = parts.storage.packing == Packing::kAwqGemv || parts.storage.packing == Packing::kPacked;
  const Box box = outputs_first ? Box{{first, 0}, {rows, groups_}} : Box{{0, first}, {groups_, rows}};
  HostArray stored({parts.scales.shape.dtype, box.size});
  parts.scales_file->read_slice(parts.scales, box, stored.data());
  const HostArray rounded = stored.to(parts.storage.dtype).to(DType::kF32);
  const std::span<const float> values = rounded.as<float>();
  scales_.resize(count);
  for (int64_t group = 0; group < groups_; ++group)
    for (int64_t row = 0; row < rows; ++row)
      scales_[static_cast<size_t>(row * groups_ + group)] =
          values[static_cast<size_t>(outputs_first ? row * groups_ + group : group * rows + row)];
}

void GroupRows::values(int64_t element, std::span<float> out) const {
  std::vector<uint8_t> found(out.size());
  read_group_codes(parts_, element, found);
  int64_t output = element / parts_.inputs, input = element % parts_.inputs;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto group = static_cast<size_t>((output - first_) * groups_ + group_of_[static_cast<size_t>(input)]);
    out[i] = static_cast<float>(found[i] - zeros_[group]) * scales_[group];
    if (++input == parts_.inputs) ++output, input = 0;
  }
  if (parts_.storage.dtype == DType::kF16)
    for (float& value : out) value = f16_to_f32(f32_to_f16(value));
  if (parts_.storage.dtype == DType::kBF16)
    for (float& value : out) value = bf16_to_f32(f32_to_bf16(value));
}

}  // namespace fettle
