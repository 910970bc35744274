#include "inspect/render_command.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "data/chat/templates/thought_fields.h"
#include "inspect/text_file.h"
#include "jinja/template.h"
#include "run/model_folders.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream in = open_text_file(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Changes the messages as Transformers does before it renders them: leaves out fields that are null, and adds the other
// names of a thought.
void prepare_messages(nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return;
  for (nlohmann::ordered_json& message : messages) {
    if (!message.is_object()) continue;
    for (auto field = message.begin(); field != message.end();)
      field = field->is_null() ? message.erase(field) : std::next(field);
    alias_thought(message);
  }
}

// Renders templates of a Jinja file or of a model folder. Templates of a model folder get the model's special tokens,
// as in training and in Transformers. In a folder whose tokenizer is missing or cannot be read, only the tokens that
// its config files name.
class Renderer {
 public:
  explicit Renderer(const RenderOptions& options) : options_(options) {
    const bool remote = !std::filesystem::exists(options.source) && options.source.find('/') != std::string::npos;
    const bool model = remote || std::filesystem::is_directory(options.source) || options.source.ends_with(".gguf");
    const std::string source = model ? local_tokenizer(options.source) : options.source;
    if (std::filesystem::is_directory(source)) {
      const TokenizerConfig config = TokenizerConfig::read(source);
      templates_ = config.chat_templates;
      tokens_ = config.named_tokens();
      try {
        if (Tokenizer::is_in(source)) tokens_ = Tokenizer::open(source).named_tokens();
      } catch (const UserError& error) {
        warn("{}; the templates get the special tokens that tokenizer_config.json names", error.what());
      }
    } else {
      const std::string text = read_text(options.source);
      if (!is_valid_utf8(text)) throw UserError("{}: not valid UTF-8; wanted a Jinja template", options.source);
      templates_["default"] = text;
    }
  }

  std::string render(std::string_view text, const std::string& where) {
    nlohmann::ordered_json context;
    try {
      context = parse_json<nlohmann::ordered_json>(text);
    } catch (const UserError& error) {
      throw UserError("{}: is not valid JSON: {}{}", where, error.what(),
                      options_.jsonl ? "" : "; for a file with one object per line, add --jsonl");
    }
    if (!context.is_object() || !context.contains("messages"))
      throw UserError("{}: wanted an object with \"messages\"", where);
    for (const auto& [key, token] : tokens_)
      if (!context.contains(key)) context[key] = token;
    prepare_messages(context["messages"]);
    for (const char* key : {"tools", "documents"})
      if (!context.contains(key)) context[key] = nullptr;
    if (!context.contains("add_generation_prompt")) context["add_generation_prompt"] = false;
    return choose(!context["tools"].is_null()).render(context).text;
  }

 private:
  const jinja::Template& choose(bool for_tools) {
    std::string name = for_tools && templates_.contains("tool_use") ? "tool_use" : "default";
    if (!options_.name.empty()) name = options_.name;
    const auto found = templates_.find(name);
    if (found == templates_.end()) {
      std::string names;
      for (const auto& [known, unused] : templates_) names += (names.empty() ? "" : ", ") + known;
      throw UserError("{}: it has no chat template '{}'; available: {}", options_.source, name,
                      names.empty() ? "none; give a Jinja file" : names);
    }
    const std::string shown = templates_.size() == 1 ? options_.source : fmt::format("{} ({})", options_.source, name);
    return parsed_.try_emplace(name, found->second, shown).first->second;
  }

  const RenderOptions& options_;
  std::map<std::string, std::string> templates_;  // by name
  std::map<std::string, std::string> tokens_;     // special tokens by key
  std::map<std::string, jinja::Template> parsed_;
};

}  // namespace

int run_render(const RenderOptions& options, std::ostream& out) {
  Renderer renderer(options);
  if (!options.jsonl) {
    out << renderer.render(read_text(options.messages), options.messages);
    return 0;
  }
  std::istringstream lines(read_text(options.messages));
  bool failed = false;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    try {
      const std::string text = renderer.render(line, fmt::format("{}:{}", options.messages, ++number));
      out << nlohmann::json(text).dump() << '\n';
    } catch (const UserError& error) {
      failed = true;
      out << nlohmann::json({{"error", error.what()}}).dump() << '\n';
    }
  }
  return static_cast<int>(failed ? ExitCode::kUser : ExitCode::kOk);
}

}  // namespace fettle
