#include "checkpoint/table/tensor_table.h"

#include "base/error.h"
#include "checkpoint/table/spellings.h"

namespace fettle {

void TensorTable::add_file(TensorFile file) {
  for (size_t i = 0; i < file.entries().size(); ++i) {
    const TensorEntry& entry = file.entries()[i];
    const auto [place, added] = places_.emplace(entry.name, Place{files_.size(), i});
    if (!added)
      throw UserError("both {1} and {2} have the tensor '{0}'; remove the shard that does not belong to the model",
                      entry.name, files_[place->second.file].path().string(), file.path().string());
    added_bytes_ += entry.shape.bytes();
  }
  files_.push_back(std::move(file));
}

const TensorFile& TensorTable::keep_file(TensorFile file) {
  files_.push_back(std::move(file));
  return files_.back();
}

void TensorTable::put(const Place& place, TensorEntry joined) {
  const std::string name = joined.name;
  const TensorEntry& kept = joined_[name] = std::move(joined);
  places_[name] = {place.file, place.entry, &kept};
}

StoredTensor TensorTable::at(const Place& place) const {
  const TensorFile& file = files_[place.file];
  return {&file, place.joined != nullptr ? place.joined : &file.entries()[place.entry]};
}

const TensorTable::Place* TensorTable::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

const TensorTable::Place* TensorTable::look_up(std::string_view name) const {
  if (const Place* place = find(name)) return place;
  for (const std::string& spelling : spellings(name))
    if (const Place* place = find(spelling)) return place;
  return nullptr;
}

std::vector<StoredTensor> TensorTable::in_file_order() const {
  std::map<std::pair<size_t, size_t>, const Place*> in_order;
  for (const auto& [name, place] : places_) in_order[{place.file, place.entry}] = &place;
  std::vector<StoredTensor> out;
  for (const auto& [position, place] : in_order) out.push_back(at(*place));
  return out;
}

}  // namespace fettle
