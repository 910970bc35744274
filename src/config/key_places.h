// Defines KeyPlaces: where the keys of a recipe were set, for messages.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace fettle {

// Keys have Fettle's names, not those of other tools.
class KeyPlaces {
 public:
  KeyPlaces() = default;  // of a recipe without a file, for example if a command has only overrides
  explicit KeyPlaces(std::filesystem::path file);

  const std::filesystem::path& file() const { return file_; }  // the recipe; empty: there is no file
  // Returns where the key was set: "recipe.yaml:12" or "override 'key=value'". If it was not set, returns file(), or
  // "recipe" if there is no file.
  std::string of(std::string_view key) const;
  bool has(std::string_view key) const;         // the key was set
  bool overridden(std::string_view key) const;  // an override set the key

  void set(const std::string& key, const std::string& place, bool overrides = false);
  void erase(const std::string& key);

 private:
  struct Place {
    std::string text;
    bool overrides = false;
  };
  std::filesystem::path file_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace fettle
