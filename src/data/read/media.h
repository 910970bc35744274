// Defines refuse_media, which refuses rows with images, videos or sound. The columns for them have the names that
// LLaMA-Factory, ms-swift, TRL and Axolotl use, in upper or lower case.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/read/dataset_info.h"

namespace fettle {

// Returns whether the column is one for media, and the row has none in it.
bool is_empty_media(const std::string& column, const nlohmann::ordered_json& value);
// Returns whether the row has media that its text needs. If the entry names the columns with text, these are the media
// for which the text has a mark such as <image>; otherwise they are all media.
bool needs_media(const nlohmann::ordered_json& row, const DataSource& source);
// Throws BadRow if needs_media().
void refuse_media(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
