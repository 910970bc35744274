// Defines KeyPlaces: where the keys of a recipe were set, for messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace fettle {

// Who set a key: the recipe's file, an override, or the defaults of the tool whose recipe it is.
enum class SetBy : uint8_t { kRecipe, kOverride, kTool };

// Keys have Fettle's names, not those of other tools.
class KeyPlaces {
 public:
  KeyPlaces() = default;  // of a recipe without a file, for example if a command has only overrides
  explicit KeyPlaces(std::filesystem::path file);

  const std::filesystem::path& file() const { return file_; }  // the recipe; empty: there is no file
  // Returns where the key was set: "recipe.yaml:12" or "override 'key=value'". If it was not set, returns file(), or
  // "recipe" if there is no file.
  std::string of(std::string_view key) const;
  bool has(std::string_view key) const { return places_.contains(key); }
  bool overridden(std::string_view key) const { return set_by(key, SetBy::kOverride); }
  bool of_tool(std::string_view key) const { return set_by(key, SetBy::kTool); }

  void set(const std::string& key, const std::string& place, SetBy by = SetBy::kRecipe);
  void erase(const std::string& key);

 private:
  struct Place {
    std::string text;
    SetBy by;
  };
  bool set_by(std::string_view key, SetBy by) const;

  std::filesystem::path file_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace fettle
