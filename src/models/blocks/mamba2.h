// Defines Mamba2: a short convolution, then a linear attention whose state decays, with a step size for each head and
// token. Sources: Dao & Gu 2024, "Transformers are SSMs"; transformers/models/bamba, falcon_h1.
//
// Documents in one line do not influence each other: the state and the convolution start again at each document.
#pragma once

#include "models/blocks/run_layers.h"

namespace fettle {

struct StateSpace {
  Tensor out_BTNH;    // f32
  Tensor state_BNKH;  // the state after the last position, f32
};

// Computes the following at each position, for each head. The head's state S [K, H] is zero at the start of a document.
//   S <- exp(decay) S + k x^T
//   out = S^T q
// All inputs are f32: x [B, T, N, H], k and q [B, T, G, K], decay [B, T, N]. Each k and q is used by N / G neighbouring
// heads. If `state` is given, the first document of each line starts from it instead of zero.
//
// Positions are computed in chunks, one chunk after another. Within a chunk, positions are computed at the same time.
StateSpace state_space(const Tensor& x, const Tensor& k, const Tensor& q, const Tensor& decay,
                       const Tensor& segments_BT, int64_t chunk, const Tensor& state = {});

// Adds the parameters of a layer's Mamba2: in_proj, conv1d, dt_bias, A_log, D, norm and out_proj. config.mamba2 has the
// sizes.
void add_mamba2(ParamList& list, const ModelConfig& config);
// Factors on the results of in_proj (Falcon-H1).
struct MambaFactors {
  double gate = 1, x = 1, k = 1, q = 1, step = 1;
};
// Computes a layer's Mamba2.
Tensor mamba2(const Forward& f, const Layer& layer, const Tensor& x_BTD, LayerCache* cache,
              const MambaFactors& factors = {});
// Returns the arrays of the cache: the convolution's last inputs and the state.
std::vector<CacheArray> mamba2_cache(const ModelConfig& config);

}  // namespace fettle
