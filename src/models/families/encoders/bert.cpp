// BERT: token types, a pooler of the first token. Source: transformers/models/bert.
#include "models/encoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

const std::string kBertPrefix = "bert.";

std::vector<Param> bert_params(const ModelConfig& config) {
  return encoder_params(config, kBertPrefix);
}

Tensor bert_forward(Forward& f) {
  return encoder_forward(f, kBertPrefix);
}

}  // namespace

Family bert_family() {
  Family family = encoder_family("bert", "BertModel", kBertPrefix, bert_params, bert_forward);
  // PEFT would give LoRA weights to the pooler. Fettle trains the pooler in full, because checkpoints of masked
  // language models lack it.
  family.classifier = {.architecture = "BertForSequenceClassification",
                       .pooled = Pooled::kFirst,
                       .modules = {"bert.pooler.dense", "classifier"},
                       .bias = true,
                       .saved = {"classifier", "pooler"},
                       .others = {"cls."}};
  return family;
}

}  // namespace fettle
