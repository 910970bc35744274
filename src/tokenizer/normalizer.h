// Defines Normalizer, which changes the text between added tokens before that text is cut into pieces.
#pragma once

#include <functional>
#include <string>

#include "tokenizer/json_field.h"

namespace fettle {

// Changes valid UTF-8 text in place. Several threads may call it at once.
using Normalizer = std::function<void(std::string&)>;

// Reads `normalizer` from tokenizer.json. Throws UserError, which lists the known types, when the type is unknown.
Normalizer read_normalizer(const JsonField& field);

}  // namespace fettle
