// Defines refuse_media, which refuses rows with images, videos or sound.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/read/dataset_info.h"

namespace fettle {

// Throws BadRow if a column for images, videos or sound has a value. These columns have the names that LLaMA-Factory,
// ms-swift, TRL and Axolotl use for them. A column that the entry names is read as text.
void refuse_media(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
