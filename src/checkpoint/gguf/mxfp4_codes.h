// Defines functions that copy the MXFP4 codes of experts to the blocks of a GGUF file, without decoding them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fettle {

struct TensorEntry;

// Returns whether the tensor [E, in, out] has codes that copy_mxfp4_codes() can copy: it is stored in MXFP4 in
// safetensors (Mxfp4Parts) or in a GGUF file (JoinedExperts).
bool has_mxfp4_codes(const TensorEntry& entry);

// Returns the GGUF blocks of `count` outputs of an expert, those with the numbers `first`, `first + step`, ... Each
// output has `in / 32` blocks.
std::vector<std::byte> copy_mxfp4_codes(const TensorEntry& entry, int64_t expert, int64_t first, int64_t step,
                                        int64_t count);

}  // namespace fettle
