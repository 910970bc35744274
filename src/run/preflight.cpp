#include "run/preflight.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "adapters/lora.h"
#include "base/error.h"
#include "base/log.h"
#include "base/size_text.h"
#include "checkpoint/peft/adapter_files.h"

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

void warn_of_stored_tables(const Run& run) {
  if (!run.adapter.lora || run.adapter.folder.empty() || run.model.classifies()) return;
  const std::vector<std::string> listed =
      read_adapter_config(run.adapter.folder, {.dora = true, .modules_to_save = true, .target_parameters = true})
          .modules_to_save;
  std::vector<Param> tables;
  std::vector<std::string> names;
  for (const Param& param : run.trained) {
    const std::string head = param.role == Role::kTokenEmbedding ? tied_head(run.model) : "";
    const auto has = [&](const std::string& name) { return saved_with(param.hf_name, name) || saved_with(head, name); };
    if ((param.role != Role::kTokenEmbedding && param.role != Role::kHead) || std::ranges::any_of(listed, has))
      continue;
    tables.push_back(param);
    names.push_back(param.hf_name);
  }
  if (tables.empty()) return;
  warn(
      "{} stores {}, which its modules_to_save do not name: PEFT keeps them as they are, but Fettle trains their {} "
      "parameters in full; to keep them, set create_new_adapter: true, which merges the adapter and trains a new one",
      run.adapter.folder, fmt::join(names, " and "), with_commas(run.count(tables)));
}

void check_vocabulary(const Run& run, const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  if (run.model.config.vocab_size < tokenizer.vocab_size())
    throw UserError(
        "{}: the model's vocabulary has {} entries, but the tokenizer has {} tokens; all models that eval compares "
        "must have the same vocabulary",
        folder.string(), run.model.config.vocab_size, tokenizer.vocab_size());
}

}  // namespace fettle
