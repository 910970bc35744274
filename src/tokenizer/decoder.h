// Defines Decoder, which turns the strings of tokens into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/json_field.h"

namespace fettle {

// Changes the list of token strings. The caller joins the final list. Several threads may call it at once.
using Decoder = std::function<void(std::vector<std::string>&)>;

// Reads `decoder` from tokenizer.json. Throws UserError, which lists the known types, when the type is unknown.
Decoder read_decoder(const JsonField& field);

}  // namespace fettle
