// Declares the encoders of BlockType: each writes one block from its values, which must be finite.
//
// Values that a block cannot hold (a scale above the largest f16) become infinite or NaN when they are decoded; the
// caller checks that.
//
// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1: the bytes equal those of gguf-py's quants.py. Q4_K, Q5_K, Q6_K, for
// which gguf-py has no encoder: the scales of each group are searched for the least weighted squared error. As in
// llama.cpp, large values weigh more. On random values the error is that of llama.cpp's encoder within a few percent; a
// tensor that was decoded from Q4_1 had 1.35 times its error.
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
