// Defines ShardingRules: logical axes of weights and activations -> mesh axes.
//
// `axis` is a mesh axis (dp, fsdp, ep, tp, sp), `dim` a tensor's; a logical axis names what a dim means.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Logical axes of a value's dims, one a dim; "" is never split.
// Weights: vocab, embed, heads, kv_heads, mlp, experts, layers, rank. Activations: batch, length, act_embed, act_heads,
// act_kv_heads, act_mlp, act_vocab; act_groups (rows that go to one group of experts), act_experts.
using LogicalAxes = std::vector<std::string>;

class ShardingRules {
 public:
  // `overrides`: logical axis -> mesh axes joined by '+', or "" for none, over the defaults.
  explicit ShardingRules(MeshAxes mesh, const std::map<std::string, std::string>& overrides = {});

  const MeshAxes& mesh() const { return mesh_; }
  // How a value of `dims` lies. A vocabulary or key heads that do not divide by an axis stay whole on it (GPT-2's 50257
  // tokens, 8 key heads on 16 devices). Throws UserError with the formula when another dim does not divide.
  Partition partition(const LogicalAxes& axes, const Dims& dims, const std::string& what) const;
  // The same, but any dim may stay whole: for small arrays whose dims are derived from a weight's.
  Partition fitting(const LogicalAxes& axes, const Dims& dims) const;
  // The mesh axes that would split a dim of this axis and size if it divided by them; those of partition() set aside.
  std::vector<std::string> left_whole(const std::string& axis, int64_t dim) const;
  // An activation, held to its rule; the value itself on one device.
  Tensor constrain(const Tensor& x, const LogicalAxes& axes) const;

 private:
  Partition lay(const LogicalAxes& axes, const Dims& dims, const std::string& what, bool any_stays_whole) const;

  MeshAxes mesh_;
  std::map<std::string, std::vector<std::string>> rules_;
};

// The mesh of a recipe: axes in the order dp, fsdp, ep, tp, sp, with sizes of 1 left out; all devices on fsdp when
// `mesh` is empty or auto (and nobody chose). Throws UserError on an unknown axis or when the product is not `devices`.
MeshAxes make_mesh(const std::map<std::string, int64_t>& mesh, int64_t devices);

// "mesh fsdp 2 x tp 4", or "one device".
std::string mesh_title(const MeshAxes& mesh);

}  // namespace fettle
