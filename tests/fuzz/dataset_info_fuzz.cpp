// Reads any text as dataset_info.json. Its data set `rows` is found, or the file is refused with UserError.
#include "data/read/dataset_info.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  write_text(folder / "rows.jsonl", "{\"text\": \"a\"}\n");
  return take_input(data, size, folder / "dataset_info.json", [&] { find_source("rows", folder.path()); });
}
