#include "checkpoint/chat_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "checkpoint/model_files.h"
#include "data/chat/chat.h"
#include "data/chat/fixed_eos_token.h"
#include "data/row_readers.h"
#include "jinja/template.h"
#include "models/config.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Returns the ids at which programs end a text of the model, besides eos_token: those of generation_config.json, or
// else those of config.json.
std::vector<int32_t> known_ends(const ModelRepository& model) {
  const auto file = [&](const char* name) { return (model.folder() / name).string(); };
  if (model.generation_config()) return end_ids(*model.generation_config(), file("generation_config.json"));
  const std::vector<int32_t> ids = end_ids(model.config(), file("config.json"));
  return ids.empty() ? end_ids(text_level(model.config()), file("config.json")) : ids;
}

// Sets the end token of the result, unless the base's files have it as one. If only eos_token has it, programs that
// read generation_config.json do not stop there.
void set_end(ResultChat& chat, const ModelRepository& base, const Tokenizer& tokenizer, int64_t id) {
  const std::vector<int32_t> ends = known_ends(base);
  if (std::ranges::find(ends, id) != ends.end()) return;
  if (id != tokenizer.eos_id()) chat.end = tokenizer.token(static_cast<int32_t>(id));
  chat.end_id = id;
}

ResultChat chat_of_recipe(const ModelRepository& base, const DataSpec& data, bool generates) {
  const Tokenizer tokenizer = Tokenizer::open(base.folder());
  const ChatTemplate with(data.template_name, tokenizer, data.started, data.thinking);
  ResultChat chat;
  if (const auto end = with.reply_end(); end && generates) set_end(chat, base, tokenizer, *end);
  const std::map<std::string, std::string> own = TokenizerConfig::read(base.folder()).chat_templates;
  std::map<std::string, std::string> templates = own;
  const auto written = with.written(data.default_system);
  if (written && !written->with_tools.empty()) templates["tool_use"] = written->with_tools;
  if (written) templates["default"] = written->jinja;
  // A built-in template that was written has its eos_token as a value of its own.
  const bool own_value = written && names_built_in(data.template_name);
  if (!chat.end.empty())
    for (auto& [name, text] : templates)
      if (name != "default" || !own_value) text = with_fixed_eos_token(text, tokenizer.eos_token());
  if (templates != own) chat.templates = std::move(templates);
  return chat;
}

ResultChat chat_of_adapter(const ModelRepository& base, const std::string& adapter, bool generates,
                           const Tokenizer* tokenizer) {
  ResultChat chat{.adapter = adapter};
  const TokenizerConfig own = TokenizerConfig::read(adapter);
  if (own.chat_templates.empty()) return chat;
  const TokenizerConfig of_base = TokenizerConfig::read(base.folder());
  std::map<std::string, std::string> templates = own.chat_templates;
  templates.insert(of_base.chat_templates.begin(), of_base.chat_templates.end());
  if (templates != of_base.chat_templates) chat.templates = std::move(templates);
  if (!generates || own.eos_token.empty()) return chat;
  if (tokenizer == nullptr) {
    const Tokenizer opened = Tokenizer::open(base.folder());
    return chat_of_adapter(base, adapter, generates, &opened);
  }
  if (const auto id = tokenizer->token_id(own.eos_token)) set_end(chat, base, *tokenizer, *id);
  return chat;
}

// Applies `change` to a JSON file of the folder, if the file exists or `create` is true.
template <typename Change>
void change_json(const fs::path& file, bool create, const Change& change) {
  const bool exists = fs::exists(file);
  if (!exists && !create) return;
  Json json = exists ? read_json_file(file) : Json::object();
  if (!json.is_object()) return;
  if (change(json)) write_json_file(file, json);
}

