// Defines TokenStore: the tokenised rows of one data set, mapped from the disk; and TokenWriter, which makes one.
//
// A store is a folder: `tokens` (a 32-bit word a token), `rows` (a StoredRow each), `classes` (of stage cls: as many
// f32 for each row, NaN where it has no label) and `store.json` (what `report` the writer was given, the XXH3 of the
// files and its own). It appears by rename when it is complete, or not at all. All is in the order of the rows, and in
// this machine's byte order.
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

#include "base/file_mapping.h"
#include "data/example.h"

namespace fettle {

// A token's id below 2^30, whether its prediction is trained, and whether it is of a pair's second text.
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
  uint64_t end = 0;             // of its tokens in the store; they begin where those of the row before end
  uint64_t digest = 0;          // of its tokens, which of them are trained, and its classes: equal rows have equal ones
  uint64_t line = 0;            // where the row was; 0: not in a file
  uint32_t file = 0;            // its number among the data set's files
  uint32_t trained : 30 = 0;    // as Example::trained_tokens
  uint32_t preference : 2 = 0;  // a Preference
};
static_assert(sizeof(StoredRow) == 32);

class TokenStore {
 public:
  // Maps the store in `folder`; null when there is none, one that is damaged, or one that cannot be read: `problem`
  // says which, in words, and is empty when there is none. The files are read once to check them.
  static std::shared_ptr<const TokenStore> open(const std::filesystem::path& folder, std::string* problem = nullptr);
  // Rows kept in this process's memory.
  static std::shared_ptr<const TokenStore> of(const std::vector<Example>& examples);
  TokenStore(const TokenStore&) = delete;

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  const StoredRow& row(int64_t i) const { return rows_[static_cast<size_t>(i)]; }
  std::span<const Token> tokens(int64_t i) const {
    const uint64_t begin = i == 0 ? 0 : rows_[static_cast<size_t>(i) - 1].end;
    const uint64_t end = rows_[static_cast<size_t>(i)].end;
    if (begin > end || end > tokens_.size()) throw_lost();
    return tokens_.subspan(begin, end - begin);
  }
  // As Example::classes, NaN for each when the row has no label.
  std::span<const float> classes(int64_t i) const {
    return classes_.subspan(static_cast<size_t>(i * classes_per_row_), static_cast<size_t>(classes_per_row_));
  }
  int64_t classes_per_row() const { return classes_per_row_; }
  const nlohmann::json& report() const { return report_; }

  // Throws UserError when rows that were read may be wrong because the store's files lost bytes meanwhile. Call it
  // after reading rows and before using what was read.
  void check() const;

 private:
  TokenStore() = default;
  [[noreturn]] void throw_lost() const;

  std::filesystem::path folder_;
  std::vector<FileMapping> mappings_;
  std::vector<Token> kept_tokens_;
  std::vector<StoredRow> kept_rows_;
  std::vector<float> kept_classes_;
  std::span<const Token> tokens_;
  std::span<const StoredRow> rows_;
  std::span<const float> classes_;
  int64_t classes_per_row_ = 0;
  nlohmann::json report_;
};

// Appends rows to a store in the making, which is removed again unless finish() was called. One thread at a time.
// Throws DoesNotFit when the disk is full, UserError when the folder cannot be written, as every member does.
class TokenWriter {
 public:
  // Makes the folder; `folder` must not exist. Rows have no classes, or `classes_per_row`.
  explicit TokenWriter(std::filesystem::path folder, int64_t classes_per_row = 0);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;

  // `labels` are the ids or kIgnore.
  void add(const Example& example, uint32_t file, int64_t line);
  // Closes the store, maps it and renames it to `place`. When there is one already, as of a faster process, that stays,
  // unless it is to be replaced (where the file system can swap two folders); what this writer made is given all the
  // same, from files without a name. Without a place it is not kept. Throws UserError when it cannot be read back.
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
  void close(File& file) const;
  [[noreturn]] void fail() const;

  std::filesystem::path folder_;
  int64_t classes_per_row_;
  File tokens_file_, rows_file_, classes_file_;
  std::vector<Token> words_;
  uint64_t end_ = 0;
};

}  // namespace fettle
