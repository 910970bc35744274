#include "data/store/token_store.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "base/error.h"
#include "data/store/read_progress.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;

constexpr int kFormat = 4;
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr uint32_t kMostTrained = (uint32_t{1} << 29) - 1;

struct CloseStoreFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string written(const json& info) {
  return info.dump(1, ' ', false, json::error_handler_t::replace);
}

// Returns XXH3 of the file's bytes; nullopt when the file cannot be read. Reads the file and does not map it, because
// mapped pages would count as memory of this process.
std::optional<uint64_t> checksum(const fs::path& file) {
  const std::unique_ptr<std::FILE, CloseStoreFile> in(std::fopen(file.c_str(), "rb"));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (!in) return std::nullopt;
  XXH3_64bits_reset(state.get());
  std::vector<char> block(kBufferBytes);
  std::error_code unknown;
  ReadProgress progress("data: checking the stored rows", static_cast<int64_t>(fs::file_size(file, unknown)),
                        "the stored rows were checked");
  while (const size_t count = std::fread(block.data(), 1, block.size(), in.get())) {
    progress.add(static_cast<int64_t>(count));
    XXH3_64bits_update(state.get(), block.data(), count);
  }
  if (std::ferror(in.get())) return std::nullopt;
  return XXH3_64bits_digest(state.get());
}

// Returns XXH3 of the part of store.json that describes the store.
uint64_t checksum(const json& info) {
  const std::string text = written(info);
  return XXH3_64bits(text.data(), text.size());
}

uint64_t digest(std::span<const Token> tokens, std::span<const float> classes, const Example& example) {
  uint64_t seed = static_cast<uint64_t>(example.preference);
  for (const std::span<const float> values : {classes, std::span<const float>(example.weights)})
    if (!values.empty()) seed = XXH3_64bits_withSeed(values.data(), values.size_bytes(), seed);
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
}

void add_words(const Example& example, std::vector<Token>& words) {
  for (size_t i = 0; i < example.input_ids.size(); ++i)
    words.emplace_back(example.input_ids[i], example.labels[i] != kIgnore,
                       !example.second_text.empty() && example.second_text[i] != 0);
}

// Returns a weight for each token of the example.
std::vector<float> stored_weights(const Example& example) {
  if (example.weights.empty()) return std::vector<float>(example.input_ids.size(), 1);
  internal_check(example.weights.size() == example.input_ids.size(), "{}: {} ids, but {} weights", example.source,
                 example.input_ids.size(), example.weights.size());
  return example.weights;
}

// Returns the example's classes, or `per_row` NaNs when the row has no label.
std::vector<float> stored_classes(const Example& example, int64_t per_row) {
  if (example.classes.empty())
    return std::vector<float>(static_cast<size_t>(per_row), std::numeric_limits<float>::quiet_NaN());
  internal_check(static_cast<int64_t>(example.classes.size()) == per_row,
                 "{}: {} classes, but the store has {} for each row", example.source, example.classes.size(), per_row);
  return example.classes;
}

}  // namespace

std::shared_ptr<const TokenStore> TokenStore::open(const fs::path& folder, std::string* problem) try {
  std::string unused;
  std::string& why = problem ? *problem : unused;
  why.clear();
  auto failed = [&](const char* name) {
    why = fmt::format("{} cannot be read: {}", name, std::strerror(errno));
    return nullptr;
  };
  auto damaged = [&](const char* name) {
    why = fmt::format("{} is damaged", name);
    return nullptr;
  };
  std::error_code unknown;
  if (!fs::exists(folder / "store.json", unknown)) return nullptr;
  std::ifstream about(folder / "store.json");
  if (!about) return failed("store.json");
  const json file = json::parse(about, nullptr, false);
  if (!file.is_object() || !file.contains("store") || file.value("xxh3", uint64_t{0}) != checksum(file["store"]))
    return damaged("store.json");
  const json& info = file["store"];
  if (info.value("format", 0) != kFormat) return damaged("store.json");
  std::shared_ptr<TokenStore> store(new TokenStore);
  store->folder_ = folder;
  store->report_ = info.value("report", json());
  store->classes_per_row_ = info.value("classes_per_row", int64_t{0});
  for (const char* name : {"tokens", "rows", "classes", "weights"}) {
    if (!info.contains(name)) continue;
    const fs::path path = folder / name;
    const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) return failed(name);
    int reason = 0;
    FileMapping mapping(handle, reason);
    errno = reason;
    if (reason != 0) return failed(name);
    const void* data = mapping.bytes().data();
    const size_t bytes = mapping.bytes().size();
    store->mappings_.push_back(std::move(mapping));
    const std::optional<uint64_t> found = checksum(path);
    if (!found) return failed(name);
    const json expected = info.value(name, json());
    if (expected.value("bytes", uint64_t{0}) != bytes || expected.value("xxh3", uint64_t{0}) != *found)
      return damaged(name);
    if (std::string_view(name) == "tokens")
      store->tokens_ = {static_cast<const Token*>(data), bytes / sizeof(Token)};
    else if (std::string_view(name) == "classes")
      store->classes_ = {static_cast<const float*>(data), bytes / sizeof(float)};
    else if (std::string_view(name) == "weights")
      store->weights_ = {static_cast<const float*>(data), bytes / sizeof(float)};
    else
      store->rows_ = {static_cast<const StoredRow*>(data), bytes / sizeof(StoredRow)};
  }
  return store;
} catch (const json::exception&) {
  if (problem) *problem = "store.json is damaged";
  return nullptr;
}

