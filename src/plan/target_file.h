// Defines read_target: an accelerator that a yaml (or json) file describes. The keys are in docs/targets.md.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/vendors/targets.h"

namespace fettle {

// What is not given is that of the target that `like` names, or is missed with an error. Throws UserError with
// file:line on unknown keys, values out of range, and what is missing.
Target read_target(const std::filesystem::path& file);

// A file when the words hold a '/' or end in .yaml, .yml or .json, else a known name. Throws UserError.
Target find_target(const std::string& name_or_file);

}  // namespace fettle
