// Defines JsonField: a value inside a JSON file that knows where it stands, for errors that name file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fettle {

// The bytes of a file. Throws UserError naming the file when it cannot be read.
std::string read_file_bytes(const std::filesystem::path& path);

class JsonField {
 public:
  // Parses a file. Throws UserError with file:line:column when it is not JSON.
  static JsonField read_file(const std::filesystem::path& path);
  // Takes a value made in memory; `origin` stands in errors where the file's name would.
  static JsonField of_value(nlohmann::json value, std::string origin);

  // Where this is, as "dir/tokenizer.json: model.vocab".
  std::string where() const;
  const nlohmann::json& value() const { return *value_; }

  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  // The member `key`; a missing one and null are alike: nullopt for find, UserError for at.
  std::optional<JsonField> find(std::string_view key) const;
  JsonField at(std::string_view key) const;
  // Elements of an array, in order. Throws UserError for any other type, as the readers below do for theirs.
  std::vector<JsonField> elements() const;
  // Members of an object, in the order of their keys.
  std::vector<std::pair<std::string, JsonField>> members() const;

  const std::string& string() const;
  int64_t integer() const;
  double number() const;
  // Members with a value for when they are missing or null.
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  // Throws UserError naming a member that is not of `keys` (unless it is null or false): what is not known may change
  // what the file means.
  void expect_only(std::initializer_list<std::string_view> keys) const;

  // Throws UserError "<where>: <message>".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  JsonField(std::shared_ptr<const nlohmann::json> root, const nlohmann::json* value, std::string origin,
            std::string key, int depth)
      : root_(std::move(root)), value_(value), origin_(std::move(origin)), key_(std::move(key)), depth_(depth) {}
  // A value within this one. Throws UserError when values are nested so deeply that reading them could not end well.
  JsonField within(const nlohmann::json& value, std::string key) const;
  [[noreturn]] void fail_type(std::string_view wanted) const;

  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* value_;
  std::string origin_;
  std::string key_;
  int depth_ = 0;
};

// Calls the reader that `readers` has for field's "type". Throws UserError naming the type and the known ones.
template <typename Result>
Result read_by_type(const JsonField& field, std::string_view part,
                    const std::map<std::string, Result (*)(const JsonField&)>& readers) {
  const std::string& type = field.at("type").string();
  const auto reader = readers.find(type);
  if (reader != readers.end()) return reader->second(field);
  std::string known;
  for (const auto& [name, unused] : readers) known += (known.empty() ? "" : ", ") + name;
  field.fail("the {} type '{}' is not supported; supported are {}", part, type, known);
}

}  // namespace fettle
