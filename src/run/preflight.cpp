#include "run/preflight.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace fettle {

void check_positions(const Run& run, const Examples& examples) {
  const int64_t known = run.model.config.max_position_embeddings;
  int64_t longest = 0, at = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i)
    if (examples.length(i) > longest) {
      longest = examples.length(i);
      at = i;
    }
  if (known <= 0 || longest <= known) return;
  if (std::ranges::find(run.model.params, Role::kPositionEmbedding, &Param::role) != run.model.params.end())
    throw UserError(
        "{}: the row has {} tokens, but the model has learned embeddings for {} positions; set cutoff_len: {} "
        "(overlength says whether longer rows are cut or dropped)",
        examples.source(at), longest, known, known);
  warn(
      "{}: the row has {} tokens, but the model was trained for {} (max_position_embeddings); set cutoff_len: {} to "
      "avoid this",
      examples.source(at), longest, known, known);
}

void check_vocabulary(const Run& run, const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  if (run.model.config.vocab_size < tokenizer.vocab_size())
    throw UserError(
        "{}: the model's vocabulary has {} entries, but the tokenizer has {} tokens; all models that eval compares "
        "must have the same vocabulary",
        folder.string(), run.model.config.vocab_size, tokenizer.vocab_size());
}

}  // namespace fettle
