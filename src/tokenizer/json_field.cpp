#include "tokenizer/json_field.h"

#include <algorithm>

#include "base/files/mapped_file.h"
#include "base/json_text.h"

namespace fettle {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 64;

}  // namespace

JsonField JsonField::read_file(const std::filesystem::path& path) {
  const std::string text = fettle::read_file(path);
  try {
    return of_value(parse_json<json>(text), path.string());
  } catch (const UserError& error) {
    throw UserError("{}: is not valid JSON: {}; fetch the file again", path.string(), error.what());
  }
}

JsonField JsonField::of_value(json value, std::string origin) {
  auto root = std::make_shared<const json>(std::move(value));
  const json* top = root.get();
  return JsonField(std::move(root), top, std::move(origin), "", 0);
}

std::string JsonField::where() const {
  return key_.empty() ? origin_ : origin_ + ": " + key_;
}

JsonField JsonField::within(const json& value, std::string key) const {
  if (depth_ >= kMostDepth) throw UserError("{}: values are nested more than {} deep", origin_, kMostDepth);
  return JsonField(root_, &value, origin_, std::move(key), depth_ + 1);
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  if (!value_->is_object()) fail_type("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return within(*found, key_.empty() ? std::string(key) : key_ + "." + std::string(key));
}

JsonField JsonField::at(std::string_view key) const {
  if (auto found = find(key)) return *found;
  fail("key '{}' is missing", key);
}

std::vector<JsonField> JsonField::elements() const {
  if (!value_->is_array()) fail_type("a list");
  std::vector<JsonField> result;
  result.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    result.push_back(within((*value_)[i], fmt::format("{}[{}]", key_, i)));
  }
  return result;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members() const {
  if (!value_->is_object()) fail_type("an object");
  std::vector<std::pair<std::string, JsonField>> result;
  for (const auto& [key, value] : value_->items()) {
    result.emplace_back(key, within(value, key_.empty() ? key : key_ + "." + key));
  }
  return result;
}

const std::string& JsonField::string() const {
  if (!value_->is_string()) fail_type("a string");
  return value_->get_ref<const std::string&>();
}

int64_t JsonField::integer() const {
  if (!value_->is_number_integer()) fail_type("a whole number");
  return value_->get<int64_t>();
}

double JsonField::number() const {
  if (!value_->is_number()) fail_type("a number");
  return value_->get<double>();
}

bool JsonField::boolean_or(std::string_view key, bool fallback) const {
  const auto field = find(key);
  if (!field) return fallback;
  if (!field->value_->is_boolean()) field->fail_type("true or false");
  return field->value_->get<bool>();
}

std::string JsonField::string_or(std::string_view key, std::string_view fallback) const {
  const auto field = find(key);
  return field ? field->string() : std::string(fallback);
}

void JsonField::expect_only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) fail_type("an object");
  for (const auto& [key, value] : value_->items()) {
    const bool off = value.is_null() || (value.is_boolean() && !value.get<bool>());
    if (off || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    std::string known;
    for (std::string_view each : keys) known += (known.empty() ? "" : ", ") + std::string(each);
    fail("'{}' is not supported; supported are {}", key, known);
  }
}

void JsonField::fail_type(std::string_view wanted) const {
  std::string found = value_->dump(-1, ' ', false, json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  fail("found {} ({}), wanted {}", value_->type_name(), found, wanted);
}

}  // namespace fettle
