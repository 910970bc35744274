// Names the small files of a model folder.
#pragma once

#include <string>

namespace fettle {

// tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat templates, ...
bool is_tokenizer_file(const std::string& name);
// These, config.json and generation_config.json.
bool is_model_file(const std::string& name);

}  // namespace fettle
