// Defines TaughtLabels: the labels that a trained classifier has, as its own files tell them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/classes/label_set.h"

namespace fettle {

// The file beside an adapter that holds its labels, for which PEFT's files have no place. Transformers would take the
// folder for a model if the file were called config.json.
inline const char* const kAdapterLabels = "classifier.json";

struct TaughtLabels {
  std::vector<std::string> id2label;  // empty: the model is not a classifier
  std::optional<Problem> problem;     // none: the file has no problem_type
  std::string file;                   // where the labels were read

  int64_t count() const { return static_cast<int64_t>(id2label.size()); }
};

// A larger num_labels is taken for a mistake.
inline constexpr int64_t kMostLabels = 100'000;

// The labels in a config.json or classifier.json that messages call `file`: id2label, else LABEL_0, ... by num_labels,
// else Transformers' default of 2. Throws UserError when one of these keys is malformed.
TaughtLabels read_taught_labels(const nlohmann::json& config, const std::string& file);

// The labels of the last of `adapters` (folders) that has a classifier.json, else those of the model's config.json.
TaughtLabels taught_labels(const std::vector<std::string>& adapters, const nlohmann::json& config,
                           const std::string& file);

// The recipe's keys about labels. Each may be absent.
struct LabelRequest {
  std::optional<Problem> problem;
  std::optional<int64_t> count;       // num_labels
  std::vector<std::string> id2label;  // empty: left open
  std::string count_at, names_at;     // where the recipe sets num_labels and id2label, for messages
};

// Throws UserError when the labels asked for do not match the taught ones: with another count the head would be lost;
// the same names in another order would give outputs a wrong meaning. New names are allowed.
void check_taught(const LabelRequest& asked, const TaughtLabels& taught);

}  // namespace fettle
