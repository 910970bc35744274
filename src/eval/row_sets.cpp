#include "eval/row_sets.h"

#include <fmt/ranges.h>

#include "base/log.h"
#include "data/dataset.h"

namespace fettle {

RowSet read_own_set(DataSpec spec, const Tokenizer& tokenizer, int64_t vocab_size) {
  spec.eval_sets.clear();
  spec.labels_optional = true;
  const Datasets data = load_datasets(spec, tokenizer, vocab_size);
  return {fmt::format("{}", fmt::join(spec.sets, ", ")), data.eval.empty() ? data.train : data.eval, data.report.notes};
}

RowSet read_named_set(DataSpec spec, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size) {
  spec.sets = {name};
  spec.val_size = 0;
  spec.mix = Mix::kConcat;
  return read_own_set(std::move(spec), tokenizer, vocab_size);
}

std::vector<RowSet> read_row_sets(const DataSpec& spec, const Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<RowSet> sets;
  auto add = [&](RowSet set) {
    for (const std::string& note : set.notes) info("data: {}", note);
    sets.push_back(std::move(set));
  };
  if (spec.eval_sets.empty()) add(read_own_set(spec, tokenizer, vocab_size));
  for (const std::string& name : spec.eval_sets) add(read_named_set(spec, name, tokenizer, vocab_size));
  return sets;
}

}  // namespace fettle
