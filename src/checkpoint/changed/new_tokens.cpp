#include "checkpoint/changed/new_tokens.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/log.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// An entry of added_tokens, with the settings that the tokenizers library gives to a token added as a string.
struct TokenToAdd {
  std::string content;
  int32_t id = 0;
  bool special = false;

  Json json() const { return AddedTokens::entry(content, special, !special); }
};

// Adds the tokens to a list of added tokens. Removes earlier entries with the same ids.
void add_to_list(Json& list, const std::vector<TokenToAdd>& tokens) {
  if (!list.is_array()) list = Json::array();
  for (const TokenToAdd& token : tokens) {
    std::erase_if(list.get_ref<Json::array_t&>(),
                  [&](const Json& other) { return other.is_object() && other.value("id", Json()) == token.id; });
    Json entry = token.json();
    entry["id"] = token.id;
    list.push_back(entry);
  }
}

std::string text_of_json(const Json& json) {
  return json.dump(2, ' ', false) + "\n";
}

std::optional<Json> read_if_there(const fs::path& file) {
  if (!fs::exists(file)) return std::nullopt;
  return read_json_file(file);
}

// Returns the changed files by name. Without tokenizer.json, the tokens go into tokenizer_config.json and
// added_tokens.json, because Fettle does not change vocabulary files such as tokenizer.model.
std::map<std::string, std::string> changed_files(const fs::path& model, const std::vector<TokenToAdd>& tokens) {
  std::map<std::string, std::string> files;
  std::optional<Json> fast = read_if_there(model / "tokenizer.json");
  if (fast) {
    add_to_list((*fast)["added_tokens"], tokens);
    files["tokenizer.json"] = text_of_json(*fast);
  }
  std::optional<Json> config = read_if_there(model / "tokenizer_config.json");
  if (!fast && !config) config = Json::object();
  if (config && (!fast || config->contains("added_tokens_decoder"))) {
    for (const TokenToAdd& token : tokens) (*config)["added_tokens_decoder"][std::to_string(token.id)] = token.json();
    files["tokenizer_config.json"] = text_of_json(*config);
  }
  std::optional<Json> list = read_if_there(model / "added_tokens.json");
  if (!fast && !list) list = Json::object();
  if (list) {
    for (const TokenToAdd& token : tokens) (*list)[token.content] = token.id;
    files["added_tokens.json"] = text_of_json(*list);
  }
  return files;
}

// Sets eos_token in tokenizer_config.json and, if it exists, in special_tokens_map.json. Adds the changed files to
// `files`.
void set_eos(std::map<std::string, std::string>& files, const fs::path& model, const std::string& eos) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const bool needed = std::string_view(name) == "tokenizer_config.json";
    if (!needed && !fs::exists(model / name)) continue;
    Json json = files.contains(name)       ? Json::parse(files[name])
                : fs::exists(model / name) ? read_json_file(model / name)
                                           : Json::object();
    json["eos_token"] = eos;
    files[name] = text_of_json(json);
  }
}

}  // namespace

GrownTokenizer add_to_tokenizer(const fs::path& model, const NewTokens& tokens) {
  const Tokenizer tokenizer = Tokenizer::open(model);
  GrownTokenizer out{.size_before = tokenizer.vocab_size(), .size = tokenizer.vocab_size()};
  std::vector<TokenToAdd> changed;
  std::vector<std::string> known;
  auto add = [&](const std::string& text, bool special) {
    if (text.empty()) throw UserError("{}: a token to add is empty; remove it", tokens.at);
    if (std::ranges::find(changed, text, &TokenToAdd::content) != changed.end()) return;
    const std::optional<int32_t> id = tokenizer.token_id(text);
    if (id) known.push_back(text);
    if (id && (!special || tokenizer.is_special(*id))) return;
    changed.push_back({text, id.value_or(static_cast<int32_t>(out.size)), special});
    if (!id) out.added[text] = static_cast<int32_t>(out.size++);
  };
  for (const std::string& text : tokens.plain) add(text, false);
  for (const std::string& text : tokens.special) add(text, true);
  if (!known.empty()) warn("{}: the tokenizer has these tokens already: {}", tokens.at, fmt::join(known, ", "));
  for (const auto& [token, description] : tokens.descriptions)
    if (out.added.contains(token)) out.described[token] = tokenizer.encode(description, false);
  const bool ends = !tokens.eos.empty() && tokens.eos != tokenizer.eos_token();
  if (ends) {
    add(tokens.eos, true);
    const auto id = tokenizer.token_id(tokens.eos);
    out.eos = id ? *id : out.added.at(tokens.eos);
  }
  if (!changed.empty()) out.files = changed_files(model, changed);
  if (ends) set_eos(out.files, model, tokens.eos);
  return out;
}

}  // namespace fettle
