// Defines folded_factors: factors of config.json for which llama.cpp has no keys (Falcon-H1). The weights in a GGUF
// file are multiplied by these factors instead.
#pragma once

#include <string>
#include <vector>

#include "models/config.h"

namespace fettle {

// The factors of `rows` neighbouring rows of a tensor. llama.cpp's conversion multiplies these rows by the first
// factor, then by the second, each time in f32.
struct RowFactors {
  int64_t rows;
  float first = 1, second = 1;
};

// Returns the factors of all rows of the tensor with this name (Hugging Face's); empty when it has none.
std::vector<RowFactors> folded_factors(const ModelConfig& config, const std::string& tensor);

// Returns the config that fits the multiplied weights: its factors are 1. Exception: if the embedding is also the head,
// and the factors of embedding and head differ, these two factors stay in the config.
ModelConfig without_folded_factors(ModelConfig config);

// Multiplies values of the tensor by their factors. `values` has whole rows of `columns` elements, from row `first_row`
// of the tensor on.
void apply_factors(const std::vector<RowFactors>& factors, int64_t first_row, int64_t columns,
                   std::vector<float>& values);

}  // namespace fettle