std::shared_ptr<const TokenStore> TokenStore::of(const std::vector<Example>& examples) {
  std::shared_ptr<TokenStore> store(new TokenStore);
  bool weighted = false;
  for (const Example& example : examples) {
    store->classes_per_row_ = std::max(store->classes_per_row_, static_cast<int64_t>(example.classes.size()));
    weighted = weighted || !example.weights.empty();
  }
  for (const Example& example : examples) {
    internal_check(example.input_ids.size() == example.labels.size(), "{}: {} ids, but {} labels", example.source,
                   example.input_ids.size(), example.labels.size());
    for (size_t i = 0; i < example.labels.size(); ++i)
      internal_check(example.labels[i] == kIgnore || example.labels[i] == example.input_ids[i],
                     "{}: label number {} is neither its token nor kIgnore", example.source, i);
    add_words(example, store->kept_tokens_);
    const std::vector<float> classes = stored_classes(example, store->classes_per_row_);
    store->kept_classes_.insert(store->kept_classes_.end(), classes.begin(), classes.end());
    if (weighted) {
      const std::vector<float> weights = stored_weights(example);
      store->kept_weights_.insert(store->kept_weights_.end(), weights.begin(), weights.end());
    }
    store->kept_rows_.push_back(
        {.end = store->kept_tokens_.size(),
         .digest = digest({store->kept_tokens_.end() - example.length(), store->kept_tokens_.end()}, classes, example),
         .file = static_cast<uint32_t>(store->kept_rows_.size()),
         .trained = static_cast<uint32_t>(example.trained_tokens()) & kMostTrained,
         .preference = static_cast<uint32_t>(example.preference) & 3});
  }
  store->tokens_ = store->kept_tokens_;
  store->rows_ = store->kept_rows_;
  store->classes_ = store->kept_classes_;
  store->weights_ = store->kept_weights_;
  return store;
}

void TokenStore::check() const {
  for (const FileMapping& mapping : mappings_)
    if (!mapping.intact()) throw_lost();
}

void TokenStore::throw_lost() const {
  throw UserError(
      "{}: the stored tokens became shorter, or their disk failed, while Fettle was reading them; start again: Fettle "
      "then tokenises the rows again (dmesg shows disk errors)",
      folder_.string());
}

TokenWriter::TokenWriter(fs::path folder, int64_t classes_per_row)
    : folder_(std::move(folder)), classes_per_row_(classes_per_row) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    throw UserError("{}: the folder for the tokenised rows cannot be created: {}; set data_cache to another folder",
                    folder_.string(), error.message());
  tokens_file_ = create("tokens");
  rows_file_ = create("rows");
  if (classes_per_row_ > 0) classes_file_ = create("classes");
}

