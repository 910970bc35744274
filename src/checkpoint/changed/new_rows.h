// Defines write_new_rows, which writes the rows that new tokens need in the embedding and in the head.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "checkpoint/changed/new_tokens.h"
#include "checkpoint/repository.h"

namespace fettle {

// The numbers of rows of the embedding and the head.
struct VocabularyRows {
  int64_t before = 0;  // rows in the model's files
  int64_t after = 0;   // rows with the new tokens; a multiple of 64 if larger than `before`, as in LLaMA-Factory
  int64_t first = 0;   // the first row that is written; the rows before it stay
};
VocabularyRows vocabulary_rows(int64_t model_rows, const GrownTokenizer& tokenizer);

// Writes the file kNewRows in `folder`. It has the rows [rows.first, rows.after) of the embedding, and also those of
// the head if the head is a tensor of its own. A row is new if it belongs to a new token, which may get an unused row
// of the model, or if the model's files do not have the row. All other rows are old and keep their values. A new row is
// the mean of the old rows, plus noise with standard deviation 1 / sqrt(row length). Exception with
// tokens.from_descriptions: if the description of a new token has tokens with old rows, the new token's row is the mean
// of these rows, plus the noise if tokens.with_noise. The values depend only on the model, the tokens and tokens.seed.
// Throws UserError when a table does not have rows.before rows, and when a head with biases must grow.
void write_new_rows(const std::filesystem::path& folder, const ModelRepository& model, const VocabularyRows& rows,
                    const NewTokens& tokens, const GrownTokenizer& tokenizer);

}  // namespace fettle
