// Stage sft: supervised fine-tuning on conversations.
//
// Sources of the losses: DFT Wu 2025, ASFT Zhu 2025, EAFT 2026. Each loss is averaged over the trained tokens.
#include "base/error.h"
#include "stages/preferences.h"
#include "stages/stages.h"
#include "stages/tokens.h"

namespace fettle {
namespace {

bool sft_compares(const KeyValues& keys) {
  return keys.text("sft_loss") == "asft";
}

void sft_check(const KeyValues& keys) {
  const std::string& kind = keys.text("sft_loss");
  auto refuse = [&](const char* key, const char* reader) {
    if (keys.changed(key))
      throw UserError("{}: {} belongs to sft_loss: {}, found sft_loss: {}; remove the key, or change sft_loss",
                      keys.where(key), key, reader, kind);
  };
  if (kind != "eaft") refuse("eaft_alpha", "eaft");
  if (kind == "asft") return check_reference_start(keys);
  refuse("asft_alpha", "asft");
  refuse("ref_model", "asft");
}

BatchLoss sft_loss(const LossInputs& in) {
  // A run of another stage also calls this function, to evaluate replies. Such a run has no keys of this stage, so the
  // keys are read only after the next line.
  if (!in.differentiable) return token_stage_loss(in);
  const std::string& kind = in.keys.text("sft_loss");
  if (kind == "cross_entropy") return token_stage_loss(in);
  TokenObjective objective{.weight = TokenObjective::Weight::kProbability};
  if (kind == "eaft") objective = {.weight = TokenObjective::Weight::kEntropy, .power = in.keys.number("eaft_alpha")};
  if (kind == "asft") {
    const ModelPass reference = in.reference();
    objective.near = in.keys.number("asft_alpha");
    objective.other_BTD = reference.hidden_BTD;
    objective.other_head = reference.head;
  }
  return {.sum = in.trained
                     .token_loss(in.batch.at(BatchPart::kTargets), {.differentiable = true,
                                                                    .head_trained = in.head_trained,
                                                                    .weights_BT = target_weights(in.batch),
                                                                    .objective = objective})
                     .sum};
}

}  // namespace

const Stage& sft_stage() {
  static const Stage stage{.name = "sft",
                           .learned = "conversations",
                           .rows = RowKind::kConversations,
                           .batch = token_batch(),
                           .keys = {"sft_loss", "eaft_alpha", "asft_alpha", "ref_model"},
                           .check = sft_check,
                           .compares = sft_compares,
                           .counts = trained_tokens,
                           .loss = sft_loss};
  return stage;
}

}  // namespace fettle
