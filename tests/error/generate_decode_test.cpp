#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "generate/decode.h"
#include "generate/sample.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

TEST(DecodeErrors, TokensThatCannotBeContinued) {
  Loaded model(reference_recipe("gpt2"));
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids(129, 1), wrong{1, 256}, negative{-1};
  EXPECT_THAT(user_error([&] { generator.logits({}); }), HasSubstr("the prompt is empty"));
  EXPECT_THAT(user_error([&] { generator.logits(ids); }),
              testing::AllOf(HasSubstr("129"), HasSubstr("max_position_embeddings of 128"), HasSubstr("shorten")));
  EXPECT_THAT(user_error([&] { generator.logits(wrong); }), HasSubstr("token id 256"));
  EXPECT_THAT(user_error([&] { generator.logits(negative); }), HasSubstr("token id -1"));
  EXPECT_EQ(generator.logits(std::span(ids).first(128)).size(), 256u);
}

TEST(SampleErrors, BrokenLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const bool do_sample : {false, true}) {
    const SamplingOptions options{.do_sample = do_sample};
    for (const std::vector<float>& logits : {std::vector<float>{1, nan, 2}, {1, inf}, {-inf, -inf}, {}})
      EXPECT_THAT(user_error([&] { sample(logits, options, 0); }), HasSubstr("weights are broken"));
    EXPECT_EQ(sample(std::vector<float>{-inf, 3}, options, 0), 1);
  }
}

}  // namespace
}  // namespace fettle
