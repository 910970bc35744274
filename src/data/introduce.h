// Defines introduce, which writes the model's name and author into a row that teaches the model who it is.
#pragma once

#include <nlohmann/json.hpp>

#include "data/data_spec.h"

namespace fettle {

// Replaces {{NAME}} and {{AUTHOR}} in all texts of the row (DataSpec::self_name and self_author).
void introduce(const DataSpec& spec, nlohmann::ordered_json& row);

}  // namespace fettle
