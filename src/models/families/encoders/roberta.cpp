// RoBERTa and XLM-RoBERTa: positions start after the padding token's id; the head has two layers. Source:
// transformers/models/roberta.
#include "base/error.h"
#include "models/encoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

const std::string kRobertaPrefix = "roberta.";

ModelConfig read_roberta(const ConfigReader& r) {
  ModelConfig c = read_encoder_config(r);
  c.first_position = c.pad_token_id.value_or(1) + 1;
  c.max_position_embeddings -= c.first_position;
  if (c.max_position_embeddings <= 0)
    throw UserError("{}: max_position_embeddings is too small: positions begin after pad_token_id ({})", r.file(),
                    c.first_position - 1);
  return c;
}

std::vector<Param> roberta_params(const ModelConfig& config) {
  return encoder_params(config, kRobertaPrefix);
}

Tensor roberta_forward(Forward& f) {
  return encoder_forward(f, kRobertaPrefix);
}

Family family_of_type(const char* model_type, const char* name) {
  Family family =
      encoder_family(model_type, std::string(name) + "Model", kRobertaPrefix, roberta_params, roberta_forward);
  family.read = read_roberta;
  family.classifier = {.architecture = std::string(name) + "ForSequenceClassification",
                       .pooled = Pooled::kFirst,
                       .modules = {"classifier.dense", "classifier.out_proj"},
                       .bias = true,
                       .saved = {"classifier"},
                       .others = {"lm_head.", "roberta.pooler.", "pooler."}};
  return family;
}

}  // namespace

Family roberta_family() {
  return family_of_type("roberta", "Roberta");
}

Family xlm_roberta_family() {
  return family_of_type("xlm-roberta", "XLMRoberta");
}

}  // namespace fettle
