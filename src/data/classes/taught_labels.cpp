#include "data/classes/taught_labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

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
  if (count < 1 || count > kMostLabels)
    throw UserError("{}: num_labels is {}; it must be from 1 to {}", file, count, kMostLabels);
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

TaughtLabels read_taught_labels(const json& config, const std::string& file) {
  TaughtLabels out{.id2label = {}, .problem = {}, .file = file};
  if (!is_classifier(config)) return out;
  if (const auto type = config.find("problem_type"); type != config.end() && type->is_string()) {
    const auto name = type->get<std::string>();
    out.problem = problem_named(name);
    if (!out.problem)
      throw UserError("{}: problem_type is '{}'; it must be {}, {} or {}", file, name, name_of(Problem::kSingleLabel),
                      name_of(Problem::kMultiLabel), name_of(Problem::kRegression));
  }
  const auto names = config.find("id2label");
  const bool named = names != config.end() && !names->is_null();
  out.id2label = named ? names_of(*names, file) : names_by_count(config, file);
  return out;
}

TaughtLabels taught_labels(const std::vector<std::string>& adapters, const json& config, const std::string& file) {
  for (auto adapter = adapters.rbegin(); adapter != adapters.rend(); ++adapter) {
    const std::filesystem::path beside = std::filesystem::path(*adapter) / kAdapterLabels;
    std::ifstream in(beside);
    if (!in) continue;
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto own = parse_json_or_discard<json>(text);
    if (!own.is_object()) throw UserError("{}: is not a JSON object", beside.string());
    if (TaughtLabels labels = read_taught_labels(own, beside.string()); labels.count() > 0) return labels;
  }
  return read_taught_labels(config, file);
}

void check_taught(const LabelRequest& asked, const TaughtLabels& taught) {
  if (taught.count() == 0) return;
  const std::vector<std::string>& names = asked.id2label;
  const int64_t count = names.empty() ? asked.count.value_or(taught.count()) : static_cast<int64_t>(names.size());
  const char* key = names.empty() ? "num_labels" : "id2label";
  if (count != taught.count())
    throw UserError(
        "{}: {} asks for {} labels, but {} describes a classifier with {}. Its head does not fit. Remove the "
        "key, or start from the model that the classifier was trained from",
        asked.places.of(key), key, count, taught.file, taught.count());
  if (!names.empty() && names != taught.id2label && std::ranges::is_permutation(names, taught.id2label))
    throw UserError("{}: id2label is [{}], but in {} the order of these names is [{}]; remove id2label",
                    asked.places.of("id2label"), fmt::join(names, ", "), taught.file, fmt::join(taught.id2label, ", "));
}

}  // namespace fettle
