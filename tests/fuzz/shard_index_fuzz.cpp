// Reads any text as model.safetensors.index.json, next to a shard with the tensor w. The folder opens and its tensors
// are read, or it is refused with UserError.
#include "checkpoint/repository.h"
#include "fuzz/fuzzed.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const bool written = [] {
    const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size());
    write_text(folder / "a.safetensors", length + header + "1234");
    write_text(folder / "config.json", "{}");
    return true;
  }();
  return take_input(data, size, folder / "model.safetensors.index.json", [&] {
    const ModelRepository opened = ModelRepository::open(folder.path());
    for (const std::string& name : opened.names()) {
      const StoredTensor tensor = opened.find(name);
      tensor.file->read(*tensor.entry);
    }
    (void)written;
  });
}
