// Tests which position of a sequence the head of a classifier reads.
#include <gtest/gtest.h>

#include "graph_run.h"
#include "models/blocks/sequences.h"

namespace fettle {
namespace {

// Two lines: sequence 1 and then sequence 2; then sequence 3, whose tokens are all 9, and padding. Sequence 4 is
// absent. x is 10, 11, ... for the positions of the first line and 20, 21, ... for those of the second.
std::vector<double> last(const std::vector<double>& tokens, double without) {
  GraphRun run;
  const Tensor x = run.input(f32({2, 5, 1}, {10, 11, 12, 13, 14, 20, 21, 22, 23, 24}));
  const Tensor numbers = run.input(i32({2, 5}, {1, 1, 1, 2, 2, 3, 3, 0, 0, 0}));
  const Tensor counted = compare(run.input(i32({2, 5}, tokens)), Direction::kNE, constant(without, DType::kI32));
  run.output("last", last_counted_of_sequences(x, counted, numbers, 4));
  return run.run().at("last").elements;
}

TEST(LastOfSequences, LeavesTokensAtTheEndOut) {
  const std::vector<double> tokens = {9, 5, 9, 6, 7, 9, 9, 9, 9, 9};
  EXPECT_EQ(last(tokens, 9), (std::vector<double>{11, 14, 20, 0})) << "9 is the token that does not count";
  EXPECT_EQ(last(tokens, 7), (std::vector<double>{12, 13, 21, 0}));
  EXPECT_EQ(last(tokens, 1), (std::vector<double>{12, 14, 21, 0})) << "all tokens count";
}

}  // namespace
}  // namespace fettle
