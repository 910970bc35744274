// Defines set_card_metadata, which copies the licence in a model's README.md to keys of a GGUF file.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Sets general.license, general.license.name and general.license.link from the header of README.md in `folder`. Sets
// nothing when there is no README.md, or when it does not name a licence.
void set_card_metadata(const std::filesystem::path& folder, GgufMetadata& metadata);

// Returns the text of the LICENSE file in `folder`; "" when there is none.
std::string license_text(const std::filesystem::path& folder);

}  // namespace fettle
