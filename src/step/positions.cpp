#include "step/positions.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace fettle {

void check_positions(const Job& job, const Examples& examples) {
  const int64_t known = job.model.config.max_position_embeddings;
  int64_t longest = 0, at = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i)
    if (examples.length(i) > longest) {
      longest = examples.length(i);
      at = i;
    }
  if (known <= 0 || longest <= known) return;
  if (std::ranges::find(job.model.params, Role::kPositionEmbedding, &Param::role) != job.model.params.end())
    throw UserError(
        "{}: the row has {} tokens, but the model's table has {} positions; set cutoff_len: {} (overlength says "
        "whether longer rows are cut or dropped)",
        examples.source(at), longest, known, known);
  warn(
      "{}: the row has {} tokens, but the model was made for {} (max_position_embeddings); cutoff_len: {} keeps within",
      examples.source(at), longest, known, known);
}

void check_vocabulary(const Job& job, const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  if (job.model.config.vocab_size < tokenizer.vocab_size())
    throw UserError("{}: a vocabulary of {}, but the tokenizer has {} tokens; both models must have the same one",
                    folder.string(), job.model.config.vocab_size, tokenizer.vocab_size());
}

}  // namespace fettle
