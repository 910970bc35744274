#include "checkpoint/gguf/tokenizer_files.h"

#include <sentencepiece.pb.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files/output_file.h"
#include "checkpoint/gguf/pre_tokenizers.h"
#include "checkpoint/model_files.h"
#include "tokenizer/added_tokens.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Tokens with which models end a turn. The file's eos token may be another token.
constexpr const char* kEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>",       "<end_of_turn>",
                                 "<|eom_id|>", "<|eot|>",    "<|endoftext|>", "<|end_of_text|>",
                                 "<turn|>",    "<|return|>", "<|call|>"};

struct GgufTokens {
  std::vector<std::string> text;
  std::vector<int64_t> type;  // all kNormalToken when the file has no types

  std::optional<int64_t> id(std::string_view wanted) const {
    const auto found = std::find(text.begin(), text.end(), wanted);
    return found == text.end() ? std::nullopt : std::optional<int64_t>(found - text.begin());
  }
};

const Json& list(const GgufFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  if (value == nullptr || !value->is_array())
    throw UserError("{}: it has no list '{}'; the model is not complete, or it has no tokenizer", fields.file(), key);
  return *value;
}

GgufTokens read_tokens(const GgufFields& fields) {
  GgufTokens tokens;
  for (const Json& text : list(fields, "tokenizer.ggml.tokens")) {
    if (!text.is_string()) throw UserError("{}: tokenizer.ggml.tokens is not a list of strings", fields.file());
    tokens.text.push_back(text.get<std::string>());
  }
  if (!fields.has("tokenizer.ggml.token_type")) {
    tokens.type.assign(tokens.text.size(), kNormalToken);
    return tokens;
  }
  for (const Json& type : list(fields, "tokenizer.ggml.token_type")) {
    if (!type.is_number_integer())
      throw UserError("{}: tokenizer.ggml.token_type is not a list of integers", fields.file());
    tokens.type.push_back(type.get<int64_t>());
  }
  if (tokens.type.size() != tokens.text.size())
    throw UserError("{}: it has {} tokens, but types for {} tokens", fields.file(), tokens.text.size(),
                    tokens.type.size());
  return tokens;
}

// Returns the id of a special token; nullopt when there is none. If a file with a SentencePiece tokenizer lacks the
// key, the id is the one that llama.cpp assumes.
std::optional<int64_t> special_id(const GgufFields& fields, const GgufTokens& tokens, const std::string& name) {
  static const std::map<std::string, int64_t> kOfPieces = {{"unknown", 0}, {"bos", 1}, {"eos", 2}};
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  auto id = fields.id(key);
  const auto usual = kOfPieces.find(name);
  if (!fields.has(key) && usual != kOfPieces.end() && fields.text("tokenizer.ggml.model", "") == "llama")
    id = usual->second;
  return id && *id < static_cast<int64_t>(tokens.text.size()) ? id : std::nullopt;
}

