#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "base/files/mapped_file.h"
#include "tokenizer/json_field.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

std::string read_token_text(const JsonField& field) {
  return field.is_object() ? field.at("content").string() : field.string();
}

// Reads the names of tokens from `field`. Without `overrides`, names that are already set stay.
void read_names(const JsonField& field, bool overrides, TokenizerConfig& config) {
  const auto read_name = [&](std::string token, std::string& into) {
    if (into.empty() || overrides) into = token;
    config.add_special(std::move(token));
  };
  for (const auto& [key, token] : TokenizerConfig::names()) {
    if (const auto named = field.find(key)) {
      const std::string text = read_token_text(*named);
      if (text.empty()) config.empty_tokens.insert(key);
      read_name(text, config.*token);
    } else if (field.value().contains(key)) {
      config.null_tokens.insert(key);
    }
  }
  // Keys such as image_token name tokens of the model.
  for (const auto& [key, token] : field.members()) {
    const bool text = token.is_string() || (token.is_object() && token.find("content"));
    const bool known =
        std::ranges::find(TokenizerConfig::names(), key, &TokenizerConfig::Name::key) != TokenizerConfig::names().end();
    if (key.ends_with("_token") && text && !known) read_name(read_token_text(token), config.model_tokens[key]);
  }
  // Transformers 4 writes a list. Transformers 5 writes a list, or an object with a name for each token.
  for (std::string_view key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto extra = field.find(key);
    if (!extra) continue;
    if (extra->is_object()) {
      for (const auto& [name, token] : extra->members()) read_name(read_token_text(token), config.model_tokens[name]);
    } else {
      for (const JsonField& token : extra->elements()) config.add_special(read_token_text(token));
    }
  }
}

void read_added_tokens_decoder(const JsonField& field, TokenizerConfig& config) {
  for (const auto& [key, token] : field.members()) {
    int32_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0) {
      field.fail("'{}' is not a valid token id", key);
    }
    config.added_tokens.push_back(AddedTokens::read(token, id));
  }
}

void read_chat_templates(const JsonField& field, TokenizerConfig& config) {
  if (field.is_string()) {
    config.chat_templates["default"] = field.string();
    return;
  }
  for (const JsonField& named : field.elements()) {
    config.chat_templates[named.at("name").string()] = named.at("template").string();
  }
}

}  // namespace

const std::array<TokenizerConfig::Name, 7>& TokenizerConfig::names() {
  static constexpr std::array<Name, 7> kNames = {{{"bos_token", &TokenizerConfig::bos_token},
                                                  {"eos_token", &TokenizerConfig::eos_token},
                                                  {"pad_token", &TokenizerConfig::pad_token},
                                                  {"unk_token", &TokenizerConfig::unk_token},
                                                  {"cls_token", &TokenizerConfig::cls_token},
                                                  {"sep_token", &TokenizerConfig::sep_token},
                                                  {"mask_token", &TokenizerConfig::mask_token}}};
  return kNames;
}

std::map<std::string, std::string> TokenizerConfig::named_tokens() const {
  std::map<std::string, std::string> out = model_tokens;
  for (const auto& [key, token] : names()) out[key] = this->*token;
  std::erase_if(out, [](const auto& named) { return named.second.empty(); });
  return out;
}

void TokenizerConfig::add_special(std::string token) {
  if (!token.empty() && std::ranges::find(special_tokens, token) == special_tokens.end())
    special_tokens.push_back(std::move(token));
}

TokenizerConfig TokenizerConfig::read(const fs::path& model_dir) {
  TokenizerConfig config;
  bool complete = false;
  auto present = [&](const fs::path& path) {
    if (!fs::is_regular_file(path)) return false;
    config.files.push_back(path);
    return true;
  };
  if (const fs::path path = model_dir / "tokenizer_config.json"; present(path)) {
    const JsonField file = JsonField::read_file(path);
    read_names(file, true, config);
    if (auto added = file.find("added_tokens_decoder")) read_added_tokens_decoder(*added, config), complete = true;
    config.tokenizer_class = file.string_or("tokenizer_class", "");
    config.pattern = file.string_or("pat_str", "");
    if (file.find("legacy")) config.legacy = file.boolean_or("legacy", false);
    if (file.find("add_bos_token")) config.add_bos_token = file.boolean_or("add_bos_token", false);
    if (file.find("add_eos_token")) config.add_eos_token = file.boolean_or("add_eos_token", false);
    if (file.find("add_prefix_space")) config.add_prefix_space = file.boolean_or("add_prefix_space", false);
    for (const auto& [key, field] : {std::pair{"do_lower_case", "lowercase"},
                                     {"strip_accents", "strip_accents"},
                                     {"tokenize_chinese_chars", "handle_chinese_chars"}})
      if (file.find(key)) config.bert_normalizer[field] = file.boolean_or(key, false);
    if (file.value().contains("strip_accents")) config.bert_normalizer.emplace("strip_accents", nullptr);
    if (auto templates = file.find("chat_template")) read_chat_templates(*templates, config);
  }
  if (const fs::path path = model_dir / "special_tokens_map.json"; present(path)) {
    read_names(JsonField::read_file(path), !complete, config);
  }
  if (const fs::path path = model_dir / "added_tokens.json"; present(path) && !complete) {
    for (const auto& [content, id] : JsonField::read_file(path).members()) {
      const auto& named = config.special_tokens;
      const bool special = std::find(named.begin(), named.end(), content) != named.end();
      config.added_tokens.push_back(
          {static_cast<int32_t>(id.integer()), content, false, false, false, !special, special});
    }
  }
  if (const fs::path path = model_dir / "chat_template.jinja"; present(path)) {
    config.chat_templates["default"] = replace_invalid_utf8(read_file(path));
  }
  // Transformers wrote this file for models with a processor, such as Mistral Small 3.1.
  if (const fs::path path = model_dir / "chat_template.json";
      !config.chat_templates.contains("default") && present(path)) {
    if (auto templates = JsonField::read_file(path).find("chat_template")) read_chat_templates(*templates, config);
  }
  if (const fs::path folder = model_dir / "additional_chat_templates"; fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".jinja" || !present(entry.path())) continue;
      config.chat_templates[entry.path().stem().string()] = replace_invalid_utf8(read_file(entry.path()));
    }
  }
  return config;
}

}  // namespace fettle
