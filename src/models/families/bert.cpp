// BERT: token types, a pooler of the first token. Source: transformers/models/bert.
#include "models/encoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

const std::string kPrefix = "bert.";

std::vector<WeightRow> weights(const ModelConfig& config) {
  return encoder_weights(config, kPrefix);
}

Tensor forward(Forward& f) {
  return encoder_forward(f, kPrefix);
}

}  // namespace

Family bert_family() {
  Family family = encoder_family("bert", "BertModel", kPrefix, weights, forward);
  // PEFT would give the pooler a pair; it is trained whole, because checkpoints of masked language models lack it.
  family.classifier = {.architecture = "BertForSequenceClassification",
                       .pooled = Pooled::kFirst,
                       .modules = {"bert.pooler.dense", "classifier"},
                       .bias = true,
                       .saved = {"classifier", "pooler"},
                       .others = {"cls."}};
  return family;
}

}  // namespace fettle
