// Defines DataCache: token stores kept in a folder between runs, each under a key of all that made it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "config/recipe.h"
#include "data/read/dataset_info.h"
#include "data/store/token_store.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// The key of a data set's store covers the bytes of its files, how its rows are read, the tokenizer's files, the chat
// template (and the day, when that asks for it), the recipe's keys that change a row's tokens, and this program's own
// file: whatever changes one of them makes another store. Where the files are, and the order, shares and mix of the
// rows, are not part of it. Several processes may share a folder.
class DataCache {
 public:
  // The folder is that of data_cache, "" meaning the default and "off" none: then stores are made in a folder of this
  // cache's own, which goes with it. A folder that cannot be written counts as none, with a warning.
  // `unlabelled`: the rows may lack a label (RowTokeniser).
  explicit DataCache(const Recipe& recipe, bool unlabelled = false);
  ~DataCache();
  DataCache(const DataCache&) = delete;

  // What the store is called; "" when none is kept. Throws UserError when a file cannot be read, Interrupted.
  std::string key(const DataSource& source, const Tokenizer& tokenizer, int64_t model_vocab_size) const;
  // Null when it is not there, or cannot be used; `damaged` says whether there is one that is to be replaced.
  std::shared_ptr<const TokenStore> find(const std::string& key, bool& damaged) const;
  // Where a store of this key is made: a name that no process on any machine has; and what it is then called, ""
  // when it is not kept. Stores that no run used for 30 days are removed.
  std::filesystem::path draft(const std::string& key) const;
  std::filesystem::path place(const std::string& key) const { return key.empty() ? "" : folder_ / key; }

 private:
  void remove_old() const;

  const Recipe& recipe_;
  bool unlabelled_;
  bool kept_ = true;
  std::filesystem::path folder_;
};

}  // namespace fettle
