#include "checkpoint/gguf/pre_tokenizers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/models/word_patterns.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek V2 and its predecessors divide a text by these patterns in turn. A letter is one of the scripts with
// capitals.
constexpr const char* kLineEnd = "[\r\n]";
constexpr const char* kLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr const char* kMarks = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr const char* kSpacesAtEnd = R"(\s+$)";
constexpr const char* kScriptsOfAsia = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

using Named = std::pair<std::string_view, const NamedPreTokenizer*>;

// The known names of methods (values of tokenizer.ggml.pre). If several names mean the same method, Fettle writes the
// first one to GGUF files. If a name occurs twice, Fettle reads it as the first method, and writes it for both.
const std::vector<Named>& named_pre_tokenizers() {
  static const NamedPreTokenizer kGpt2{.pattern = nullptr};
  static const NamedPreTokenizer kComposedGpt2{.pattern = nullptr, .composes = true};
  static const NamedPreTokenizer kDigits{.pattern = nullptr, .digits_alone = true};
  static const NamedPreTokenizer kComposedDigits{.pattern = nullptr, .digits_alone = true, .composes = true};
  static const NamedPreTokenizer kLlamaBpe{.pattern = kLlama3Words, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kLlamaWords{.pattern = kLlama3Words};
  static const NamedPreTokenizer kLlamaWordsWhole{.pattern = kLlama3Words, .ignore_merges = true};
  static const NamedPreTokenizer kQwen{.pattern = kQwen2Words, .composes = true};
  static const NamedPreTokenizer kQwenMarks{.pattern = kQwen35, .composes = true};
  static const NamedPreTokenizer kDeepseek{.pattern = kDeepseekV3,
                                           .before = {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"}};
  static const NamedPreTokenizer kDeepseekLlm{.pattern = R"(\p{N}+)",
                                              .before = {kLineEnd, kLetters, kMarks, kSpacesAtEnd, kScriptsOfAsia}};
  // DeepSeek's own files say it so. No token has two digits, so the ids are the same.
  static const NamedPreTokenizer kDeepseekDigits{
      .pattern = kScriptsOfAsia, .before = {kLineEnd, kLetters, kMarks, kSpacesAtEnd}, .digits_alone = true};
  static const NamedPreTokenizer kDeepseekCoder{
      .pattern = kScriptsOfAsia, .before = {kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)"}, .digits_alone = true};
  static const NamedPreTokenizer kTekkenBpe{.pattern = kTekken, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kGpt4o{.pattern = kGpt4oWords};
  static const NamedPreTokenizer kSeed{.pattern = kSeedCoder};
  static const NamedPreTokenizer kKimi{.pattern = kKimiWords};
  static const std::vector<Named> kNamed = {
      {"gpt-2", &kGpt2},
      {"phi-2", &kGpt2},
      {"granite-docling", &kGpt2},
      {"olmo", &kComposedGpt2},
      {"mpt", &kComposedGpt2},
      {"smollm", &kDigits},
      {"starcoder", &kDigits},
      {"refact", &kDigits},
      {"codeshell", &kDigits},
      {"command-r", &kComposedDigits},
      {"llama-bpe", &kLlamaBpe},
      {"llama3", &kLlamaBpe},
      {"llama-v3", &kLlamaBpe},
      {"lfm2", &kLlamaBpe},
      {"falcon-h1", &kLlamaBpe},
      {"falcon3", &kLlamaBpe},
      {"pixtral", &kLlamaBpe},
      {"midm-2.0", &kLlamaBpe},
      {"smaug-bpe", &kLlamaWordsWhole},
      {"glm4", &kLlamaWordsWhole},
      {"dbrx", &kLlamaWords},
      {"chatglm-bpe", &kLlamaWords},
      {"qwen2", &kQwen},
      {"deepseek-r1-qwen", &kQwen},
      {"qwen35", &kQwenMarks},
      {"deepseek-v3", &kDeepseek},
      {"deepseek-llm", &kDeepseekLlm},
      {"deepseek-llm", &kDeepseekDigits},
      {"deepseek-coder", &kDeepseekCoder},
      {"kimi-k2", &kKimi},
      {"tekken", &kTekkenBpe},
      {"gpt-4o", &kGpt4o},
      {"llama4", &kGpt4o},
      {"kanana2", &kGpt4o},
      {"minimax-m2", &kGpt4o},
      {"seed-coder", &kSeed},
  };
  return kNamed;
}

// Removes settings that do not change ids, so that equivalent tokenizers compare as equal.
Json canonical(Json part) {
  if (!part.is_object()) return part;
  const std::string type = part.value("type", "");
  for (const char* list : {"pretokenizers", "normalizers"}) {
    if (type != "Sequence" || !part.contains(list)) continue;
    Json parts = Json::array();
    for (const Json& each : part[list]) parts.push_back(canonical(each));
    if (parts.empty()) return nullptr;
    return parts.size() == 1 ? parts[0] : Json{{"type", "Sequence"}, {list, parts}};
  }
  part.erase("trim_offsets");
  // "Removed" drops the text between the words. The patterns for which models use it match every character, so there is
  // no such text.
  if (type == "Split" && part.value("behavior", "") == "Removed" && part.value("invert", false))
    part["behavior"] = "Isolated", part["invert"] = false;
  if (type == "ByteLevel" && !part.contains("use_regex")) part["use_regex"] = true;
  return part;
}

}  // namespace

const NamedPreTokenizer& pre_tokenizer_of(const std::string& name, const std::string& file) {
  const std::vector<Named>& all = named_pre_tokenizers();
  const auto found = std::ranges::find(all, name, &Named::first);
  if (found == all.end())
    throw UserError(
        "{}: its tokenizer cuts texts into words by the method '{}' (tokenizer.ggml.pre), which Fettle does not know; "
        "use the model's own folder with tokenizer.json",
        file, name);
  return *found->second;
}

std::string pre_tokenizer_name(const Json& tokenizer) {
  const auto part = [&](const char* key) { return tokenizer.contains(key) ? tokenizer[key] : Json(); };
  const bool whole = tokenizer["model"].value("ignore_merges", false);
  for (const auto& [name, pre] : named_pre_tokenizers())
    if (pre->ignore_merges == whole && canonical(part("normalizer")) == canonical(normalizer_json(*pre)) &&
        canonical(part("pre_tokenizer")) == canonical(pre_tokenizer_json(*pre)))
      return std::string(name);
  return "";
}

Json normalizer_json(const NamedPreTokenizer& pre) {
  return pre.composes ? Json{{"type", "NFC"}} : Json(nullptr);
}

Json pre_tokenizer_json(const NamedPreTokenizer& pre) {
  const bool own = pre.pattern == nullptr;
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  Json parts = Json::array();
  const auto add_split = [&](const char* pattern) {
    parts.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  };
  for (const char* pattern : pre.before) add_split(pattern);
  if (!own) add_split(pre.pattern);
  if (pre.digits_alone) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (parts.empty()) return bytes;
  parts.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

}  // namespace fettle
