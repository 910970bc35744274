#include "base/files/json_file.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/json_text.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

// Returns `text` with each word Infinity, -Infinity or NaN outside of strings replaced by an object such as
// {"__float__": "Infinity"}. Python writes these words into JSON, so older configs have them, for example those of
// Nemotron-H. Transformers 5 writes the object instead.
std::string with_marked_floats(const std::string& text) {
  bool quoted = false;
  std::string out;
  size_t copied = 0;  // number of bytes of `text` that were copied or replaced so far
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!std::string_view(text).substr(i).starts_with(word)) continue;
        out.append(text, copied, i - copied);
        out += fmt::format("{{\"__float__\": \"{}\"}}", word);
        i += word.size() - 1;
        copied = i + 1;
        break;
      }
    }
  }
  return out.append(text, copied);
}

}  // namespace

template <class Json>
Json read_json_file(const fs::path& path) {
  const std::string text = with_marked_floats(read_file(path));
  try {
    return parse_json<Json>(text);
  } catch (const UserError& error) {
    throw UserError("{}: is not valid JSON: {}; correct the file or fetch it again", path.string(), error.what());
  }
}

template nlohmann::json read_json_file(const fs::path&);
template nlohmann::ordered_json read_json_file(const fs::path&);

// Bytes that are not UTF-8, as paths may have, are written as U+FFFD.
void write_json_file(const fs::path& path, const nlohmann::json& value, int indent) {
  write_file(path, value.dump(indent, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace fettle
