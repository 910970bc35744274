#include "checkpoint/gguf/write/tokenizer_metadata.h"

#include <fmt/ranges.h>
#include <sentencepiece.pb.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/gguf/pre_tokenizers.h"
#include "checkpoint/gguf/tokenizer_files.h"
#include "models/config.h"
#include "tokenizer/files/tokenizer_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr float kScoreOfAdded = -1000, kScoreOfUnused = -10000;
constexpr const char* kSpace = "\u2581";  // SentencePiece's character for a space

// The tokens of a GGUF file. Each list has one element for each id.
struct TokenLists {
  std::vector<std::string> text;
  std::vector<int32_t> type;
  std::vector<float> score;
  std::vector<bool> named;  // whether the tokenizer's files have a token with this id

  explicit TokenLists(int64_t count) {
    for (int64_t id = 0; id < count; ++id) text.push_back(fmt::format("[PAD{}]", id));
    type.assign(text.size(), kUnusedToken);
    score.assign(text.size(), kScoreOfUnused);
    named.assign(text.size(), false);
  }

  void set(int64_t id, std::string token, int32_t kind, float value, const fs::path& file) {
    if (id < 0 || id >= static_cast<int64_t>(text.size()))
      throw UserError("{}: the token '{}' has the id {}, but the model has {} tokens; GGUF cannot express that",
                      file.string(), token, id, text.size());
    const auto at = static_cast<size_t>(id);
    text[at] = std::move(token), type[at] = kind, score[at] = value, named[at] = true;
  }

  std::optional<int64_t> id_of(const std::string& token) const {
    for (size_t id = 0; id < text.size(); ++id)
      if (named[id] && text[id] == token) return static_cast<int64_t>(id);
    return std::nullopt;
  }
};

// Returns whether the token looks like a control token. Some tokenizers do not mark such a token as special, but users
// must not be able to write it.
bool looks_special(const std::string& token) {
  static const std::set<std::string> kAlways{"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  return kAlways.contains(token) || (token.starts_with("<|") && token.ends_with("|>")) ||
         (token.starts_with("<\uFF5C") && token.ends_with("\uFF5C>")) ||
         (token.starts_with("<unused") && token.ends_with(">"));
}

void add_token(TokenLists& tokens, int64_t id, const std::string& content, bool special, const fs::path& file) {
  if (content.empty()) return;
  const bool control = special || looks_special(content);
  tokens.set(id, control ? content : replace_all(content, kSpace, " "), control ? kControlToken : kUserToken,
             kScoreOfAdded, file);
}

// Adds the added tokens of tokenizer.json (`tokenizer`, may be null) and of tokenizer_config.json. Leaves out tokens
// for which the model has no row, such as Gemma 3's token for images in its models without images.
void add_added_tokens(const Json& tokenizer, const TokenizerConfig& config, const fs::path& folder,
                      TokenLists& tokens) {
  std::set<int64_t> done;
  const auto beyond = [&](int64_t id) { return id >= static_cast<int64_t>(tokens.text.size()); };
  if (tokenizer.is_object() && tokenizer.contains("added_tokens"))
    for (const Json& token : tokenizer["added_tokens"]) {
      const auto id = json_value(token, "id", int64_t{-1});
      const auto content = json_value(token, "content", std::string());
      if (beyond(id))
        warn("{}: the token '{}' has the id {}, but the model has only {} tokens; the GGUF file is without this token",
             (folder / "tokenizer.json").string(), content, id, tokens.text.size());
      else
        add_token(tokens, id, content, json_value(token, "special", false), folder / "tokenizer.json");
      done.insert(id);
    }
  for (const AddedToken& token : config.added_tokens) {
    if (!done.contains(token.id) && !beyond(token.id))
      add_token(tokens, token.id, token.content, token.special, folder / "tokenizer_config.json");
  }
}

// Returns the two parts of a merge: "a b" or ["a", "b"].
std::pair<std::string, std::string> parts_of_merge(const Json& merge, const fs::path& file) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const size_t space = text.find(' ', 1);
  if (space == std::string::npos)
    throw UserError("{}: model.merges has {}, wanted two tokens", file.string(), merge.dump());
  return {text.substr(0, space), text.substr(space + 1)};
}

