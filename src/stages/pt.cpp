// Stage pt: continued pre-training on plain texts.
#include "stages/stages.h"
#include "stages/tokens.h"

namespace fettle {

const Stage& pt_stage() {
  static const Stage stage{.name = "pt",
                           .learned = "plain text",
                           .rows = RowKind::kTexts,
                           .packs = true,
                           .batch = token_batch(),
                           .counts = trained_tokens,
                           .loss = token_stage_loss};
  return stage;
}

}  // namespace fettle
