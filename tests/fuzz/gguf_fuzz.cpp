// Reads any bytes as a GGUF file. Its tensors are read, its config and tokenizer are written, and the tokenizer is
// opened; or the file is refused with UserError. Every tensor must lie inside the file.
#include <algorithm>
#include <cstdlib>

#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/tokenizer_files.h"
#include "fuzzed.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

using namespace fettle;

namespace {

void read_tensors(const std::filesystem::path& path, int64_t size) {
  for (const TensorFile& file : open_gguf(path))
    for (const TensorEntry& entry : file.entries()) {
      if (entry.offset < 0 || entry.bytes < 0 || entry.offset + entry.bytes > size) abort();
      HostArray values(entry.shape.with_dtype(DType::kF32));
      file.read_slice(entry, Box::whole(entry.shape.dims), DType::kF32, values.data());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  const std::filesystem::path path = folder / "model.gguf";
  take_input(data, size, path, [&] { read_tensors(path, static_cast<int64_t>(size)); });
  return take_input(data, size, path, [&] {
    const auto bytes = std::as_bytes(std::span(data, size));
    const GgufHeader header = read_gguf_header(bytes, "model.gguf");
    const GgufFields fields(header, {bytes}, "model.gguf");
    gguf_config(gguf_family_of(fields), fields).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    for (const char* name : {"tokenizer.json", "tokenizer.model"}) std::filesystem::remove(folder / name);
    write_gguf_tokenizer(fields, folder.path());
    Tokenizer::open(folder.path()).encode("the thing is <s> a 12", true);
  });
}