// Returns whether a file can have this name.
bool can_name_file(const std::string& name) {
  return !name.empty() && name.size() < 100 && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

void put_templates(const std::map<std::string, std::string>& templates, const fs::path& folder) {
  const auto usual = templates.find("default");
  // Programs that do not know chat_template.jinja read the text in the other files.
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    change_json(folder / name, false, [&](Json& json) {
      if (!json.contains("chat_template")) return false;
      if (usual != templates.end() && json["chat_template"].is_string())
        json["chat_template"] = usual->second;
      else
        json.erase("chat_template");
      return true;
    });
  for (const auto& [name, text] : templates) {
    if (name == "default") {
      write_file(folder / "chat_template.jinja", text);
    } else if (can_name_file(name)) {
      std::error_code code;
      fs::create_directories(folder / kChatTemplates, code);
      if (code) throw_file_error("create", folder / kChatTemplates, code.value());
      write_file(folder / kChatTemplates / (name + ".jinja"), text);
    }
  }
}

void put_eos_token(const std::string& token, const fs::path& folder) {
  change_json(folder / "tokenizer_config.json", true, [&](Json& json) {
    json["eos_token"] = token;
    return true;
  });
  change_json(folder / "special_tokens_map.json", false, [&](Json& json) {
    if (!json.contains("eos_token")) return false;
    json["eos_token"] = token;
    return true;
  });
}

void put_end_id(const ResultChat& chat, const ModelRepository& base, const fs::path& folder) {
  Json generation = base.generation_config().value_or(Json::object());
  if (!base.generation_config())
    for (const char* key : {"bos_token_id", "pad_token_id"})  // programs take these from config.json until now
      if (const Json& config = text_level(base.config()); config.contains(key) && !config[key].is_null())
        generation[key] = config[key];
  std::vector<int64_t> ends{chat.end_id};
  std::ranges::copy(known_ends(base), std::back_inserter(ends));
  generation["eos_token_id"] = ends;
  write_json_file(folder / "generation_config.json", generation);
}

void say_whose(const ResultChat& chat) {
  info("the chat template and the eos_token are those of {}", chat.adapter);
}

// Requires that Fettle can read the adapter's template `name`.
void check_template(const std::string& adapter, const std::string& name, const std::string& text) {
  const fs::path usual = fs::path(adapter) /
                         (name == "default" ? "chat_template.jinja" : fmt::format("{}/{}.jinja", kChatTemplates, name));
  const fs::path file = fs::exists(usual) ? usual : fs::path(adapter) / "tokenizer_config.json";
  try {
    jinja::Template(text, file.string());
  } catch (const UserError& error) {
    throw UserError("{}\nThis is the adapter's chat template. Set `template`, or remove the file.", error.what());
  }
}

}  // namespace

ResultChat chat_of_adapters(const ModelRepository& base, const std::vector<std::string>& adapters, bool generates,
                            const Tokenizer* tokenizer) {
  for (auto adapter = adapters.rbegin(); adapter != adapters.rend(); ++adapter)
    if (ResultChat chat = chat_of_adapter(base, *adapter, generates, tokenizer); chat.changes()) return chat;
  return {};
}

int64_t use_chat_of_adapters(Tokenizer& tokenizer, const ModelRepository& base,
                             const std::vector<std::string>& adapters) {
  ResultChat chat = chat_of_adapters(base, adapters, true, &tokenizer);
  if (!chat.changes()) return -1;
  say_whose(chat);
  if (chat.templates.empty()) return chat.end_id;
  for (const char* name : {"default", "tool_use"})
    if (const auto found = chat.templates.find(name);
        found != chat.templates.end() && found->second != tokenizer.chat_template(name))
      check_template(chat.adapter, name, found->second);
  tokenizer.set_chat_templates(std::move(chat.templates));
  return chat.end_id;
}

Tokenizer open_tokenizer(const ModelRepository& base, const std::vector<std::string>& adapters, const DataSpec& data) {
  Tokenizer tokenizer = Tokenizer::open(base.folder());
  if (data.template_name.empty() && row_reader(data.rows).conversations)
    use_chat_of_adapters(tokenizer, base, adapters);
  return tokenizer;
}

ResultChat result_chat(const ModelRepository& base, const DataSpec& data, bool generates,
                       const std::vector<std::string>& adapters, ResultOf command) {
  if (!row_reader(data.rows).conversations) return {};
  try {
    if (!data.template_name.empty()) return chat_of_recipe(base, data, generates);
    ResultChat chat = chat_of_adapters(base, adapters, generates);
    if (command == ResultOf::kExport && chat.changes()) say_whose(chat);  // training said it when it read the rows
    if (command == ResultOf::kExport || chat.changes()) return chat;
    if (generates && !data.plain_text_rows && TokenizerConfig::read(base.folder()).chat_templates.contains("default"))
      return chat_of_recipe(base, data, generates);
  } catch (const UserError& error) {
    warn("the result keeps the base's chat template: {}", error.what());
  }
  return {};
}

void write_result_chat(const ResultChat& chat, const ModelRepository& base, bool whole, const fs::path& folder) {
  if (!chat.templates.empty()) put_templates(chat.templates, folder);
  if (!chat.end.empty()) put_eos_token(chat.end, folder);
  if (whole && chat.end_id >= 0) put_end_id(chat, base, folder);
}

}  // namespace fettle
