// Defines checks of a run before it begins: that the model has positions for the longest example and embeddings for all
// tokens.
#pragma once

#include <filesystem>

#include "data/store/examples.h"
#include "run/run.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// Compares the longest example with the model's max_position_embeddings. If the example is longer, throws UserError for
// a model with a table of learned positions (GPT-2, StarCoder). Only warns for a model that computes its positions
// (rope, ALiBi): such a model can run, but was not trained for that length.
void check_positions(const Run& run, const Examples& examples);

// Throws UserError when the tokenizer has more tokens than the vocabulary of the model in `folder`.
void check_vocabulary(const Run& run, const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace fettle
