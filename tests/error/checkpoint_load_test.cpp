// Tests weights that contradict config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "model_copies.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Makes a model with a tied head whose checkpoint also has a head: the embedding with `change` added to its last
// element. Returns the message about it; "" if there is none.
std::string message_about_head(float change) {
  const ModelRepository from = ModelRepository::open(reference_model("gemma2"));
  NamedArrays tensors;
  for (const std::string& name : from.names())
    tensors.emplace_back(name, from.find(name).file->read(*from.find(name).entry));
  const StoredTensor table = from.find("model.embed_tokens.weight");
  HostArray head = table.file->read(*table.entry).to(DType::kF32);
  head.as<float>().back() += change;
  tensors.emplace_back("lm_head.weight", head.to(table.entry->shape.dtype));
  TempFolder folder;
  write_model(folder / "model", from.config(), tensors);
  const ModelRepository model = ModelRepository::open(folder / "model");
  try {
    check_weights(model, make_model(model.config(), "config.json"));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(TiedHead, ACopyOfTheEmbeddingIsAccepted) {
  EXPECT_EQ(message_about_head(0), "");
}

// Transformers 5 uses a head that differs, whatever tie_word_embeddings says.
TEST(TiedHead, AnotherHeadIsRefused) {
  EXPECT_THAT(message_about_head(1), AllOf(HasSubstr("lm_head.weight differs from model.embed_tokens.weight"),
                                           HasSubstr("set tie_word_embeddings: false in config.json")));
}

}  // namespace
}  // namespace fettle
