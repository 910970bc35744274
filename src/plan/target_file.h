// Defines read_target, which reads an accelerator from a yaml (or json) file. docs/targets.md describes the keys.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/vendors/targets.h"

namespace fettle {

// Reads the target. Missing keys are taken from the target that the key `like` names. Throws UserError with file:line
// on unknown keys, on values out of range, and on missing keys when there is no `like`.
Target read_target(const std::filesystem::path& file);

// Returns the target. Reads it from a file when the argument contains '/' or ends in .yaml, .yml or .json; otherwise
// returns the known target of that name. Throws UserError like read_target and target_named.
Target find_target(const std::string& name_or_file);

}  // namespace fettle
