// Defines Normalizer: what is done to the whole text between added tokens before it is cut into pieces.
#pragma once

#include <functional>
#include <string>

#include "tokenizer/json_field.h"

namespace fettle {

// Changes valid UTF-8 text in place. Safe to call from several threads.
using Normalizer = std::function<void(std::string&)>;

// Reads the `normalizer` of tokenizer.json. Throws UserError for a type that is not known, with those that are.
Normalizer read_normalizer(const JsonField& field);

}  // namespace fettle
