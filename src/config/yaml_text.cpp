#include "config/yaml_text.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

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

// Returns the key at the beginning of the error's line for a message, with a hint for errors of yaml-cpp that a wrong
// indentation causes. Never returns a value, which may be a secret. Returns only the hint for a line without a key.
std::string line_for_message(const std::string& text, const YAML::Exception& broken) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i <= broken.mark.line; ++i)
    if (!std::getline(lines, line)) line.clear();
  const std::string key(trimmed(line.substr(0, std::min(line.find(':'), line.size()))));
  const bool has_key = line.find(':') != std::string::npos && !key.empty() &&
                       std::ranges::all_of(key, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  std::string out = has_key ? fmt::format(", at the key {}", key) : "";
  static const char* const kIndented[] = {YAML::ErrorMsg::BLOCK_ENTRY, YAML::ErrorMsg::MAP_KEY,
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
