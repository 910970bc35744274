#include "checkpoint/gguf/pre_tokenizers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4oWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Named = std::pair<std::string_view, const NamedPreTokenizer*>;

// The known names of methods (values of tokenizer.ggml.pre). If several names mean the same method, Fettle writes the
// first one to GGUF files.
const std::vector<Named>& named_pre_tokenizers() {
  static const NamedPreTokenizer kGpt2{.pattern = nullptr};
  static const NamedPreTokenizer kComposedGpt2{.pattern = nullptr, .composes = true};
  static const NamedPreTokenizer kDigits{.pattern = nullptr, .digits_alone = true};
  static const NamedPreTokenizer kComposedDigits{.pattern = nullptr, .digits_alone = true, .composes = true};
  static const NamedPreTokenizer kLlamaBpe{.pattern = kLlama3, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kLlamaWords{.pattern = kLlama3};
  static const NamedPreTokenizer kLlamaWordsWhole{.pattern = kLlama3, .ignore_merges = true};
  static const NamedPreTokenizer kQwen{.pattern = kQwen2, .composes = true};
  static const NamedPreTokenizer kQwenMarks{.pattern = kQwen35, .composes = true};
  static const NamedPreTokenizer kDeepseek{.pattern = kDeepseekV3,
                                           .before = {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},
                                           .adds_bos = true};
  static const NamedPreTokenizer kTekkenBpe{.pattern = kTekken, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kGpt4o{.pattern = kGpt4oWords};
  static const NamedPreTokenizer kSeed{.pattern = kSeedCoder};
  static const std::vector<Named> kNamed = {
      {"gpt-2", &kGpt2},
      {"default", &kGpt2},
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
      {"smaug-bpe", &kLlamaWordsWhole},
      {"glm4", &kLlamaWordsWhole},
      {"dbrx", &kLlamaWords},
      {"chatglm-bpe", &kLlamaWords},
      {"qwen2", &kQwen},
      {"deepseek-r1-qwen", &kQwen},
      {"qwen35", &kQwenMarks},
      {"deepseek-v3", &kDeepseek},
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
  // "Removed" drops the text between the words. The known patterns match every character, so there is no such text.
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
  if (own && pre.digits_alone) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (parts.empty()) return bytes;
  parts.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

}  // namespace fettle
