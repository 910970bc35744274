// Defines JsonField: a value in a JSON file. It knows its file name and its path of keys, which error messages show.
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
#include "base/files/mapped_file.h"

namespace fettle {

class JsonField {
 public:
  // Parses a file. Throws UserError with file, line and column when it is not valid JSON.
  static JsonField read_file(const std::filesystem::path& path);
  // Wraps a value from memory. Error messages show `origin` in place of a file name.
  static JsonField of_value(nlohmann::json value, std::string origin);

  // Returns the file and the path of this value, such as "dir/tokenizer.json: model.vocab".
  std::string where() const;
  const nlohmann::json& value() const { return *value_; }

  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  // The next two functions return the member `key`. When it is missing or null, find() returns nullopt and at() throws
  // UserError.
  std::optional<JsonField> find(std::string_view key) const;
  JsonField at(std::string_view key) const;
  // Returns the elements of an array, in order. This function and the readers below throw UserError for a value of
  // another type.
  std::vector<JsonField> elements() const;
  // Returns the members of an object, in the order of their keys.
  std::vector<std::pair<std::string, JsonField>> members() const;

  const std::string& string() const;
  int64_t integer() const;
  double number() const;
  // The next two functions return the member `key`, or `fallback` when it is missing or null.
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  // Throws UserError for a member whose name is not in `keys`, because an unknown member could change the meaning of
  // the file. Accepts an unknown member that is null or false.
  void expect_only(std::initializer_list<std::string_view> keys) const;

  // Throws UserError with where(), a colon and the message.
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  JsonField(std::shared_ptr<const nlohmann::json> root, const nlohmann::json* value, std::string origin,
            std::string key, int depth)
      : root_(std::move(root)), value_(value), origin_(std::move(origin)), key_(std::move(key)), depth_(depth) {}
  // Returns a value inside this one. Throws UserError when values are nested so deeply that reading them could overflow
  // the stack.
  JsonField within(const nlohmann::json& value, std::string key) const;
  [[noreturn]] void fail_type(std::string_view wanted) const;

  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* value_;
  std::string origin_;
  std::string key_;
  int depth_ = 0;
};

// Calls the reader in `readers` for the "type" of `field`. Throws UserError, which lists the known types, when no
// reader has this type.
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
