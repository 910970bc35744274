// Defines which small files belong to a model folder.
#pragma once

#include <string>

namespace fettle {

// True for tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat templates, ...
bool is_tokenizer_file(const std::string& name);
// True for tokenizer files, config.json and generation_config.json.
bool is_model_file(const std::string& name);

}  // namespace fettle
