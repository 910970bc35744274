// Defines the MLP of a mixture of experts, in which a router sends each token to a few of many MLPs.
//
// No expert has a capacity: each takes all tokens that are sent to it, and none is dropped. Each device of `ep` holds
// its share of the experts and serves the tokens of its neighbours along `ep`.
#pragma once

#include "models/blocks/layers.h"

namespace fettle {

// A layer's router and experts, the experts of a kind as one parameter [L, E, ...].
void add_expert_params(ParamList& list, const ModelConfig& config);

// The layer's mixture of x_BTD. Adds to f.router when there is one.
Tensor experts_mlp(Forward& f, const Layer& layer, const Tensor& x_BTD);

// Blocks of tokens that the experts of one device go through in a layer when `rows` x `length` tokens (of a
// micro-batch, all devices) spread evenly over all experts. A program's loop over them ends when the router's are done.
int64_t balanced_blocks(const ModelConfig& config, const MeshAxes& mesh, int64_t rows, int64_t length);

// Tokens lie in slots, one after another, each in as many as it has experts: the token of each of `slots` (i32).
Tensor token_of_slot(const Tensor& slots, int64_t experts_per_token);

// What Forward::router starts from.
Tensor no_routes(const ModelConfig& config);
// f32 scalar: 1 when all experts are used alike (eq. 4 to 6 of Switch Transformer), as Transformers computes it. Of
// what f.router gathered over all layers and the tokens of documents.
Tensor balance_loss(const Forward& f);

}  // namespace fettle
