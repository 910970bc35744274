// Defines AdamW with block-wise 8-bit state: bitsandbytes' AdamW8bit.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m (signed) and v (unsigned), stored as in blockwise.h, with a quarter of AdamW's bytes. Small weights and
// embeddings use the state of adamw.h.
UpdateRule adamw_8bit_rule();

}  // namespace fettle
