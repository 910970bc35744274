// Defines TensorTable: the tensors of several files, by name.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace fettle {

// A tensor of a table. Both pointers are valid only while the table lives.
struct StoredTensor {
  const TensorFile* file;
  const TensorEntry* entry;
};

// Owns the files and the entries of joined tensors. Move-only; a move keeps pointers to files and entries valid.
class TensorTable {
 public:
  struct Place {
    size_t file, entry;                   // a joined tensor takes the place of one of its parts
    const TensorEntry* joined = nullptr;  // a tensor that is computed from others; null: a stored tensor
  };
  using Places = std::map<std::string, Place, std::less<>>;

  // Adds the tensors of the file. Throws UserError when the table already has a tensor with the same name.
  void add_file(TensorFile file);
  // Keeps the file for joined tensors, and adds none of its tensors.
  const TensorFile& keep_file(TensorFile file);
  // Adds a tensor that is computed from others, under the entry's name. Replaces the tensor with this name, if any.
  void put(const Place& place, TensorEntry joined);
  // Removes tensors from the table. The files keep them.
  void erase(const std::string& name) { places_.erase(name); }
  template <typename Predicate>
  void erase_if(Predicate unwanted) {
    std::erase_if(places_, [&](const auto& named) { return unwanted(named.first); });
  }

  const Places& places() const { return places_; }  // sorted by name
  const std::deque<TensorFile>& files() const { return files_; }
  StoredTensor at(const Place& place) const;
  // Returns the tensor with this name; null when there is none. look_up also tries the other spellings of the name
  // (spellings.h).
  const Place* find(std::string_view name) const;
  const Place* look_up(std::string_view name) const;
  std::vector<StoredTensor> in_file_order() const;
  int64_t added_bytes() const { return added_bytes_; }  // size of all tensors of add_file()

 private:
  std::deque<TensorFile> files_;  // joined tensors point to them
  Places places_;
  std::map<std::string, TensorEntry> joined_;
  int64_t added_bytes_ = 0;
};

}  // namespace fettle
