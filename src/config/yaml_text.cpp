#include "config/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace fettle {
namespace {

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

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start))
    throw YAML::ParserException(start.mark(), "a second document begins here; keep one document");
  return YAML::Load(text);
}

YAML::Node read_yaml(const std::filesystem::path& file) {
  try {
    return parse_yaml(read_text_file(file));
  } catch (const YAML::Exception& broken) {
    throw UserError("{}:{}: not valid yaml: {}", file.string(), broken.mark.line + 1, broken.msg);
  }
}

}  // namespace fettle
