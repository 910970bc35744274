#include "tokenizer/files/class_tokens.h"

#include <map>
#include <set>

#include "base/files/json_file.h"
#include "tokenizer/json_field.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// The tokens in the order of TokenizerConfig::names(): bos, eos, pad, unk, cls, sep, mask.
using ClassTokens = std::array<const char*, 7>;

const std::map<std::string, ClassTokens>& class_tokens() {
  constexpr const char* kEnd = "<|endoftext|>";
  static const std::map<std::string, ClassTokens> tokens{
      {"BertTokenizer", {"", "", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}},
      {"CodeLlamaTokenizer", {"<s>", "</s>", "", "<unk>", "", "", ""}},
      {"CohereTokenizer", {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>"}},
      {"GPT2Tokenizer", {kEnd, kEnd, "", kEnd, "", "", ""}},
      {"GPTNeoXTokenizer", {kEnd, kEnd, "<|padding|>", kEnd, "", "", ""}},
      {"GemmaTokenizer", {"<bos>", "<eos>", "<pad>", "<unk>", "", "", "<mask>"}},
      {"LlamaTokenizer", {"<s>", "</s>", "", "<unk>", "", "", ""}},
      {"Qwen2Tokenizer", {"", kEnd, kEnd, kEnd, "", "", ""}},
      {"Qwen3_5Tokenizer", {"", kEnd, kEnd, kEnd, "", "", ""}},
      {"RobertaTokenizer", {"<s>", "</s>", "<pad>", "<unk>", "<s>", "</s>", "<mask>"}},
      {"XLMRobertaTokenizer", {"<s>", "</s>", "<pad>", "<unk>", "<s>", "</s>", "<mask>"}},
  };
  return tokens;
}

}  // namespace

std::string tokenizer_class_of(const fs::path& model_dir, const TokenizerConfig& config) {
  static const std::map<std::string, std::string> kClasses{{"bert", "BertTokenizer"},
                                                           {"cohere2", "CohereTokenizer"},
                                                           {"gemma", "GemmaTokenizer"},
                                                           {"gemma2", "GemmaTokenizer"},
                                                           {"gemma3", "GemmaTokenizer"},
                                                           {"gemma3_text", "GemmaTokenizer"},
                                                           {"gpt2", "GPT2Tokenizer"},
                                                           {"gpt_neox", "GPTNeoXTokenizer"},
                                                           {"phi", "GPT2Tokenizer"},
                                                           {"qwen2", "Qwen2Tokenizer"},
                                                           {"qwen2_moe", "Qwen2Tokenizer"},
                                                           {"qwen3", "Qwen2Tokenizer"},
                                                           {"qwen3_5", "Qwen3_5Tokenizer"},
                                                           {"qwen3_5_moe", "Qwen3_5Tokenizer"},
                                                           {"qwen3_5_moe_text", "Qwen3_5Tokenizer"},
                                                           {"qwen3_5_text", "Qwen3_5Tokenizer"},
                                                           {"qwen3_moe", "Qwen2Tokenizer"},
                                                           {"qwen3_next", "Qwen2Tokenizer"},
                                                           {"roberta", "RobertaTokenizer"},
                                                           {"starcoder2", "GPT2Tokenizer"},
                                                           {"xlm-roberta", "XLMRobertaTokenizer"}};
  // These classes of Transformers 4 and 5 read the same file as BertTokenizer, with the same settings.
  static const std::set<std::string> kLikeBert{"ConvBertTokenizer",   "DistilBertTokenizer", "ElectraTokenizer",
                                               "LayoutLMTokenizer",   "LxmertTokenizer",     "MobileBertTokenizer",
                                               "SqueezeBertTokenizer"};
  std::string name = config.tokenizer_class;
  if (const fs::path file = model_dir / "config.json"; name.empty() && fs::is_regular_file(file)) {
    // read_json_file() also reads numbers such as Infinity, which are in some config.json.
    const JsonField model = JsonField::of_value(read_json_file(file), file.string());
    const auto known = kClasses.find(model.string_or("model_type", ""));
    name = model.string_or("tokenizer_class", known == kClasses.end() ? "" : known->second);
  }
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return kLikeBert.contains(name) ? "BertTokenizer" : name;
}

void name_class_tokens(const std::string& class_name, const std::function<bool(const std::string&)>& in_vocabulary,
                       TokenizerConfig& config) {
  const auto known = class_tokens().find(class_name);
  if (known == class_tokens().end()) return;
  for (size_t i = 0; i < TokenizerConfig::names().size(); ++i) {
    const auto& [key, token] = TokenizerConfig::names()[i];
    const std::string given = known->second[i];
    if (!(config.*token).empty() || given.empty() || config.null_tokens.contains(key) || !in_vocabulary(given))
      continue;
    config.*token = given;
    config.add_special(given);
  }
}

}  // namespace fettle
