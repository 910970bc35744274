#include "kernels/cpu/block_ops.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "base/environment.h"

namespace fettle::cpu {

extern const BlockOps k_portable;
#ifdef __x86_64__
extern const BlockOps k_avx2, k_avx512, k_avx512_bf16, k_amx_bf16, k_amx_f32;
#endif

#ifdef __x86_64__
namespace {

// Asks Linux once for permission to use AMX's tiles in this process. Linux then saves the tiles with the state of each
// thread.
bool tiles_are_permitted() {
  constexpr int kRequestFeature = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA
  static const bool permitted = syscall(SYS_arch_prctl, kRequestFeature, kTileData) == 0;
  return permitted;
}

// Returns whether two products of f32 take less time than one product of pairs of bf16. This is true on Intel's cores
// that have AMX (benchmarks/kernels_202611.md). Cooper Lake multiplies pairs, but has no AMX. Cooper Lake was not
// measured, so products of pairs do not count as slow there.
bool pairs_are_slow() {
  return __builtin_cpu_is("intel") && !__builtin_cpu_is("cooperlake");
}

}  // namespace
#endif

std::vector<const BlockOps*> usable_block_ops(DType dtype) {
  std::vector<const BlockOps*> out{&k_portable};
#ifdef __x86_64__
  const std::string limit = environment("FETTLE_MAX_CPU_ISA");
  bool within = limit.empty() || out.back()->name != limit;
  // Returns whether this CPU has the table's instructions, so that the next table may be looked at.
  auto take = [&](const BlockOps& ops, bool supported, bool has_type = true) {
    if (!supported || !within) return false;
    if (has_type) out.push_back(&ops);
    within = limit.empty() || ops.name != limit;
    return true;
  };
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool narrow = dtype == DType::kBF16;
  take(k_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) && take(k_avx512, avx512) &&
      take(k_avx512_bf16, __builtin_cpu_supports("avx512bf16"), narrow) &&
      take(narrow ? k_amx_bf16 : k_amx_f32, __builtin_cpu_supports("amx-bf16") && tiles_are_permitted());
#endif
  return out;
}

const BlockOps& block_ops(DType dtype) {
  const BlockOps& best = *usable_block_ops(dtype).back();
#ifdef __x86_64__
  if (&best == &k_avx512_bf16 && pairs_are_slow()) return k_avx512;
#endif
  return best;
}

bool has_fast_ops(DType dtype) {
  return &block_ops(dtype) != &k_portable;
}

}  // namespace fettle::cpu
