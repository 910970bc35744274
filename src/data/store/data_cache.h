// Defines DataCache: token stores that are kept in a folder between runs. A store's key is a hash of everything that
// affects its content.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/files/scratch_folder.h"
#include "data/data_spec.h"
#include "data/read/dataset_info.h"
#include "data/store/token_store.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// The key of a data set's store covers everything that changes a row's tokens:
// - the bytes of the data files (file_hashes.h), and how rows are read;
// - the tokenizer's files;
// - the chat template, and as much of the start time (DataSpec::started) as the template can write;
// - the members of DataSpec that change tokens;
// - the program's executable file: another build makes new stores.
// The key does not include the paths of the files, or the order, shares and mix of the rows. Several processes may
// share a folder.
class DataCache {
 public:
  // Keeps `spec` by reference. spec.cache names the folder. With "off", stores are made in a temporary folder, which
  // the destructor removes. If the folder cannot be written, warns and continues as with "off".
  explicit DataCache(const DataSpec& spec);
  DataCache(const DataCache&) = delete;

  // Returns the key of the store; "" when stores are not kept. Throws UserError when a file cannot be read. After a
  // signal, throws the error of InterruptScope::check.
  std::string key(const DataSource& source, const Tokenizer& tokenizer, int64_t model_vocab_size) const;
  // Returns the store with this key; null when there is none, or when the store cannot be used. Sets `damaged` to true
  // when the store exists but is damaged, so that it must be replaced; otherwise to false.
  std::shared_ptr<const TokenStore> find(const std::string& key, bool& damaged) const;
  // Returns the path of a draft: a folder in which a store of this key is made. The name is unique among all processes
  // and machines. Also removes stores and hashes of data files that no run used for 30 days, and earlier drafts that
  // nobody wrote to for a day.
  std::filesystem::path draft(const std::string& key) const;
  // Returns the final folder, to which TokenWriter::finish renames the draft; "" when the store is not kept.
  std::filesystem::path place(const std::string& key) const { return key.empty() ? "" : folder_ / key; }

 private:
  void remove_old() const;

  const DataSpec& spec_;
  std::optional<ScratchFolder> scratch_;  // the folder, if the stores are not kept
  std::filesystem::path folder_;
};

}  // namespace fettle
