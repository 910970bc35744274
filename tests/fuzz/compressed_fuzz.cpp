// Reads any bytes as a data file. If they begin like a gzip or Zstandard file, they are decompressed. Up to a megabyte
// of lines is read, or the file is refused with UserError.
#include "data/read/byte_stream.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  return take_input(data, size, folder / "rows.jsonl", [&] {
    ByteStream bytes(folder / "rows.jsonl");
    size_t read = 0;
    for (std::string line; read < 1'000'000 && bytes.line(line, 1000);) read += line.size() + 1;
  });
}
