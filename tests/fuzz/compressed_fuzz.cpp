// Takes any bytes as a gzip or Zstandard file (only if they begin like one): its lines are read, up to a megabyte, or
// it is refused with UserError.
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