void set_byte_level(const Json& tokenizer, const fs::path& file, TokenLists& tokens, GgufMetadata& metadata) {
  const Json& model = tokenizer["model"];
  const std::string pre = pre_tokenizer_name(tokenizer);
  if (pre.empty())
    throw UserError(
        "{}: this tokenizer's pre_tokenizer and normalizer cut texts into words unlike any method of llama.cpp that "
        "Fettle knows, so GGUF cannot express the tokenizer; export the model as safetensors (without export_gguf)",
        file.string());
  for (const auto& [token, id] : model["vocab"].items()) tokens.set(id.get<int64_t>(), token, kNormalToken, 0, file);
  std::vector<std::string> merges;
  for (const Json& merge : model["merges"]) {
    const auto [left, right] = parts_of_merge(merge, file);
    merges.push_back(replace_all(left, " ", "\u0120") + " " + replace_all(right, " ", "\u0120"));
  }
  metadata.set("tokenizer.ggml.model", std::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", pre);
  metadata.set("tokenizer.ggml.merges", std::move(merges));
}

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

// Sets Gemma 4's tokenizer: BPE on characters with merges, and tokens of single bytes.
void set_bpe_of_pieces(const Json& tokenizer, const fs::path& file, TokenLists& tokens, GgufMetadata& metadata) {
  const Json& model = tokenizer["model"];
  for (const auto& [token, id] : model["vocab"].items())
    tokens.set(id.get<int64_t>(), token, is_byte_token(token) ? kByteToken : kNormalToken, kScoreOfAdded, file);
  std::vector<std::string> merges;
  for (const Json& merge : model["merges"]) {
    const auto [left, right] = parts_of_merge(merge, file);
    merges.push_back(left + " " + right);
  }
  metadata.set("tokenizer.ggml.model", std::string("gemma4"));
  metadata.set("tokenizer.ggml.merges", std::move(merges));
  metadata.set("tokenizer.ggml.add_space_prefix", false);
}

// Makes these tokens visible in llama.cpp's output, because its parser of replies needs them.
void show_parts_of_replies(TokenLists& tokens) {
  for (const char* text :
       {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"})
    if (const auto id = tokens.id_of(text)) tokens.type[static_cast<size_t>(*id)] = kUserToken;
}

// Adds the tokens (SentencePiece's pieces) of a tokenizer.json that was made from a SentencePiece model. The order of
// the merges gives the scores: the earlier the merge that makes a token, the higher the token's score.
void add_pieces_of_merges(const Json& tokenizer, const fs::path& file, TokenLists& tokens) {
  const Json& model = tokenizer["model"];
  std::map<std::string, float> scores;
  float rank = 0;
  for (const Json& merge : model["merges"]) {
    const auto [left, right] = parts_of_merge(merge, file);
    if (scores.emplace(left + right, -rank).second) ++rank;
  }
  const std::string unknown = model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
  for (const auto& [token, id] : model["vocab"].items()) {
    const auto score = scores.find(token);
    const int32_t type = token == unknown ? kUnknownToken : is_byte_token(token) ? kByteToken : kNormalToken;
    tokens.set(id.get<int64_t>(), token, type, score == scores.end() ? -rank : score->second, file);
  }
}

// Adds the pieces of a SentencePiece model. Returns false when the file is missing or not such a model.
bool add_pieces_of_model(const fs::path& file, TokenLists& tokens, GgufMetadata& metadata) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  sentencepiece::ModelProto model;
  if (!model.ParseFromString(read_file(file)) || model.pieces_size() == 0) return false;
  if (model.trainer_spec().model_type() != sentencepiece::TrainerSpec::BPE)
    throw UserError("{}: is a SentencePiece model of another kind than BPE, but Fettle writes only BPE to GGUF",
                    file.string());
  for (int id = 0; id < model.pieces_size(); ++id) {
    const sentencepiece::SentencePiece& piece = model.pieces(id);
    const bool of_user = piece.type() == sentencepiece::SentencePiece::USER_DEFINED;
    tokens.set(id, of_user ? replace_all(piece.piece(), kSpace, " ") : piece.piece(),
               static_cast<int32_t>(piece.type()), piece.score(), file);
  }
  if (model.normalizer_spec().remove_extra_whitespaces()) metadata.set("tokenizer.ggml.remove_extra_whitespaces", true);
  return true;
}

void set_special_ids(const fs::path& folder, const TokenizerConfig& config, const TokenLists& tokens, const Json& json,
                     const Json& generation, GgufMetadata& metadata) {
  const fs::path file = folder / "tokenizer_config.json";
  const Json named = fs::is_regular_file(file) ? read_json_file(file) : Json::object();
  const auto text_of = [&](const char* field, const std::string& known) -> std::string {
    if (!known.empty() || !named.contains(field)) return known;
    const Json& value = named[field];
    return value.is_string()   ? value.get<std::string>()
           : value.is_object() ? json_value(value, "content", std::string())
                               : "";
  };
  const auto valid = [&](int64_t id) { return id >= 0 && id < static_cast<int64_t>(tokens.text.size()); };
  struct Special {
    const char *field, *key;
    std::string known;
  };
  std::optional<int64_t> end;
  for (const Special& special : {Special{"bos", "bos", config.bos_token},
                                 {"eos", "eos", config.eos_token},
                                 {"unk", "unknown", config.unk_token},
                                 {"sep", "seperator", ""},
                                 {"pad", "padding", config.pad_token},
                                 {"cls", "cls", ""},
                                 {"mask", "mask", ""}}) {
    const std::string text = text_of((special.field + std::string("_token")).c_str(), special.known);
    std::optional<int64_t> id = text.empty() ? std::nullopt : tokens.id_of(text);
    const Json& listed = json.contains(special.field + std::string("_token_id"))
                             ? json[special.field + std::string("_token_id")]
                             : Json();
    if (!id && listed.is_number_integer()) id = listed.get<int64_t>();
    if (!id && listed.is_array() && !listed.empty() && listed[0].is_number_integer()) id = listed[0].get<int64_t>();
    if (!id || !valid(*id)) continue;
    metadata.set_integer(std::string("tokenizer.ggml.") + special.key + "_token_id", *id);
    if (special.key == std::string("eos")) end = id;
  }
  // Further tokens at which generation stops.
  std::vector<int32_t> others;
  std::vector<int32_t> listed = end_ids(json, (folder / "config.json").string());
  std::ranges::copy(end_ids(generation, (folder / "generation_config.json").string()), std::back_inserter(listed));
  for (const int32_t id : listed)
    if (valid(id) && id != end && std::ranges::count(others, id) == 0) others.push_back(id);
  if (!others.empty()) metadata.set_integer("tokenizer.ggml.eot_token_id", others[0]);
  if (others.size() > 1) metadata.set_integer("tokenizer.ggml.eom_token_id", others[1]);
}

// Sets the keys that state whether the tokenizer adds bos, eos, and a space before the first word.
void set_behaviour(const fs::path& folder, bool pieces, GgufMetadata& metadata) {
  const Tokenizer tokenizer = Tokenizer::open(folder);
  const std::string text = "a";
  const std::vector<int32_t> plain = tokenizer.encode(text, false), whole = tokenizer.encode(text, true);
  const auto added = [&](std::optional<int32_t> id, bool first) {
    return id && whole.size() > plain.size() && (first ? whole.front() : whole.back()) == *id;
  };
  metadata.set("tokenizer.ggml.add_bos_token", added(tokenizer.bos_id(), true));
  metadata.set("tokenizer.ggml.add_eos_token", added(tokenizer.eos_id(), false));
  if (pieces)
    metadata.set("tokenizer.ggml.add_space_prefix",
                 !plain.empty() && tokenizer.token(plain.front()).starts_with(kSpace));
}

void set_templates(const TokenizerConfig& config, GgufMetadata& metadata) {
  const std::string key = "tokenizer.chat_template";
  std::vector<std::string> names;
  for (const auto& [name, text] : config.chat_templates) {
    if (name == "default") continue;
    std::string plain = name;
    for (char& letter : plain)
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    metadata.set(key + "." + plain, text);
    names.push_back(plain);
  }
  if (!names.empty()) metadata.set("tokenizer.chat_templates", names);
  const auto main = config.chat_templates.find("default");
  if (main != config.chat_templates.end()) metadata.set(key, main->second);
}

// Returns texts that show how a tokenizer cuts words, digits, spaces, scripts and marks.
std::vector<std::string> sample_texts(const GgufMetadata& metadata) {
  std::vector<std::string> texts{
      "Hello, world!",
      "The quick brown fox jumps over the lazy dog. 1234567890",
      " leading and  double   spaces\t\ttabs \n\n\n new lines\r\n end ",
      "I've told you, we'll see; they'RE here, it's 3.14 or 3..14 and 33 333 3333 33333",
      "def f(x: int) -> str:\n    return f\"{x:>10}\"  # a comment\n\n\nclass A:\n\tpass",
      "Größe, façade, naïve, Ångström, e\u0301tude, ﬁn",
      "Привет, мир! Съешь же ещё этих мягких французских булок.",
      "你好，世界。我想在苹果公司工作。１２３",
      "こんにちは世界、カタカナとひらがな",
      "안녕하세요 세계",
      "مرحبا بالعالم ١٢٣",
      "हिन्दी में लिखा हुआ",
      "ខ្មែរ កាន់តែពិសេស",
      "🚀 😶‍🌫️ 🦙🦙 ✅ emoji 👩‍👩‍👧",
      "https://example.org/a_b?c=d&e=%20#frag user@example.org",
      "------=======______......!!!!!! ? ? ? ''''```\"\"\"",
      "a\u00a0b\u2003c\u3000d\u200be",
      "<b>tags</b> </s> [INST] <|x|> {{ y }}",
      "\n",
      " ",
      "",
  };
  for (const auto& [key, value] : metadata.values()) {
    if (key == "tokenizer.chat_template") texts.push_back(std::get<std::string>(value));
    if (key != "tokenizer.ggml.tokens") continue;
    const auto& tokens = std::get<std::vector<std::string>>(value);
    for (size_t id = 0; id < tokens.size(); id += 1 + tokens.size() / 200) texts.push_back("a " + tokens[id] + " b");
  }
  return texts;
}

}  // namespace

void set_tokenizer_metadata(const fs::path& folder, int64_t vocab_size, const Json& json, const Json& generation,
                            GgufMetadata& metadata) {
  TokenizerConfig config = TokenizerConfig::read(folder);
  fs::path file;
  const Json tokenizer = tokenizer_json_of(folder, config, file);
  const bool has_json = tokenizer.is_object() && tokenizer.contains("model") && tokenizer["model"].is_object();
  const std::string kind = has_json ? json_value(tokenizer["model"], "type", std::string("BPE")) : "";
  const bool falls_back = has_json && json_value(tokenizer["model"], "byte_fallback", false);
  TokenLists tokens(vocab_size);
  bool pieces = false;
  const bool gemma4 = metadata.architecture() == "gemma4" && kind == "BPE" && falls_back;
  if (gemma4) {
    set_bpe_of_pieces(tokenizer, file, tokens, metadata);
  } else if (kind == "BPE" && !falls_back) {
    set_byte_level(tokenizer, file, tokens, metadata);
  } else {
    pieces = true;
    if (!add_pieces_of_model(folder / "tokenizer.model", tokens, metadata)) {
      if (kind != "BPE")
        throw UserError(
            "{}: the model has no tokenizer of the kind BPE and no SentencePiece tokenizer.model. GGUF cannot express "
            "other tokenizers; save the model's tokenizer with Transformers, which writes a tokenizer.json",
            folder.string());
      add_pieces_of_merges(tokenizer, file, tokens);
    }
    metadata.set("tokenizer.ggml.model", std::string("llama"));
    metadata.set("tokenizer.ggml.pre", std::string("default"));
  }
  add_added_tokens(tokenizer, config, folder, tokens);
  if (gemma4) show_parts_of_replies(tokens);
  set_special_ids(folder, config, tokens, json, generation, metadata);
  metadata.set("tokenizer.ggml.tokens", std::move(tokens.text));
  metadata.set("tokenizer.ggml.token_type", std::move(tokens.type));
  if (pieces || gemma4) metadata.set("tokenizer.ggml.scores", std::move(tokens.score));
  set_behaviour(folder, pieces, metadata);
  set_templates(config, metadata);
}

namespace {

// Returns the texts of tokens that are cut out before a text is divided into pieces; empty without SentencePiece.
std::vector<std::string> cut_out_of_pieces(const GgufMetadata& metadata) {
  std::vector<std::string> text;
  std::vector<int32_t> type;
  for (const auto& [key, value] : metadata.values()) {
    if (key == "tokenizer.ggml.model" && std::get<std::string>(value) != "llama") return {};
    if (key == "tokenizer.ggml.tokens") text = std::get<std::vector<std::string>>(value);
    if (key == "tokenizer.ggml.token_type") type = std::get<std::vector<int32_t>>(value);
  }
  std::vector<std::string> out;
  for (size_t id = 0; id < text.size() && id < type.size(); ++id)
    if ((type[id] == kControlToken || type[id] == kUserToken) && !text[id].empty()) out.push_back(text[id]);
  return out;
}

}  // namespace

void check_tokenizer(const fs::path& folder, const GgufMetadata& metadata, const fs::path& scratch) {
  const GgufHeader header = header_of(metadata, {});
  const std::string name = folder.string() + " as GGUF";
  fs::create_directories(scratch);
  write_gguf_tokenizer(GgufFields(header, {}, name), scratch);
  const Tokenizer wanted = Tokenizer::open(folder), got = Tokenizer::open(scratch);
  // llama.cpp and Transformers' older tokenizers put a space after a token of `cut_out`; newer tokenizers do not. A
  // GGUF file does not state which is right, so texts with these tokens are not compared.
  const std::vector<std::string> cut_out = cut_out_of_pieces(metadata);
  for (const std::string& text : sample_texts(metadata)) {
    if (std::ranges::any_of(cut_out, [&](const std::string& token) { return text.find(token) != std::string::npos; }))
      continue;
    const std::vector<int32_t> a = wanted.encode(text, true), b = got.encode(text, true);
    if (a == b) continue;
    throw UserError(
        "{}: GGUF cannot express this tokenizer: {} has the ids {}, but {} as GGUF; export the model as safetensors "
        "(without export_gguf)",
        folder.string(), Json(text).dump(-1, ' ', false, Json::error_handler_t::replace), fmt::join(a, " "),
        fmt::join(b, " "));
  }
}

std::vector<std::string> stop_texts(const GgufMetadata& metadata) {
  const GgufHeader header = header_of(metadata, {});
  std::vector<std::string> texts;
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id = header.values.find(std::string("tokenizer.ggml.") + name + "_token_id");
    if (id == header.values.end()) continue;
    std::string text = header.values.at("tokenizer.ggml.tokens")[id->second.get<size_t>()];
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace fettle
