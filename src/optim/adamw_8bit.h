// Defines AdamW with block-wise 8-bit state: bitsandbytes' AdamW8bit.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m and v as blockwise.h keeps them, m signed and v unsigned; small weights and embeddings as in adamw.h. A
// fourth of AdamW's bytes.
UpdateRule adamw_8bit_rule();

}  // namespace fettle
