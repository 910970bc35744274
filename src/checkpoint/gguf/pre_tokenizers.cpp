#include "checkpoint/gguf/pre_tokenizers.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

const NamedPreTokenizer& pre_tokenizer_of(const std::string& name, const std::string& file) {
  static const NamedPreTokenizer kGpt2{.pattern = nullptr};
  static const NamedPreTokenizer kComposedGpt2{.pattern = nullptr, .composes = true};
  static const NamedPreTokenizer kDigits{.pattern = nullptr, .digits_alone = true};
  static const NamedPreTokenizer kComposedDigits{.pattern = nullptr, .digits_alone = true, .composes = true};
  static const NamedPreTokenizer kLlamaBpe{.pattern = kLlama3, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kLlamaWords{.pattern = kLlama3};
  static const NamedPreTokenizer kLlamaWordsWhole{.pattern = kLlama3, .ignore_merges = true};
  static const NamedPreTokenizer kQwen{.pattern = kQwen2, .composes = true};
  static const NamedPreTokenizer kTekkenBpe{.pattern = kTekken, .ignore_merges = true, .adds_bos = true};
  static const NamedPreTokenizer kSeed{.pattern = kSeedCoder};
  static const std::map<std::string, const NamedPreTokenizer*> kNamed = {
      {"default", &kGpt2},
      {"gpt-2", &kGpt2},
      {"phi-2", &kGpt2},
      {"mpt", &kComposedGpt2},
      {"olmo", &kComposedGpt2},
      {"granite-docling", &kGpt2},
      {"starcoder", &kDigits},
      {"refact", &kDigits},
      {"smollm", &kDigits},
      {"codeshell", &kDigits},
      {"command-r", &kComposedDigits},
      {"llama3", &kLlamaBpe},
      {"llama-v3", &kLlamaBpe},
      {"llama-bpe", &kLlamaBpe},
      {"smaug-bpe", &kLlamaWordsWhole},
      {"dbrx", &kLlamaWords},
      {"chatglm-bpe", &kLlamaWords},
      {"glm4", &kLlamaWordsWhole},
      {"qwen2", &kQwen},
      {"deepseek-r1-qwen", &kQwen},
      {"tekken", &kTekkenBpe},
      {"seed-coder", &kSeed},
  };
  const auto found = kNamed.find(name);
  if (found == kNamed.end())
    throw UserError(
        "{}: its tokenizer cuts texts into words by the method '{}' (tokenizer.ggml.pre), which Fettle does not know; "
        "use the model's own folder with tokenizer.json",
        file, name);
  return *found->second;
}

Json normalizer_json(const NamedPreTokenizer& pre) {
  return pre.composes ? Json{{"type", "NFC"}} : Json(nullptr);
}

Json pre_tokenizer_json(const NamedPreTokenizer& pre) {
  const bool own = pre.pattern == nullptr;
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  Json first;
  if (!own) {
    first = {{"type", "Split"}, {"pattern", {{"Regex", pre.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  } else if (pre.digits_alone) {
    first = {{"type", "Digits"}, {"individual_digits", true}};
  } else {
    return bytes;
  }
  return {{"type", "Sequence"}, {"pretokenizers", {first, bytes}}};
}

}  // namespace fettle
