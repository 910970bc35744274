// Defines reference_model, which returns the folder of a small model that tests/reference recorded.
#pragma once

#include <filesystem>
#include <string>

#include "paths.h"

namespace fettle {

inline std::filesystem::path reference_model(const std::string& name) {
  return source_folder() / "tests/reference/models" / name;
}

}  // namespace fettle
