#include "config/foreign/foreign_recipe.h"

#include <algorithm>

#include "config/foreign/nodes.h"
#include "config/value.h"

namespace fettle {
namespace {

YAML::Node value_or_undefined(const YAML::Node& node) {
  return node.IsDefined() && !node.IsNull() ? node : YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace

ForeignRecipe::ForeignRecipe(const YAML::Node& root, const YAML::Node& all, std::string file, std::string tool)
    : root_(root), all_(all), file_(std::move(file)), out_{.tool = std::move(tool)} {}

YAML::Node ForeignRecipe::in_file(const char* key) const {
  return value_or_undefined(root_[key]);
}

YAML::Node ForeignRecipe::given(const char* key) const {
  return value_or_undefined(all_[key]);
}

bool ForeignRecipe::has_any(std::initializer_list<const char*> keys) const {
  return std::ranges::any_of(keys, [&](const char* key) { return has(key); });
}

std::string ForeignRecipe::text(const char* key) const {
  return text_of(all_[key]);
}

bool ForeignRecipe::is_on(const char* key) const {
  return fettle::is_on(all_[key]);
}

bool ForeignRecipe::is_word(const char* key) const {
  return all_[key].IsDefined() && !(root_[key].IsDefined() && all_[key].is(root_[key]));
}

YAML::Node ForeignRecipe::current(std::string_view key, const char* own) const {
  const YAML::Node given = override_of(root_, all_, key);
  return given.IsDefined() ? given : root_[own];
}

std::string ForeignRecipe::place(const char* key) const {
  return is_word(key) ? "the command line" : place_of(file_, root_[key]);
}

void ForeignRecipe::usual(const char* key, const std::string& value) {
  out_.usual.emplace_back(key, YAML::Node(value));
}

void ForeignRecipe::mean_from(const char* from, const char* key, const YAML::Node& value) {
  (is_word(from) ? out_.meant_words : out_.meant).emplace_back(key, value);
}

void ForeignRecipe::handle(std::initializer_list<const char*> keys) {
  out_.handled.insert(keys.begin(), keys.end());
  out_.handled_words.insert(keys.begin(), keys.end());
}

}  // namespace fettle
