#include "paths.h"

namespace fettle {

std::filesystem::path source_folder() {
  return FETTLE_SOURCE_DIR;
}
std::filesystem::path program_file() {
  return FETTLE_BINARY;
}

}  // namespace fettle
