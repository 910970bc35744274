// Defines take_input, which passes the fuzzer's input to a function that reads files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace fettle {

// Writes the input to `file` and calls `read`, which may refuse the file with UserError.
template <typename Read>
int take_input(const uint8_t* data, size_t size, const std::filesystem::path& file, Read&& read) {
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    read();
  } catch (const UserError&) {
  }
  return 0;
}

}  // namespace fettle
