// Defines TaughtLabels: the labels of a trained classifier, read from its files.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/key_places.h"
#include "data/classes/label_set.h"

namespace fettle {

// The file with the labels in an adapter's folder; PEFT's own files cannot store labels. The file is not called
// config.json, because Transformers would load an adapter's folder with a config.json as a model.
inline const char* const kAdapterLabels = "classifier.json";

struct TaughtLabels {
  std::vector<std::string> id2label;  // empty: the model is not a classifier
  std::optional<Problem> problem;     // none: the file has no problem_type
  std::string file;                   // the file that was read, for messages

  int64_t count() const { return static_cast<int64_t>(id2label.size()); }
};

// The largest num_labels. A larger one is treated as a mistake.
inline constexpr int64_t kMostLabels = 100'000;

// Returns the labels in a config.json or classifier.json; no labels if the file does not belong to a classifier. The
// names are those of id2label. Without id2label, there are num_labels labels (by default 2, as in Transformers) with
// the names LABEL_0, LABEL_1, ... `file` is the name of the file in messages. Throws UserError when a key is malformed.
TaughtLabels read_taught_labels(const nlohmann::json& config, const std::string& file);

// Returns the labels in the classifier.json of the last adapter folder in `adapters` that has this file. If no adapter
// has it, returns the labels in `config`, the model's config.json, whose path is `file`.
TaughtLabels taught_labels(const std::vector<std::string>& adapters, const nlohmann::json& config,
                           const std::string& file);

// The recipe's keys about labels. Each may be absent.
struct LabelRequest {
  std::optional<Problem> problem;
  std::optional<int64_t> count;       // the value of num_labels
  std::vector<std::string> id2label;  // empty: the recipe does not give names
  KeyPlaces places = {};              // where the recipe sets these keys, for messages
};

// Throws UserError
// - when the recipe asks for another number of labels than the classifier has: the trained head could not be used;
// - when the recipe asks for the same names in another order: the outputs would get wrong names.
// New names are allowed.
void check_taught(const LabelRequest& asked, const TaughtLabels& taught);

}  // namespace fettle
