// Reads any text as tokenizer.json. The tokenizer opens, encodes and decodes, or the file is refused with UserError.
#include "base/error.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const std::string_view kTexts[] = {"", " Hello  wörld\n", "don't 12345 <s>ab\xE2\x96\x81 ab</s>",
                                            "e\u0301 ½ 中文 🎉\x01\xFF"};
  write_text(folder / "tokenizer.json", {reinterpret_cast<const char*>(data), size});
  try {
    const Tokenizer tokenizer = Tokenizer::open(folder.path());
    for (std::string_view text : kTexts) {
      const std::vector<int32_t> ids = tokenizer.encode(text, true);
      tokenizer.decode(ids, false);
      tokenizer.decode(ids, true);
    }
    const std::vector<int32_t> some = {0, 1, 2, 3, 5, 8, 13, 300, -1, INT32_MAX};
    tokenizer.decode(some, false);
  } catch (const UserError&) {
  }
  return 0;
}