void write_text(const fs::path& path, const Json& value) {
  write_file(path, value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json added_token(const std::string& content, bool special) {
  return AddedTokens::entry(content, special, false);
}

bool is_added(int64_t type) {
  return type == kControlToken || type == kUserToken;
}

// Returns the post-processor, which puts `bos` before a text's tokens and `eos` behind them. If `bos` or `eos` is
// nullopt, the post-processor adds no such token.
Json post_processor(const GgufTokens& tokens, std::optional<int64_t> bos, std::optional<int64_t> eos) {
  Json single = Json::array(), pair = Json::array(), used = Json::object();
  auto add = [&](std::optional<int64_t> id, Json& to, int64_t type) {
    if (!id) return;
    const std::string& text = tokens.text[static_cast<size_t>(*id)];
    to.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
    used[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  add(bos, single, 0);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(eos, single, 0);
  pair = single;
  add(bos, pair, 1);
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  add(eos, pair, 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", used}};
}

// Writes a tokenizer.json of the kind BPE. `own` has the parts that depend on the kind: normalizer, pre_tokenizer,
// decoder and fields of the model.
void write_bpe(const GgufFields& fields, const GgufTokens& tokens, bool adds_bos, const Json& own,
               const fs::path& folder) {
  Json vocabulary = Json::object(), added = Json::array(), merges = Json::array();
  for (size_t id = 0; id < tokens.text.size(); ++id) {
    const std::string& text = tokens.text[id];
    if (is_added(tokens.type[id])) {
      Json token = added_token(text, tokens.type[id] == kControlToken);
      token["id"] = id;
      added.push_back(token);
    }
    // The vocabulary has the added tokens too, because the tokenizers library gives a new id to an added token that is
    // not in the vocabulary. Only unused tokens are left out.
    if (tokens.type[id] != kUnusedToken) vocabulary.emplace(text, id);
  }
  for (const Json& merge : list(fields, "tokenizer.ggml.merges")) {
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos)
      throw UserError("{}: tokenizer.ggml.merges has '{}', wanted two tokens with a space between them", fields.file(),
                      text);
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  const auto bos = special_id(fields, tokens, "bos"), eos = special_id(fields, tokens, "eos");
  const bool add_bos = bos && fields.flag("tokenizer.ggml.add_bos_token", adds_bos);
  const bool add_eos = eos && fields.flag("tokenizer.ggml.add_eos_token", false);
  Json whole{{"version", "1.0"},
             {"truncation", nullptr},
             {"padding", nullptr},
             {"added_tokens", added},
             {"post_processor", nullptr},
             {"model",
              {{"type", "BPE"},
               {"dropout", nullptr},
               {"unk_token", nullptr},
               {"continuing_subword_prefix", nullptr},
               {"end_of_word_suffix", nullptr},
               {"fuse_unk", false},
               {"byte_fallback", false},
               {"ignore_merges", false},
               {"vocab", vocabulary},
               {"merges", merges}}}};
  whole.update(own, true);
  if (add_bos || add_eos)
    whole["post_processor"] = post_processor(tokens, add_bos ? bos : std::nullopt, add_eos ? eos : std::nullopt);
  write_text(folder / "tokenizer.json", whole);
}

// Returns the name of the method that cuts texts into words. Older files do not name it, or name it 'default'. For
// them, the method is known if all models of the architecture have the same one.
std::string method_of(const GgufFields& fields) {
  static const std::map<std::string, std::string> kOfArchitectures = {{"gpt2", "gpt-2"},
                                                                      {"phi2", "gpt-2"},
                                                                      {"gptneox", "olmo"},
                                                                      {"starcoder", "starcoder"},
                                                                      {"starcoder2", "starcoder"}};
  const std::string name = fields.text("tokenizer.ggml.pre", "");
  if (!name.empty() && name != "default") return name;
  const auto found = kOfArchitectures.find(fields.architecture());
  if (found != kOfArchitectures.end()) return found->second;
  throw UserError(
      "{}: it does not say how its tokenizer cuts texts into words (tokenizer.ggml.pre is {}); take a newer GGUF file "
      "of this model, or the model's own folder with tokenizer.json",
      fields.file(), name.empty() ? "missing" : "'default'");
}

void write_byte_level(const GgufFields& fields, const GgufTokens& tokens, const fs::path& folder) {
  const NamedPreTokenizer& pre = pre_tokenizer_of(method_of(fields), fields.file());
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  write_bpe(fields, tokens, pre.adds_bos,
            {{"normalizer", normalizer_json(pre)},
             {"pre_tokenizer", pre_tokenizer_json(pre)},
             {"post_processor", byte_level},
             {"decoder", byte_level},
             {"model", {{"ignore_merges", pre.ignore_merges}}}},
            folder);
}

// Writes Gemma 4's tokenizer: BPE on characters. Spaces become another character, and unknown characters become bytes.
void write_bpe_of_pieces(const GgufFields& fields, const GgufTokens& tokens, const fs::path& folder) {
  const std::string space = "\u2581";
  const auto unknown = special_id(fields, tokens, "unknown");
  const Json decoders{{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
                      {{"type", "ByteFallback"}},
                      {{"type", "Fuse"}}};
  Json model{{"fuse_unk", true}, {"byte_fallback", true}};
  if (unknown) model["unk_token"] = tokens.text[static_cast<size_t>(*unknown)];
  write_bpe(fields, tokens, true,
            {{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}}},
             {"pre_tokenizer", nullptr},
             {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
             {"model", model}},
            folder);
}

void write_sentencepiece(const GgufFields& fields, const GgufTokens& tokens, const fs::path& folder) {
  const Json& scores = list(fields, "tokenizer.ggml.scores");
  if (scores.size() != tokens.text.size())
    throw UserError("{}: it has {} tokens, but scores for {} tokens", fields.file(), tokens.text.size(), scores.size());
  sentencepiece::ModelProto model;
  bool bytes = false;
  for (size_t id = 0; id < tokens.text.size(); ++id) {
    const int64_t type = tokens.type[id];
    if (!scores[id].is_number() || type < kNormalToken || type > kByteToken)
      throw UserError("{}: the type or the score of token {} is wrong", fields.file(), id);
    sentencepiece::SentencePiece& piece = *model.add_pieces();
    piece.set_piece(tokens.text[id]);
    piece.set_score(scores[id].get<float>());
    piece.set_type(static_cast<sentencepiece::SentencePiece::Type>(type));
    bytes |= type == kByteToken;
  }
  sentencepiece::TrainerSpec& trainer = *model.mutable_trainer_spec();
  trainer.set_model_type(sentencepiece::TrainerSpec::BPE);
  trainer.set_byte_fallback(bytes);
  const auto id = [&](const char* name) { return static_cast<int32_t>(special_id(fields, tokens, name).value_or(-1)); };
  trainer.set_unk_id(id("unknown"));
  trainer.set_bos_id(id("bos"));
  trainer.set_eos_id(id("eos"));
  trainer.set_pad_id(id("padding"));
  sentencepiece::NormalizerSpec& spaces = *model.mutable_normalizer_spec();
  spaces.set_add_dummy_prefix(fields.flag("tokenizer.ggml.add_space_prefix", true));
  spaces.set_remove_extra_whitespaces(fields.flag("tokenizer.ggml.remove_extra_whitespaces", false));
  spaces.set_escape_whitespaces(true);
  write_file(folder / "tokenizer.model", model.SerializeAsString());
}

Json tokenizer_config(const GgufFields& fields, const GgufTokens& tokens, bool pieces) {
  Json config{{"clean_up_tokenization_spaces", false}};
  for (const auto& [name, field] :
       {std::pair{"bos", "bos_token"}, {"eos", "eos_token"}, {"padding", "pad_token"}, {"unknown", "unk_token"}})
    if (const auto id = special_id(fields, tokens, name)) config[field] = tokens.text[static_cast<size_t>(*id)];
  config["model_max_length"] = fields.integer(".context_length");
  if (!pieces) {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    return config;
  }
  config["tokenizer_class"] = fields.architecture().starts_with("gemma") ? "GemmaTokenizer" : "LlamaTokenizer";
  config["add_bos_token"] = fields.flag("tokenizer.ggml.add_bos_token", true);
  config["add_eos_token"] = fields.flag("tokenizer.ggml.add_eos_token", false);
  config["add_prefix_space"] = fields.flag("tokenizer.ggml.add_space_prefix", true);
  Json added = Json::object();
  for (size_t id = 0; id < tokens.text.size(); ++id)
    if (is_added(tokens.type[id]))
      added[std::to_string(id)] = added_token(tokens.text[id], tokens.type[id] == kControlToken);
  config["added_tokens_decoder"] = added;
  return config;
}

Json generation_config(const GgufFields& fields, const GgufTokens& tokens) {
  std::set<int64_t> ends;
  for (const char* name : {"eos", "eot", "eom"})
    if (const auto id = special_id(fields, tokens, name)) ends.insert(*id);
  // In GPT-OSS's format, <|end|> ends only a part of a reply.
  const bool has_parts = tokens.id("<|return|>") && tokens.id("<|call|>");
  for (const char* text : kEnds)
    if (const auto id = tokens.id(text);
        id && !(has_parts && text == std::string_view("<|end|>")) && is_added(tokens.type[static_cast<size_t>(*id)]))
      ends.insert(*id);
  Json config = Json::object();
  if (!ends.empty()) config["eos_token_id"] = ends;
  if (const auto id = special_id(fields, tokens, "bos")) config["bos_token_id"] = *id;
  if (const auto id = special_id(fields, tokens, "padding")) config["pad_token_id"] = *id;
  return config;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() < 100 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

void write_templates(const GgufFields& fields, const fs::path& folder) {
  const std::string key = "tokenizer.chat_template";
  if (fields.has(key)) write_file(folder / "chat_template.jinja", fields.text(key, ""));
  for (const auto& [other, value] : fields.header().values) {
    if (!other.starts_with(key + ".") || !value.is_string()) continue;
    const std::string name = other.substr(key.size() + 1);
    if (!is_plain_name(name)) continue;
    fs::create_directories(folder / kChatTemplates);
    write_file(folder / kChatTemplates / (name + ".jinja"), value.get<std::string>());
  }
}

}  // namespace

void write_gguf_tokenizer(const GgufFields& fields, const fs::path& folder) {
  const std::string model = fields.text("tokenizer.ggml.model", "");
  const GgufTokens tokens = read_tokens(fields);
  if (model == "gpt2")
    write_byte_level(fields, tokens, folder);
  else if (model == "llama")
    write_sentencepiece(fields, tokens, folder);
  else if (model == "gemma4")
    write_bpe_of_pieces(fields, tokens, folder);
  else
    throw UserError(
        "{}: its tokenizer is of the kind '{}' (tokenizer.ggml.model); Fettle reads 'gpt2' (byte-level BPE), 'llama' "
        "(SentencePiece) and 'gemma4' (BPE on characters)",
        fields.file(), model);
  write_text(folder / "tokenizer_config.json", tokenizer_config(fields, tokens, model == "llama"));
  write_text(folder / "generation_config.json", generation_config(fields, tokens));
  write_templates(fields, folder);
}

}  // namespace fettle
