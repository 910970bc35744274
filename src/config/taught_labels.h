// Defines TaughtLabels: what a classifier's own files say of its labels.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace fettle {

// Beside an adapter: what of its labels PEFT's files have no place for. A config.json there would make Transformers
// take the folder for a model.
inline const char* const kAdapterLabels = "classifier.json";

struct TaughtLabels {
  std::vector<std::string> names;  // in the order of the outputs; none: it is no classifier
  std::string problem_type;        // "": not said
  std::string file;                // that says so

  int64_t count() const { return static_cast<int64_t>(names.size()); }
};

// More are taken for a mistake.
inline constexpr int64_t kMostLabels = 100'000;

// LABEL_0, LABEL_1, ..., as Transformers calls labels without names.
std::string default_label(int64_t number);
std::vector<std::string> default_labels(int64_t count);

// Of a config.json or classifier.json, called `file`: by id2label, else LABEL_0, ... of num_labels, else
// Transformers' 2. Throws UserError for what is none of these.
TaughtLabels read_taught_labels(const nlohmann::json& config, const std::string& file);

// What the last adapter that says so, or else the model of this config.json, was taught.
TaughtLabels taught_labels(const Recipe& recipe, const nlohmann::json& config, const std::string& file);

// Throws UserError when the recipe's labels are not the taught ones: another number of them would lose the head, the
// same names in another order would say one label and mean another. New names for all or some are taken.
void check_taught(const Recipe& recipe, const TaughtLabels& taught);

}  // namespace fettle
