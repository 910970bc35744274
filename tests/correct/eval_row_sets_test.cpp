// Tests which rows of a data set `eval` measures.
#include <gtest/gtest.h>

#include "data/classes/settle_labels.h"
#include "data/dataset.h"
#include "data_fixtures.h"
#include "eval/row_sets.h"

namespace fettle {
namespace {

// Training leaves out rows without a label before it holds out rows.
TEST(RowSets, AreTheRowsThatTrainingHeldOut) {
  const TempFolder folder;
  std::string rows;
  for (int i = 0; i < 30; ++i)
    rows += nlohmann::json{{"text", std::string(static_cast<size_t>(i + 1), 'a')}, {"label", i % 3 == 1 ? "" : "x"}}
                .dump() +
            "\n";
  DataSpec spec;
  spec.rows = RowKind::kLabelled;
  spec.cache = "off";
  spec.dataset_dir = folder.path();
  spec.sets = {folder.write("rows.jsonl", rows).string()};
  spec.on_bad_row = OnBadRow::kSkip;
  spec.val_size = 4;
  LabelRequest request;
  request.id2label = {"x", "y"};
  spec.labels = settle_labels(request, {}, spec);
  const Tokenizer tokenizer = TestTokenizer{}.open();
  const auto sources = [](const Examples& some) {
    std::vector<std::string> out;
    for (int64_t i = 0; i < std::ssize(some); ++i) out.push_back(some.source(i));
    return out;
  };
  EXPECT_EQ(sources(read_own_set(spec, tokenizer, 0).rows), sources(load_datasets(spec, tokenizer, 0).eval));
  spec.val_size = 0;
  EXPECT_EQ(read_own_set(spec, tokenizer, 0).rows.size(), 30u) << "rows without a label get a prediction";
}

}  // namespace
}  // namespace fettle
