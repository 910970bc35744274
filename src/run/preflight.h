// Defines check_positions and check_vocabulary: whether the model has a place and an embedding for all of its tokens.
#pragma once

#include <filesystem>

#include "data/store/examples.h"
#include "run/run.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// Throws UserError when an example is longer than a table of learned positions (GPT-2, StarCoder), which has nothing
// for the rest; says so on stderr when it is longer than max_position_embeddings of a model whose positions are
// computed (rope, ALiBi), which runs but was not made for it.
void check_positions(const Run& run, const Examples& examples);

// Throws UserError when the tokenizer has more tokens than the model of `folder`.
void check_vocabulary(const Run& run, const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace fettle
