// Declares the encoders of BlockType. Each encodes the values of one block. The values must be finite.
//
// If a block's scale exceeds the largest f16, its values decode to infinity or NaN. The caller must check that.
//
// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 give the same bytes as gguf-py's quants.py. gguf-py has no
// encoder for the K types. For each group, Fettle's encoders of the K types search for the scales with the smallest
// squared error. As in llama.cpp, the error of a large value weighs more. On random values, the error is within a few
// percent of the error of llama.cpp's encoder. On two tensors that had been decoded from Q4_1, Fettle's Q4_K has 0.75
// times the error of llama.cpp's.
#pragma once

#include <cstdint>

namespace fettle {

void encode_f32(const float* values, uint8_t* block);
void encode_f16(const float* values, uint8_t* block);
void encode_bf16(const float* values, uint8_t* block);
void encode_q8_0(const float* values, uint8_t* block);
void encode_q4_0(const float* values, uint8_t* block);
void encode_q4_1(const float* values, uint8_t* block);
void encode_q5_0(const float* values, uint8_t* block);
void encode_q5_1(const float* values, uint8_t* block);
void encode_mxfp4(const float* values, uint8_t* block);
void encode_q2_k(const float* values, uint8_t* block);
void encode_q3_k(const float* values, uint8_t* block);
void encode_q4_k(const float* values, uint8_t* block);
void encode_q5_k(const float* values, uint8_t* block);
void encode_q6_k(const float* values, uint8_t* block);

// Twice the values of MXFP4's codes 0 to 15.
inline constexpr int kMxfp4Doubles[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Returns 2^(exponent - 128), which is half the scale of an MXFP4 block.
float mxfp4_half_scale(uint8_t exponent);

}  // namespace fettle
