// Reads any bytes that begin with PAR1 as a Parquet file, and other bytes as an Arrow file. The rows are read, or the
// file is refused with UserError.
#include <cstdlib>
#include <string_view>

#include "base/files/own_program.h"
#include "data/read/rows.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const bool module = std::filesystem::exists(module_file(kColumnsModule));
  if (!module) std::abort();  // without the module all inputs would be refused
  const bool parquet = std::string_view(reinterpret_cast<const char*>(data), size).starts_with("PAR1");
  const std::filesystem::path file = folder / (parquet ? "rows.parquet" : "rows.arrow");
  return take_input(data, size, file, [&] {
    read_rows(file, [](Row row) {
      row.parse();
      return true;
    });
  });
}
