#include "data/store/token_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/error.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr size_t kBlock = size_t{1} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// XXH3 of a file's bytes; nothing when it cannot be read. Read, not mapped: mapped pages would count as this process's.
std::optional<uint64_t> checksum(const fs::path& file) {
  const std::unique_ptr<std::FILE, CloseFile> in(std::fopen(file.c_str(), "rb"));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (!in) return std::nullopt;
  XXH3_64bits_reset(state.get());
  std::vector<char> block(kBlock);
  while (const size_t count = std::fread(block.data(), 1, block.size(), in.get()))
    XXH3_64bits_update(state.get(), block.data(), count);
  if (std::ferror(in.get())) return std::nullopt;
  return XXH3_64bits_digest(state.get());
}

uint64_t digest(std::span<const Token> tokens) {
  return XXH3_64bits(tokens.data(), tokens.size_bytes());
}

}  // namespace

std::shared_ptr<const TokenStore> TokenStore::open(const fs::path& folder) try {
  std::ifstream about(folder / "store.json");
  if (!about) return nullptr;
  const nlohmann::json info = nlohmann::json::parse(about, nullptr, false);
  if (!info.is_object() || info.value("format", 0) != kFormat) return nullptr;
  std::shared_ptr<TokenStore> store(new TokenStore);
  store->report_ = info.value("report", nlohmann::json());
  for (const char* name : {"tokens", "rows"}) {
    const fs::path file = folder / name;
    const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) return nullptr;
    struct stat status {};
    const bool sized = fstat(handle, &status) == 0;
    const auto bytes = static_cast<size_t>(status.st_size);
    void* data = sized && bytes > 0 ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, handle, 0) : nullptr;
    ::close(handle);
    if (!sized || data == MAP_FAILED) return nullptr;
    if (data != nullptr) store->mappings_.push_back({data, bytes});
    const nlohmann::json expected = info.value(name, nlohmann::json());
    if (expected.value("bytes", uint64_t{0}) != bytes || expected.value("xxh3", uint64_t{0}) != checksum(file))
      return nullptr;
    if (std::string_view(name) == "tokens")
      store->tokens_ = {static_cast<const Token*>(data), bytes / sizeof(Token)};
    else
      store->rows_ = {static_cast<const StoredRow*>(data), bytes / sizeof(StoredRow)};
  }
  return store;
} catch (const nlohmann::json::exception&) {
  return nullptr;  // store.json is damaged
}

std::shared_ptr<const TokenStore> TokenStore::of(const std::vector<Example>& examples) {
  std::shared_ptr<TokenStore> store(new TokenStore);
  for (const Example& example : examples) {
    internal_check(example.input_ids.size() == example.labels.size(), "{}: {} ids, {} labels", example.source,
                   example.input_ids.size(), example.labels.size());
    for (size_t i = 0; i < example.labels.size(); ++i) {
      const bool trained = example.labels[i] != kIgnore;
      internal_check(!trained || example.labels[i] == example.input_ids[i], "{}: label {} is not its token",
                     example.source, i);
      store->kept_tokens_.emplace_back(example.input_ids[i], trained);
    }
    store->kept_rows_.push_back(
        {.end = store->kept_tokens_.size(),
         .digest = digest({store->kept_tokens_.end() - example.length(), store->kept_tokens_.end()}),
         .file = static_cast<uint32_t>(store->kept_rows_.size()),
         .trained = static_cast<uint32_t>(example.trained_tokens())});
  }
  store->tokens_ = store->kept_tokens_;
  store->rows_ = store->kept_rows_;
  return store;
}

TokenStore::~TokenStore() {
  for (const Mapping& mapping : mappings_) munmap(mapping.data, mapping.bytes);
}

TokenWriter::TokenWriter(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw UserError("{} cannot be made: {}", folder_.string(), error.message());
  tokens_file_ = create("tokens");
  rows_file_ = create("rows");
}

TokenWriter::~TokenWriter() {
  for (File* file : {&tokens_file_, &rows_file_}) {
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
  std::setvbuf(file.handle, nullptr, _IOFBF, kBlock);
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
  constexpr const char* kRemedy = "name another folder with data_cache";
  if (reason == ENOSPC || reason == EDQUOT)
    throw DoesNotFit("the disk of {} is full of tokens; {}", folder_.string(), kRemedy);
  throw UserError("{} cannot be written: {}; {}", folder_.string(), std::strerror(reason), kRemedy);
}

void TokenWriter::add(const Example& example, uint32_t file, int64_t line) {
  words_.clear();
  for (size_t i = 0; i < example.input_ids.size(); ++i)
    words_.emplace_back(example.input_ids[i], example.labels[i] != kIgnore);
  end_ += words_.size();
  const StoredRow row{.end = end_,
                      .digest = digest(words_),
                      .line = static_cast<uint64_t>(line),
                      .file = file,
                      .trained = static_cast<uint32_t>(example.trained_tokens())};
  write(tokens_file_, words_.data(), words_.size() * sizeof(Token));
  write(rows_file_, &row, sizeof row);
}

void TokenWriter::finish(const nlohmann::json& report, const fs::path& place) {
  nlohmann::json info = {{"format", kFormat}, {"report", report}};
  for (auto [name, file] : {std::pair{"tokens", &tokens_file_}, {"rows", &rows_file_}}) {
    close(*file);
    info[name] = {{"bytes", file->bytes}, {"xxh3", XXH3_64bits_digest(file->hash)}};
  }
  std::ofstream about(folder_ / "store.json");
  about << info.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  about.close();
  if (!about) fail();
  std::error_code error;
  fs::rename(folder_, place, error);
  if (error && !fs::exists(place / "store.json")) {
    errno = error.value();
    fail();
  }
  if (!error) folder_.clear();
}

}  // namespace fettle
