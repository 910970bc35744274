// Defines write_new_rows, which gives new tokens their rows of the embedding and of the head.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "checkpoint/changed/new_tokens.h"
#include "checkpoint/repository.h"

namespace fettle {

// How many rows embedding and head have.
struct VocabularyRows {
  int64_t before = 0;  // those of the model
  int64_t after = 0;   // a multiple of 64 if it is larger, as in LLaMA-Factory
  int64_t first = 0;   // rows below it stay
};
VocabularyRows vocabulary_rows(int64_t model_rows, const GrownTokenizer& tokenizer);

// Writes the rows from `rows.first` on into kNewRows of `folder`, for the embedding and for a head of its own. The row
// of a new token is the mean of the others with noise of deviation 1 / sqrt(its size), or the mean of its description's
// tokens; so are rows that belong to no token. Other rows keep their values. They depend only on the model, the tokens
// and tokens.seed.
void write_new_rows(const std::filesystem::path& folder, const ModelRepository& model, const VocabularyRows& rows,
                    const NewTokens& tokens, const GrownTokenizer& tokenizer);

}  // namespace fettle
