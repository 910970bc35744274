// Defines Decoder: how the spellings of tokens become text again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/json_field.h"

namespace fettle {

// Changes the list of token spellings; what remains at the end is joined. Safe to call from several threads.
using Decoder = std::function<void(std::vector<std::string>&)>;

// Reads the `decoder` of tokenizer.json. Throws UserError for a type that is not known, with those that are.
Decoder read_decoder(const JsonField& field);

}  // namespace fettle
