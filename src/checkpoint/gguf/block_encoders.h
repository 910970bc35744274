// Declares the encoders of BlockType: each writes one block from its values, which must be finite.
//
// Values that a block cannot hold (a scale above the largest f16) become infinite or NaN when they are decoded; the
// caller checks that.
//
// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 give the same bytes as gguf-py's quants.py. gguf-py has no encoder
// for Q4_K, Q5_K and Q6_K. For these, the encoder searches for the scales of each group with the least weighted squared
// error; as in llama.cpp, large values weigh more. On random values, the error is within a few percent of the error of
// llama.cpp's encoder. On two tensors that had been decoded from Q4_1, Fettle's Q4_K has 0.75 times the error of
// llama.cpp's.
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
void encode_q4_k(const float* values, uint8_t* block);
void encode_q5_k(const float* values, uint8_t* block);
void encode_q6_k(const float* values, uint8_t* block);

}  // namespace fettle
