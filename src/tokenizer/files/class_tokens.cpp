#include "tokenizer/files/class_tokens.h"

#include <map>
#include <set>

#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
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

// The class of Transformers that names no tokens itself.
constexpr const char* kBackend = "TokenizersBackend";

// The class that Transformers registers for a model_type. Where it registers MistralCommonBackend, which reads a
// tekken.json, it opens a tokenizer.json with TokenizersBackend.
const std::map<std::string, std::string>& registered_classes() {
  static const std::map<std::string, std::string> classes{{"bert", "BertTokenizer"},
                                                          {"cohere2", "CohereTokenizer"},
                                                          {"ernie4_5", kBackend},
                                                          {"ernie4_5_moe", kBackend},
                                                          {"gemma", "GemmaTokenizer"},
                                                          {"gemma2", "GemmaTokenizer"},
                                                          {"gemma3", "GemmaTokenizer"},
                                                          {"gemma3_text", "GemmaTokenizer"},
                                                          {"glm", kBackend},
                                                          {"glm4", kBackend},
                                                          {"glm4_moe", kBackend},
                                                          {"glm4_moe_lite", kBackend},
                                                          {"gpt2", "GPT2Tokenizer"},
                                                          {"gpt_bigcode", kBackend},
                                                          {"gpt_neox", "GPTNeoXTokenizer"},
                                                          {"granite", kBackend},
                                                          {"granitemoe", kBackend},
                                                          {"granitemoehybrid", kBackend},
                                                          {"minimax_m2", kBackend},
                                                          {"ministral3", kBackend},
                                                          {"mistral", kBackend},
                                                          {"mistral3", kBackend},
                                                          {"mixtral", kBackend},
                                                          {"modernbert", kBackend},
                                                          {"olmo2", kBackend},
                                                          {"olmo3", kBackend},
                                                          {"phi", "GPT2Tokenizer"},
                                                          {"phi3", kBackend},
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
  return classes;
}

// Classes without "Fast" at their ends; empty when unknown.
struct FoundClasses {
  std::string declared;    // tokenizer_class in tokenizer_config.json or config.json
  std::string registered;  // the class of the model_type
  std::string model_type;
};

FoundClasses find_classes(const fs::path& model_dir, const TokenizerConfig& config) {
  // These classes of Transformers 4 and 5 read the same file as BertTokenizer, with the same settings.
  static const std::set<std::string> kLikeBert{"ConvBertTokenizer",   "DistilBertTokenizer", "ElectraTokenizer",
                                               "LayoutLMTokenizer",   "LxmertTokenizer",     "MobileBertTokenizer",
                                               "SqueezeBertTokenizer"};
  FoundClasses found{config.tokenizer_class, "", ""};
  if (const fs::path file = model_dir / "config.json"; fs::is_regular_file(file)) {
    // read_json_file() also reads numbers such as Infinity, which are in some config.json.
    const JsonField model = JsonField::of_value(read_json_file(file), file.string());
    found.model_type = model.string_or("model_type", "");
    if (found.declared.empty()) found.declared = model.string_or("tokenizer_class", "");
  }
  const auto known = registered_classes().find(found.model_type);
  if (known != registered_classes().end()) found.registered = known->second;
  if (found.declared.ends_with("Fast")) found.declared.resize(found.declared.size() - 4);
  if (kLikeBert.contains(found.declared)) found.declared = "BertTokenizer";
  return found;
}

}  // namespace

std::string tokenizer_class_of(const fs::path& model_dir, const TokenizerConfig& config) {
  const FoundClasses found = find_classes(model_dir, config);
  return found.declared.empty() ? found.registered : found.declared;
}

std::string tokenizer_json_class_of(const fs::path& model_dir, const TokenizerConfig& config) {
  // Many folders of these models declare a wrong class.
  static const std::set<std::string> kOftenWrong{"qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"};
  const FoundClasses found = find_classes(model_dir, config);
  if (found.declared.empty() || found.registered == kBackend || kOftenWrong.contains(found.model_type))
    return found.registered;
  // LlamaTokenizer is not byte-level.
  if (found.declared == "LlamaTokenizer" &&
      read_file(model_dir / "tokenizer.json").find("\"ByteLevel\"") != std::string::npos)
    return kBackend;
  return found.declared;
}

std::string end_token_of_class(const std::string& class_name) {
  const auto known = class_tokens().find(class_name);
  return known == class_tokens().end() ? "" : known->second[1];
}

void name_class_tokens(const std::string& class_name, const std::function<bool(const std::string&)>& in_vocabulary,
                       TokenizerConfig& config) {
  const auto known = class_tokens().find(class_name);
  if (known == class_tokens().end()) return;
  for (size_t i = 0; i < TokenizerConfig::names().size(); ++i) {
    const auto& [key, token] = TokenizerConfig::names()[i];
    const std::string given = known->second[i];
    if (!(config.*token).empty() || config.null_tokens.contains(key) || config.empty_tokens.contains(key)) continue;
    if (given.empty() || !in_vocabulary(given)) continue;
    config.*token = given;
    config.add_special(given);
  }
}

}  // namespace fettle
