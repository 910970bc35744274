// Defines AdamW with block-wise 8-bit state: bitsandbytes' AdamW8bit.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m (signed) and v (unsigned), stored as blockwise.h describes, in about a quarter of AdamW's bytes. Small
// weights and embeddings have the state that adamw.h describes.
UpdateRule adamw_8bit_rule();

}  // namespace fettle
