// Defines KeyReader, which reads keys in the spelling of any tool into a recipe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/foreign/settings_file.h"
#include "config/foreign/tables.h"
#include "config/keys.h"
#include "config/read/wishes.h"
#include "config/recipe.h"
#include "config/value.h"

namespace fettle {

// Reads the keys of a file, or the overrides, into the recipe. Remembers where each key was set.
class KeyReader {
 public:
  // In a file, a key that is given twice with different values is an error, and a key without a value counts as not
  // given. As an override, a key without a value gets its default.
  enum class Source : uint8_t { kFile, kOverrides };

  // Keeps the recipe and the wishes by reference. Adds the wishes of other tools' settings to `wishes`.
  KeyReader(Recipe& recipe, Source source, Wishes& wishes) : recipe_(recipe), source_(source), wishes_(wishes) {}

  // Reads one key. A key of another tool is translated, or accepted if it cannot change the result. Throws UserError
  // for other keys and for values that the key does not take.
  void take(const std::string& name, const GivenValue& given);

  // Prints one warning that lists the keys without effect that take() has not already warned about.
  void report_idle() const;

 private:
  void take_key(const Key& key, const std::string& name, const GivenValue& given);
  void set(const Key& key, const std::string& name, const GivenValue& given);
  void remember(const Key& key, const std::string& name, const GivenValue& given, bool changed);
  // Reads the keys of a map. `is_text` is true if the map was a text, so that all of it is at given.where.
  void take_inner(const std::string& name, const GivenValue& given, bool is_text = false);
  void take_settings(const Settings& settings, const std::string& name, const GivenValue& given);
  void accept(const WithoutEffect& row, const std::string& name, const GivenValue& given);

  // Return false if the key is of another kind.
  bool take_entry(const std::string& name, const GivenValue& given);  // "mesh.fsdp"
  bool take_translation(const std::string& name, const GivenValue& given);
  bool take_parts(const std::string& name, const GivenValue& given);  // optim_config.adamw_betas: two keys in a list

  Recipe& recipe_;
  Source source_;
  Wishes& wishes_;
  std::map<std::string, std::pair<std::string, std::string>> given_as_;  // by key: its name and place in the source
  std::vector<std::string> idle_;
  std::string idle_where_;
};

}  // namespace fettle
