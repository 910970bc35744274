// Defines the MLP of a mixture of experts: a router sends each token to a few of many MLPs.
//
// Experts have no capacity limit: each expert takes all tokens that are sent to it, and none is dropped. Each device
// along `ep` stores its share of the experts and computes them for the tokens of all devices along `ep`.
#pragma once

#include "models/blocks/layers.h"

namespace fettle {

// Adds a layer's router and experts. For gate, up and down (or gate_up and down), there is one parameter [L, E, ...]
// each, with the weights of all experts.
void add_expert_params(ParamList& list, const ModelConfig& config);

// Returns the mixture's result for x_BTD. The router reads `routed_BTD`, or x_BTD if `routed_BTD` is null. Adds the
// routing statistics to f.router and f.loads unless they are null.
Tensor experts_mlp(Forward& f, const Layer& layer, const Tensor& x_BTD, const Tensor& routed_BTD = {});

// Returns how many blocks of tokens the experts of one device compute in a layer, if the tokens of a micro-batch are
// spread evenly over all experts. The micro-batch has `rows` x `length` tokens over all devices. This is an estimate:
// in a program, the router decides how many blocks the loop runs.
int64_t balanced_blocks(const ModelConfig& config, const MeshAxes& mesh, int64_t rows, int64_t length);

// Each token fills `experts_per_token` slots, which have consecutive numbers. Returns for each slot number in `slots`
// (i32) the number of the token to which the slot belongs.
Tensor token_of_slot(const Tensor& slots, int64_t experts_per_token);

}  // namespace fettle
