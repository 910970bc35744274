// Defines make_job: from a recipe and a model's config.json to the job, with what makes no sense refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "step/job.h"

namespace fettle {

// Labels of the classifier that a recipe asks for: of stage cls its num_labels, of stage rm 1 score, else 0 (a language
// model). Throws UserError when stage cls has no num_labels.
int64_t num_labels_of(const Recipe& recipe);

// Training makes a new adapter when there is none to continue; inference takes the bare base then, all of it frozen.
enum class Purpose { kTraining, kInference };

// `config` is the model's config.json, `file` its name for messages. The adapter's options come from the recipe, or
// from the adapter that is continued from. Throws UserError on combinations that make no sense.
Job make_job(const Recipe& recipe, const nlohmann::json& config, const std::string& file, int64_t devices,
             Purpose purpose = Purpose::kTraining);

// Gives the job the 8-bit floats of the hardware it runs on, when the recipe asks for them. `capability` is Machine's
// or Devices'; `title` its name for messages. Throws UserError when it has none.
void use_float8_of(Job& job, const std::string& capability, const std::string& title);

}  // namespace fettle
