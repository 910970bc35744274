#define FETTLE_LANES 16
#define FETTLE_PAIRS
#include "kernels/instruction_sets/block_ops_body.h"

namespace fettle::cpu {

extern const BlockOps k_avx512_bf16;
const BlockOps k_avx512_bf16 = make_table("avx512_bf16");

}  // namespace fettle::cpu
