#define FETTLE_LANES 16
#include "kernels/instruction_sets/block_ops_body.h"

namespace fettle::cpu {

extern const BlockOps k_avx512;
const BlockOps k_avx512 = make_table("avx512");

}  // namespace fettle::cpu
