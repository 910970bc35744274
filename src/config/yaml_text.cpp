#include "config/yaml_text.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "config/keys.h"

namespace fettle {
namespace {

constexpr const char* kSecondDocument = "a second document begins here; keep one document";

// Records the position at which the last document begins.
class DocumentStart : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  const YAML::Mark& mark() const { return mark_; }

 private:
  YAML::Mark mark_;
};

std::string read_text_file(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw UserError("{}: found a folder, wanted a recipe (a yaml file)", file.string());
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UserError("{}: cannot read the recipe: {}", file.string(), std::strerror(errno));
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Returns at most `most` bytes of the text, without a part of a character at the end.
std::string_view beginning(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

// Returns the beginning of the line of the error for a message, with a hint for errors of yaml-cpp that a wrong
// indentation causes. Returns only the hint for a blank line and for a line that may have a secret.
std::string line_for_message(const std::string& text, const YAML::Exception& broken) {
  constexpr size_t kMostShown = 60;
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i <= broken.mark.line; ++i)
    if (!std::getline(lines, line)) line.clear();
  line = trimmed(line);
  const Key* key = find_key(trimmed(line.substr(0, line.find(':'))));
  std::string out;
  if (!line.empty() && (key == nullptr || !key->secret))
    out = fmt::format(", in `{}{}`", beginning(line, kMostShown), line.size() > kMostShown ? "..." : "");
  static constexpr const char* kIndented[] = {YAML::ErrorMsg::BLOCK_ENTRY, YAML::ErrorMsg::MAP_KEY,
                                              YAML::ErrorMsg::MAP_VALUE, YAML::ErrorMsg::END_OF_MAP,
                                              YAML::ErrorMsg::END_OF_SEQ};
  if (std::ranges::find(kIndented, broken.msg) != std::end(kIndented)) out += "; check its indentation";
  if (broken.msg == YAML::ErrorMsg::MAP_VALUE) out += ", and put a value that has `: ` in quotes";
  return out;
}

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start))
    throw YAML::ParserException(start.mark(), kSecondDocument);
  return YAML::Load(text);
}

YAML::Node read_yaml(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  try {
    return parse_yaml(text);
  } catch (const YAML::Exception& broken) {
    throw UserError("{}:{}: not valid yaml: {}{}", file.string(), broken.mark.line + 1, broken.msg,
                    broken.msg == kSecondDocument ? "" : line_for_message(text, broken));
  }
}

}  // namespace fettle