TokenWriter::~TokenWriter() {
  for (File* file : {&tokens_file_, &rows_file_, &classes_file_, &weights_file_}) {
    if (file->handle != nullptr) std::fclose(file->handle);
    XXH3_freeState(file->hash);
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

TokenWriter::File TokenWriter::create(const char* name) const {
  File file;
  file.handle = std::fopen((folder_ / name).c_str(), "wb");
  if (file.handle == nullptr) fail();
  std::setvbuf(file.handle, nullptr, _IOFBF, kBufferBytes);
  file.hash = XXH3_createState();
  XXH3_64bits_reset(file.hash);
  return file;
}

void TokenWriter::write(File& file, const void* data, size_t bytes) const {
  if (std::fwrite(data, 1, bytes, file.handle) != bytes) fail();
  XXH3_64bits_update(file.hash, data, bytes);
  file.bytes += bytes;
}

void TokenWriter::close(File& file) const {
  if (std::fclose(std::exchange(file.handle, nullptr)) != 0) fail();
}

void TokenWriter::fail() const {
  const int reason = errno;
  constexpr const char* kRemedy = "set data_cache to another folder";
  if (reason == ENOSPC || reason == EDQUOT)
    throw DoesNotFit("{}: the disk is full, so the tokenised rows cannot be stored; {}", folder_.string(), kRemedy);
  throw UserError("{}: the tokenised rows cannot be written: {}; {}", folder_.string(), std::strerror(reason), kRemedy);
}

// Creates the file of weights at the first row with weights. All tokens before this row have weight 1.
void TokenWriter::write_weights(const Example& example) {
  if (example.weights.empty() && weights_file_.handle == nullptr) return;
  if (weights_file_.handle == nullptr) {
    weights_file_ = create("weights");
    const std::vector<float> ones(kBufferBytes / sizeof(float), 1);
    for (uint64_t left = end_; left > 0;) {
      const uint64_t count = std::min<uint64_t>(left, ones.size());
      write(weights_file_, ones.data(), count * sizeof(float));
      left -= count;
    }
  }
  const std::vector<float> weights = stored_weights(example);
  write(weights_file_, weights.data(), weights.size() * sizeof(float));
}

void TokenWriter::add(const Example& example, uint32_t file, int64_t line, bool continues) {
  write_weights(example);
  words_.clear();
  add_words(example, words_);
  const std::vector<float> classes = stored_classes(example, classes_per_row_);
  end_ += words_.size();
  const StoredRow row{.end = end_,
                      .digest = digest(words_, classes, example),
                      .line = line,
                      .file = file,
                      .continues = continues,
                      .trained = static_cast<uint32_t>(example.trained_tokens()) & kMostTrained,
                      .preference = static_cast<uint32_t>(example.preference) & 3};
  write(tokens_file_, words_.data(), words_.size() * sizeof(Token));
  write(rows_file_, &row, sizeof row);
  if (classes_per_row_ > 0) write(classes_file_, classes.data(), classes.size() * sizeof(float));
}

std::shared_ptr<const TokenStore> TokenWriter::finish(const json& report, const fs::path& place, bool replace) {
  json info = {{"format", kFormat}, {"report", report}, {"classes_per_row", classes_per_row_}};
  for (auto [name, file] : {std::pair{"tokens", &tokens_file_},
                            {"rows", &rows_file_},
                            {"classes", &classes_file_},
                            {"weights", &weights_file_}}) {
    if (file->handle == nullptr) continue;
    close(*file);
    info[name] = {{"bytes", file->bytes}, {"xxh3", XXH3_64bits_digest(file->hash)}};
  }
  // Writing replaces bytes that are not UTF-8. `info` is written and parsed here, so that the checksum below belongs to
  // the value that TokenStore::open will parse.
  info = json::parse(written(info));
  std::ofstream about(folder_ / "store.json");
  about << written({{"store", info}, {"xxh3", checksum(info)}}) << "\n";
  about.close();
  if (!about) fail();
  // If another process has made the same store meanwhile, that store is used, and the destructor deletes this one. It
  // must not be mapped then: the disk space of a deleted file is free only when no process maps it.
  const auto other = [&] { return place.empty() || replace ? nullptr : TokenStore::open(place); };
  if (auto made = other()) return made;
  std::string problem;
  std::shared_ptr<const TokenStore> store = TokenStore::open(folder_, &problem);
  if (!store)
    throw UserError(
        "{}: the tokenised rows were written, but cannot be read back: {}; set data_cache to another folder",
        folder_.string(), problem);
  if (place.empty()) return store;
  std::error_code error;
  fs::rename(folder_, place, error);
  if (!error)
    folder_.clear();
  else if (fs::exists(place) && replace)
    // The folders are exchanged in one step, so that other processes always find a store. The destructor then removes
    // the old store.
    renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE);
  else if (!fs::exists(place)) {
    errno = error.value();
    fail();
  } else if (auto made = other()) {
    return made;
  }
  return store;
}

}  // namespace fettle
