#include "config/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

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

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start))
    throw YAML::ParserException(start.mark(), "a second document begins here; keep one document");
  return YAML::Load(text);
}

}  // namespace fettle
