// Defines TokenStore, which maps the tokenised rows of one data set from the disk, and TokenWriter, which writes a
// store.
//
// A store is a folder of files, in the order of the rows and in this machine's byte order:
// - `tokens`: one 32-bit word per token;
// - `rows`: one StoredRow per row;
// - `classes`, only for labelled rows: the same number of f32 for each row; all NaN for a row without a label;
// - `weights`, only if a row has weights: one f32 per token;
// - `store.json`: a description of the store, and the XXH3 hash of this description. The description has the writer's
//   `report` and the XXH3 hash of each file above.
// When the store is complete, a rename gives the folder its final name.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_mapping.h"
#include "data/example.h"

namespace fettle {

// A token id below 2^30, and two flags: the token is trained; the token belongs to the second of two texts.
class Token {
 public:
  Token() = default;
  Token(int32_t id, bool trained, bool second = false)
      : bits_((static_cast<uint32_t>(id) & kLargest) | (trained ? kTrained : 0) | (second ? kSecond : 0)) {}
  int32_t id() const { return static_cast<int32_t>(bits_ & kLargest); }
  bool second() const { return (bits_ & kSecond) != 0; }
  bool trained() const { return (bits_ & kTrained) != 0; }
  int32_t label() const { return trained() ? id() : kIgnore; }

 private:
  static constexpr uint32_t kTrained = uint32_t{1} << 31, kSecond = uint32_t{1} << 30, kLargest = kSecond - 1;
  uint32_t bits_ = 0;
};
static_assert(sizeof(Token) == 4);

struct StoredRow {
  uint64_t end = 0;             // end of the row's tokens in the store; they begin at the `end` of the previous row
  uint64_t digest = 0;          // hash of the row's tokens with their flags, classes, weights and preference
  int64_t line = 0;             // Row::line; 0: not from a file
  uint32_t file = 0;            // number of the file in the data set
  uint32_t continues : 1 = 0;   // the text of the previous row goes on in this one; both come from one row of the file
  uint32_t trained : 29 = 0;    // Example::trained_tokens
  uint32_t preference : 2 = 0;  // a Preference as a number
};
static_assert(sizeof(StoredRow) == 32);

class TokenStore {
 public:
  // Reads the files of the store in `folder` once to check them, and maps them. Returns null when there is no store;
  // `problem` is then "". Returns null when the store is damaged or cannot be read; `problem` is then the reason.
  static std::shared_ptr<const TokenStore> open(const std::filesystem::path& folder, std::string* problem = nullptr);
  // Returns a store in memory, without files.
  static std::shared_ptr<const TokenStore> of(const std::vector<Example>& examples);
  TokenStore(const TokenStore&) = delete;

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  const StoredRow& row(int64_t i) const { return rows_[static_cast<size_t>(i)]; }
  std::span<const Token> tokens(int64_t i) const { return part_of(tokens_, i); }
  // Like Example::weights; empty if no row of the store has weights.
  std::span<const float> weights(int64_t i) const {
    return weights_.empty() ? std::span<const float>() : part_of(weights_, i);
  }
  bool weighted() const { return !weights_.empty(); }
  // Like Example::classes; all NaN when the row has no label.
  std::span<const float> classes(int64_t i) const {
    return classes_.subspan(static_cast<size_t>(i * classes_per_row_), static_cast<size_t>(classes_per_row_));
  }
  int64_t classes_per_row() const { return classes_per_row_; }
  const nlohmann::json& report() const { return report_; }

  // Throws UserError when rows that were read may be wrong, because the store's files became shorter meanwhile. Call
  // this after reading rows and before using them.
  void check() const;

 private:
  TokenStore() = default;
  [[noreturn]] void throw_lost() const;
  // Returns the part of `all` that belongs to row i. `all` has one value for each token of the store.
  template <typename T>
  std::span<const T> part_of(std::span<const T> all, int64_t i) const {
    const uint64_t begin = i == 0 ? 0 : rows_[static_cast<size_t>(i) - 1].end;
    const uint64_t end = rows_[static_cast<size_t>(i)].end;
    if (begin > end || end > all.size()) throw_lost();
    return all.subspan(begin, end - begin);
  }

  std::filesystem::path folder_;
  std::vector<FileMapping> mappings_;
  std::vector<Token> kept_tokens_;
  std::vector<StoredRow> kept_rows_;
  std::vector<float> kept_classes_, kept_weights_;
  std::span<const Token> tokens_;
  std::span<const StoredRow> rows_;
  std::span<const float> classes_, weights_;
  int64_t classes_per_row_ = 0;
  nlohmann::json report_;
};

// Writes a store row by row. Without finish(), the destructor removes the store. Not safe for several threads. Every
// member throws DoesNotFit when the disk is full, and UserError when the folder cannot be written.
class TokenWriter {
 public:
  // Creates the folder, which must not exist. Rows have `classes_per_row` classes.
  explicit TokenWriter(std::filesystem::path folder, int64_t classes_per_row = 0);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;

  // Each label must be its token id or kIgnore. For `continues`, see StoredRow.
  void add(const Example& example, uint32_t file, int64_t line, bool continues = false);
  // Closes the store, maps it, renames its folder to `place` and returns it. If another process was faster and `place`
  // has a store that can be read, returns that store, and the writer's destructor removes this one. If `place` is
  // empty, or has a store that cannot be read, the folder keeps its name, and the destructor removes the files; the
  // returned store stays valid. If `replace` is true, the new store instead takes the place of an existing one,
  // provided that the file system can swap two folders. Throws UserError when the store cannot be read back.
  std::shared_ptr<const TokenStore> finish(const nlohmann::json& report, const std::filesystem::path& place,
                                           bool replace = false);

 private:
  struct File {
    std::FILE* handle = nullptr;
    XXH3_state_t* hash = nullptr;
    uint64_t bytes = 0;
  };
  File create(const char* name) const;
  void write(File& file, const void* data, size_t bytes) const;
  void write_weights(const Example& example);
  void close(File& file) const;
  [[noreturn]] void fail() const;

  std::filesystem::path folder_;
  int64_t classes_per_row_;
  File tokens_file_, rows_file_, classes_file_, weights_file_;
  std::vector<Token> words_;
  uint64_t end_ = 0;
};

}  // namespace fettle
