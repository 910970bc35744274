// Defines ForeignRecipe: the keys of a recipe of another tool, and what they mean in Fettle.
#pragma once

#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "config/foreign/dialect.h"

namespace fettle {

// The readers of other tools' recipes look keys up here, and note here what they mean. A key without a value counts as
// not given.
class ForeignRecipe {
 public:
  // `root` has the keys of the file, `all` these keys and the overrides, which share their nodes with `root`. Both must
  // outlive the object. `file` is the recipe's name in messages. `tool` is the name of the tool.
  ForeignRecipe(const YAML::Node& root, const YAML::Node& all, std::string file, std::string tool);

  const YAML::Node& root() const { return root_; }
  const YAML::Node& all() const { return all_; }
  const std::string& file() const { return file_; }

  // Returns the value that the file gives; undefined if it gives none.
  YAML::Node in_file(const char* key) const;
  // Returns the value that an override or the file gives; undefined if neither does.
  YAML::Node given(const char* key) const;
  bool has(const char* key) const { return given(key).IsDefined(); }
  bool has_any(std::initializer_list<const char*> keys) const;
  // Returns given(key) as text; "" if it is no scalar.
  std::string text(const char* key) const;
  bool is_on(const char* key) const;

  // Returns whether an override sets the key under this name.
  bool is_word(const char* key) const;
  // Returns the value of Fettle's key `key`: that of an override under any of its names, else that of `own` in the
  // file.
  YAML::Node current(std::string_view key, const char* own) const;
  // Returns whether an override sets Fettle's key `key` under any of its names.
  bool overrides(std::string_view key) const { return is_overridden(root_, all_, key); }
  // Returns where the key is given, for messages: "FILE:LINE" or "the command line".
  std::string place(const char* key) const;

  // Notes a default of the tool, for recipes without this key of Fettle.
  void usual(const char* key, const std::string& value);
  // Notes that the file means this value of a key of Fettle. Overrides of that key win.
  void mean(const char* key, const YAML::Node& value) { out_.meant.emplace_back(key, value); }
  void mean(const char* key, const std::string& value) { mean(key, YAML::Node(value)); }
  // Notes that an override means it.
  void mean_word(const char* key, const YAML::Node& value) { out_.meant_words.emplace_back(key, value); }
  // Notes that the tool's key `from` means it, wherever that key is given.
  void mean_from(const char* from, const char* key, const YAML::Node& value);
  // Notes that the keys need no other reader: those of the file, those on the command line, or both.
  void handle_in_file(const char* key) { out_.handled.insert(key); }
  void handle_word(const char* key) { out_.handled_words.insert(key); }
  void handle(std::initializer_list<const char*> keys);
  void drop_dropout_in(const char* stage) { out_.without_dropout.insert(stage); }

  // Returns what was noted. Call it last.
  Dialect take() { return std::move(out_); }

 private:
  const YAML::Node& root_;
  const YAML::Node& all_;
  std::string file_;
  Dialect out_;
};

}  // namespace fettle
