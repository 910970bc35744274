#include "config/key_places.h"

#include <utility>

namespace fettle {

KeyPlaces::KeyPlaces(std::filesystem::path file) : file_(std::move(file)) {}

std::string KeyPlaces::of(std::string_view key) const {
  if (const auto found = places_.find(key); found != places_.end()) return found->second.text;
  return file_.empty() ? "recipe" : file_.string();
}

bool KeyPlaces::set_by(std::string_view key, SetBy by) const {
  const auto found = places_.find(key);
  return found != places_.end() && found->second.by == by;
}

void KeyPlaces::set(const std::string& key, const std::string& place, SetBy by) {
  places_.insert_or_assign(key, Place{place, by});
}

void KeyPlaces::erase(const std::string& key) {
  places_.erase(key);
}

}  // namespace fettle
