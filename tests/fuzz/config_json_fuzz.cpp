// Reads any text as a model's config.json. A family reads the text and lists its parameters, or the text is refused
// with UserError.
#include "base/files/json_file.h"
#include "fuzz/fuzzed.h"
#include "models/model.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  const std::filesystem::path file = folder / "config.json";
  return take_input(data, size, file, [&] { make_model(read_json_file(file), file.string()); });
}
