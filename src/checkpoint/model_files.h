// Defines which small files belong to a model folder.
#pragma once

#include <string>

namespace fettle {

// The folder of chat templates with other names than "default", as Transformers keeps them: NAME.jinja.
inline constexpr const char* kChatTemplates = "additional_chat_templates";

// Returns true for tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat templates, ...
bool is_tokenizer_file(const std::string& name);
// Returns true for tokenizer files, config.json, generation_config.json and the configs of processors of images, sound
// and videos.
bool is_model_file(const std::string& name);
// Returns true for a model card (README.md) and for the text of a licence (LICENSE, LICENSE.txt, LICENSE.md).
bool is_licence_file(const std::string& name);

}  // namespace fettle
