#include "config/taught_labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "config/keys.h"

namespace fettle {
namespace {

using nlohmann::json;

constexpr int64_t kTransformersDefault = 2;

bool is_classifier(const json& config) {
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array()) return false;
  return std::ranges::any_of(*found, [](const json& name) {
    return name.is_string() && name.get_ref<const std::string&>().ends_with("ForSequenceClassification");
  });
}

std::vector<std::string> names_by_count(const json& config, const std::string& file) {
  const auto number = config.find("num_labels");
  const bool given = number != config.end() && number->is_number_integer();
  const int64_t count = given ? number->get<int64_t>() : kTransformersDefault;
  if (count < 1 || count > kMostLabels) throw UserError("{}: num_labels is {}", file, count);
  return default_labels(count);
}

std::vector<std::string> names_of(const json& id2label, const std::string& file) {
  if (!id2label.is_object() || id2label.empty() || id2label.size() > static_cast<size_t>(kMostLabels))
    throw UserError("{}: id2label must be an object of numbers and names", file);
  std::vector<std::string> names(id2label.size());
  std::vector<bool> named(names.size());
  for (const auto& [number, name] : id2label.items()) {
    size_t k = names.size();
    std::from_chars(number.data(), number.data() + number.size(), k);
    if (k >= names.size() || named[k] || !name.is_string())
      throw UserError("{}: id2label must name the numbers 0 to {}; it has \"{}\": {}", file, names.size() - 1, number,
                      name.dump());
    named[k] = true;
    names[k] = name.get<std::string>();
  }
  return names;
}

}  // namespace

std::string default_label(int64_t number) {
  return fmt::format("LABEL_{}", number);
}

std::vector<std::string> default_labels(int64_t count) {
  std::vector<std::string> names;
  for (int64_t k = 0; k < count; ++k) names.push_back(default_label(k));
  return names;
}

TaughtLabels read_taught_labels(const json& config, const std::string& file) {
  TaughtLabels out{.names = {}, .problem_type = "", .file = file};
  if (!is_classifier(config)) return out;
  if (const auto type = config.find("problem_type"); type != config.end() && type->is_string()) {
    out.problem_type = type->get<std::string>();
    const auto& problems = find_key("problem_type")->values;
    if (std::ranges::find(problems, out.problem_type) == problems.end())
      throw UserError("{}: problem_type is '{}'; it is {}", file, out.problem_type, fmt::join(problems, ", or "));
  }
  const auto names = config.find("id2label");
  const bool named = names != config.end() && !names->is_null();
  out.names = named ? names_of(*names, file) : names_by_count(config, file);
  return out;
}

TaughtLabels taught_labels(const Recipe& recipe, const json& config, const std::string& file) {
  for (auto adapter = recipe.adapter_name_or_path.rbegin(); adapter != recipe.adapter_name_or_path.rend(); ++adapter) {
    const std::filesystem::path beside = std::filesystem::path(*adapter) / kAdapterLabels;
    std::ifstream in(beside);
    if (!in) continue;
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto own = parse_json_or_discard<json>(text);
    if (!own.is_object()) throw UserError("{}: this is no JSON object", beside.string());
    if (TaughtLabels labels = read_taught_labels(own, beside.string()); labels.count() > 0) return labels;
  }
  return read_taught_labels(config, file);
}

void check_taught(const Recipe& recipe, const TaughtLabels& taught) {
  if (taught.count() == 0 || recipe.train_from_scratch) return;
  const std::vector<std::string>& wanted = recipe.id2label;
  const char* const key = wanted.empty() ? "num_labels" : "id2label";
  const int64_t count =
      wanted.empty() ? recipe.num_labels.value_or(taught.count()) : static_cast<int64_t>(wanted.size());
  if (count != taught.count())
    throw UserError(
        "{}: {} has {} labels, but {} is of a classifier of {}, whose head would be lost; leave the key out, or take "
        "the model that it was made of",
        recipe.where(key), key, count, taught.file, taught.count());
  if (!wanted.empty() && wanted != taught.names && std::ranges::is_permutation(wanted, taught.names))
    throw UserError("{}: id2label is [{}], but {} has them as [{}], in the order of its outputs; leave id2label out",
                    recipe.where(key), fmt::join(wanted, ", "), taught.file, fmt::join(taught.names, ", "));
}

}  // namespace fettle
