// Reads any bytes as a .safetensors file. Its tensors are read, or the file is refused with UserError. Every tensor
// must lie in the file. Unless the input begins with an 'x', a header length is put in front of it: the number of bytes
// before the first line end.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  std::string file(reinterpret_cast<const char*>(data), size);
  if (!file.starts_with('x')) {
    uint64_t header = std::min(file.find('\n'), file.size());
    std::string length(8, '\0');
    for (char& byte : length) byte = static_cast<char>(header), header >>= 8;
    file = length + file;
  }
  write_text(folder / "model.safetensors", file);
  try {
    const SafetensorsFile opened = SafetensorsFile::open(folder / "model.safetensors");
    for (const TensorEntry& entry : opened.entries()) {
      if (entry.offset < 0 || entry.bytes < 0 || entry.offset + entry.bytes > static_cast<int64_t>(file.size()))
        abort();
      opened.read(entry);
    }
  } catch (const UserError&) {
  }
  return 0;
}
