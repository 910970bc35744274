// Reads any text as adapter_config.json. The config is read, the rank and scale of a module are looked up and the
// config is turned into JSON again; or the text is refused with UserError.
#include "checkpoint/peft/adapter_files.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  return take_input(data, size, folder / "adapter_config.json", [&] {
    const AdapterConfig config = read_adapter_config(folder.path(), {true, true, true});
    for (const char* path : {"model.layers.0.self_attn.q_proj", "", "lm_head"}) {
      config.rank(path);
      config.scale(path);
    }
    to_json(config);
  });
}
