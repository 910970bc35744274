// Stage sft: supervised fine-tuning on conversations.
#include "stages/stages.h"
#include "stages/tokens.h"

namespace fettle {

const Stage& sft_stage() {
  static const Stage stage{.name = "sft",
                           .learned = "conversations",
                           .rows = RowKind::kConversations,
                           .batch = token_batch(),
                           .counts = trained_tokens,
                           .loss = token_stage_loss};
  return stage;
}

}  // namespace fettle
