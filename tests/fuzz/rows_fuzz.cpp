// Reads any bytes as a data file. Rows are read, their format is detected and they are rendered, or they are refused
// with UserError or BadRow. The first byte chooses the kind of file.
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "data/chat/chat.h"
#include "data/formats.h"
#include "data/message_lists.h"
#include "data/preferences.h"
#include "data/read/rows.h"
#include "data_fixtures.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  static const Tokenizer tokenizer = TestTokenizer{.special = {"<s>", "</s>", "<|im_end|>"}}.open();
  static const ChatTemplate chat("chatml", tokenizer);
  static const char* const kEnds[] = {".json", ".jsonl", ".csv", ".tsv", ".txt"};
  if (size == 0) return 0;
  const auto file = folder.path() / ("rows" + std::string(kEnds[data[0] % std::size(kEnds)]));
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  auto take = [](Row row) {
    row.parse();
    if (!row.bad.empty()) return true;
    for (const char* formatting : {"", "alpaca", "sharegpt", "openai"}) {
      for (const auto read : {read_sample, read_pair, read_rated}) {
        try {
          DataSource source;
          source.formatting = formatting;
          nlohmann::ordered_json value = row.value;
          parse_message_lists(value, source, false);
          const Sample sample = read(value, source);
          const auto& [talk, tools, variables] = sample.conversation;
          for (const auto* messages : {&talk, &sample.rejected})
            if (!messages->empty()) chat.render({*messages, tools, variables});
          if (sample.kind == Sample::Kind::kText) tokenizer.encode(sample.text, true);
        } catch (const BadRow&) {
        } catch (const UserError&) {
        }
      }
    }
    return true;
  };
  try {
    read_rows(file, take);
  } catch (const UserError&) {
  }
  return 0;
}
