#include "eval/row_sets.h"

#include <fmt/ranges.h>

#include "data/dataset.h"

namespace fettle {

RowSet read_own_set(DataSpec spec, const Tokenizer& tokenizer, int64_t vocab_size) {
  spec.eval_sets.clear();
  // Training holds out rows among those with a label. The same rows are held out only if no others are read.
  spec.labels_optional = spec.val_size == 0;
  const Datasets data = load_datasets(spec, tokenizer, vocab_size);
  return {fmt::format("{}", fmt::join(set_titles(spec.sets), ", ")), data.eval.empty() ? data.train : data.eval,
          data.report.notes};
}

RowSet read_named_set(DataSpec spec, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size) {
  spec.sets = {name};
  spec.val_size = 0;
  spec.mix = Mix::kConcat;
  return read_own_set(std::move(spec), tokenizer, vocab_size);
}

}  // namespace fettle
