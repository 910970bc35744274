// Tests that configs of published Gemma 3 models, which leave out fields with default values, are read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/model.h"

namespace fettle {
namespace {

// The text part of the 4B model's config.json, as published.
TEST(Gemma3, MissingFieldsHaveTheDefaultsOfTransformers) {
  const nlohmann::json config = {{"model_type", "gemma3"},
                                 {"torch_dtype", "bfloat16"},
                                 {"vision_config", {{"hidden_size", 1152}}},
                                 {"text_config",
                                  {{"hidden_size", 2560},
                                   {"intermediate_size", 10240},
                                   {"model_type", "gemma3_text"},
                                   {"num_hidden_layers", 34},
                                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                   {"sliding_window", 1024}}}};
  const ModelConfig c = make_model(config, "config.json").config;
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.num_attention_heads, 8);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.attention_scale, 1.0 / 16);
  EXPECT_EQ(c.window[0], 1024);
  EXPECT_EQ(c.window[5], 0);
}

}  // namespace
}  // namespace fettle
