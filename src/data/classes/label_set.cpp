#include "data/classes/label_set.h"

#include <fmt/ranges.h>

#include <set>

#include "base/error.h"

namespace fettle {
namespace {

constexpr std::pair<Problem, std::string_view> kProblems[] = {{Problem::kSingleLabel, "single_label_classification"},
                                                              {Problem::kMultiLabel, "multi_label_classification"},
                                                              {Problem::kRegression, "regression"}};

}  // namespace

std::string_view name_of(Problem problem) {
  for (const auto& [one, name] : kProblems)
    if (one == problem) return name;
  throw InternalError("Problem {} has no name", static_cast<int>(problem));
}

std::optional<Problem> problem_named(std::string_view name) {
  for (const auto& [problem, one] : kProblems)
    if (one == name) return problem;
  return std::nullopt;
}

std::string LabelSet::describe(const std::vector<float>& classes) const {
  if (problem == Problem::kSingleLabel) return name(static_cast<int64_t>(classes[0]));
  std::vector<std::string> words;
  for (size_t k = 0; k < classes.size(); ++k) {
    if (problem == Problem::kRegression) words.push_back(fmt::format("{}", classes[k]));
    if (problem == Problem::kMultiLabel && classes[k] != 0) words.push_back(id2label[k]);
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

std::string default_label(int64_t number) {
  return fmt::format("LABEL_{}", number);
}

std::vector<std::string> default_labels(int64_t count) {
  std::vector<std::string> names;
  for (int64_t k = 0; k < count; ++k) names.push_back(default_label(k));
  return names;
}

void check_unique(const std::vector<std::string>& id2label, const std::string& where) {
  std::set<std::string> seen;
  for (const std::string& name : id2label)
    if (!seen.insert(name).second)
      throw UserError("{}: id2label has '{}' twice; give each label its own name", where, name);
}

}  // namespace fettle
