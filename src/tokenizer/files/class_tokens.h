// Defines functions for the classes that Transformers has for tokenizers, and for the tokens that each class names.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <string>

#include "tokenizer/tokenizer_config.h"

namespace fettle {

// Returns the class that the folder declares, without "Fast" at its end: tokenizer_class in tokenizer_config.json or
// config.json, or else the class of the model_type in config.json. Returns an empty string when neither is known.
// Returns "BertTokenizer" for classes that are the same as it, such as DistilBertTokenizer.
std::string tokenizer_class_of(const std::filesystem::path& model_dir, const TokenizerConfig& config);

// Returns the class with which Transformers 5 opens the folder's tokenizer.json. It is not the declared one for some
// model_types, nor for a LlamaTokenizer whose tokenizer.json is byte-level. If the class is unknown or names no tokens,
// the result is no key of the classes that name_class_tokens knows.
std::string tokenizer_json_class_of(const std::filesystem::path& model_dir, const TokenizerConfig& config);

// Returns the class's eos_token; empty when it names none.
std::string end_token_of_class(const std::string& class_name);

// Gives the tokens that have no name in `config` the names of the class, if the vocabulary has them. A name that a file
// sets to null or "" stays empty. Does nothing for a class that names no tokens.
void name_class_tokens(const std::string& class_name, const std::function<bool(const std::string&)>& in_vocabulary,
                       TokenizerConfig& config);

}  // namespace fettle
