#define FETTLE_LANES 4
#include "kernels/instruction_sets/block_ops_body.h"

namespace fettle::cpu {

extern const BlockOps k_portable;
const BlockOps k_portable = make_table("portable");

}  // namespace fettle::cpu
