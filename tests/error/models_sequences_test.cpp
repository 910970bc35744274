// Tests that a micro-batch with too many positions for a classifier is an error of the user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ops.h"
#include "graph/program.h"
#include "models/blocks/sequences.h"

namespace fettle {
namespace {

TEST(Sequences, RefuseAMicroBatchThatIsTooLarge) {
  Program program;
  const BuildScope scope(program.block());
  const Tensor numbers = full(1, {DType::kI32, {4096, 4096}}), counted = full(1, {DType::kPred, {4096, 4096}});
  const Tensor x = full(0, {DType::kF32, {4096, 4096, 1}});
  EXPECT_THAT([&] { last_counted_of_sequences(x, counted, numbers, 4096); },
              testing::ThrowsMessage<UserError>(testing::AllOf(testing::HasSubstr("4096 rows of 4096"),
                                                               testing::HasSubstr("per_device_train_batch_size"))));
}

}  // namespace
}  // namespace fettle
