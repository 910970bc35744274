// Reads any text as the manifest of a checkpoint's state, next to a shard file of 64 bytes. Every tensor is read, or
// the manifest is refused with UserError. If the text is a JSON object, its checksum is corrected first.
#include "base/files/json_file.h"
#include "checkpoint/saved/state.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  const std::filesystem::path file = folder / "manifest.json";
  write_text(folder / "shards-00001.bin", std::string(64, '\0'));
  return take_input(data, size, file, [&] {
    nlohmann::json manifest = read_json_file(file);
    if (manifest.is_object()) {
      manifest.erase("checksum");
      const std::string text = manifest.dump();
      manifest["checksum"] = xxh3_128(std::as_bytes(std::span(text)));
      write_text(file, manifest.dump());
    }
    StateReader state(folder.path());
    for (const std::string& name : state.names())
      if (state.shape(name).elements() < 1'000'000) state.read(name);
  });
}
