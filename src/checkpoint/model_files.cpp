#include "checkpoint/model_files.h"

#include <set>

namespace fettle {

bool is_tokenizer_file(const std::string& name) {
  static const std::set<std::string> kNames{"tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "vocab.txt",
                                            "spiece.model",
                                            "tekken.json",
                                            "tiktoken.model",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "sentencepiece.bpe.model"};
  return kNames.count(name) != 0 || name.starts_with("tokenizer.model") || name.ends_with(".tiktoken") ||
         (name.starts_with("tokenization_") && name.ends_with(".py"));
}

bool is_model_file(const std::string& name) {
  static const std::set<std::string> kNames{"config.json", "generation_config.json",
                                            // how Transformers prepares images, sound and videos for the model
                                            "preprocessor_config.json", "processor_config.json",
                                            "video_preprocessor_config.json"};
  return is_tokenizer_file(name) || kNames.count(name) != 0;
}

bool is_licence_file(const std::string& name) {
  return name == "README.md" || name == "LICENSE" || name == "LICENSE.txt" || name == "LICENSE.md";
}

}  // namespace fettle
