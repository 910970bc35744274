#define FETTLE_LANES 8
#include "kernels/instruction_sets/block_ops_body.h"

namespace fettle::cpu {

extern const BlockOps k_avx2;
const BlockOps k_avx2 = make_table("avx2");

}  // namespace fettle::cpu
