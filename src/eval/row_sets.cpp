#include "eval/row_sets.h"

#include <fmt/ranges.h>

#include "base/log.h"
#include "data/dataset.h"

namespace fettle {

RowSet read_own_set(Recipe recipe, const Tokenizer& tokenizer, int64_t vocab_size) {
  recipe.eval_dataset.clear();
  const bool unlabelled = recipe.stage == "cls";
  const Datasets data = load_datasets(recipe, tokenizer, vocab_size, unlabelled);
  return {fmt::format("{}", fmt::join(recipe.dataset, ", ")), data.eval.empty() ? data.train : data.eval,
          data.report.notes};
}

RowSet read_named_set(Recipe recipe, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size) {
  recipe.dataset = {name};
  recipe.val_size = 0;
  recipe.mix_strategy = "concat";
  return read_own_set(recipe, tokenizer, vocab_size);
}

std::vector<RowSet> read_row_sets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<RowSet> sets;
  auto add = [&](RowSet set) {
    for (const std::string& note : set.notes) info("data: {}", note);
    sets.push_back(std::move(set));
  };
  if (recipe.eval_dataset.empty()) add(read_own_set(recipe, tokenizer, vocab_size));
  for (const std::string& name : recipe.eval_dataset) add(read_named_set(recipe, name, tokenizer, vocab_size));
  return sets;
}

}  // namespace fettle
