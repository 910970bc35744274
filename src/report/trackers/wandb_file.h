// Defines the file of a W&B offline run: records in blocks of 32 KiB.
//
// Source: wandb's datastore.py (LevelDB's log format with zlib's CRC-32).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/trackers/append_file.h"

namespace fettle {

class WandbFile {
 public:
  // Makes the file and its folders. Throws like AppendFile.
  explicit WandbFile(const std::filesystem::path& file);

  // Appends a record; a failed call appends nothing. A record that crosses the end of a block is split into parts.
  // Throws UserError or DoesNotFit.
  void append(std::string_view record);

 private:
  void put(std::string_view bytes);

  AppendFile file_;
  size_t at_ = 0;
};

struct WandbRecords {
  std::vector<std::string> records;  // up to the first damaged or incomplete record
  bool whole = false;                // the file has no damaged or incomplete record
};
// Reads a file. If it cannot be read, there are no records, and `whole` is false.
WandbRecords read_wandb_file(const std::filesystem::path& file);

}  // namespace fettle
