// Defines ShardingRules, which map the logical axes of weights and activations to mesh axes.
//
// A mesh axis is one of pp, dp, fsdp, ep, tp, sp. A dim is a dimension of a tensor. A logical axis names the meaning of
// a dim.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace fettle {

// The logical axes of a value, one per dim. A dim with the axis "" is never split. Weights have the axes vocab, embed,
// heads, kv_heads, mlp, experts, layers, rank, norm. Activations have batch, length, act_embed, act_heads,
// act_kv_heads, act_mlp, act_vocab, stages, act_experts, and act_groups (groups of rows; the devices along ep compute
// the experts for one group together).
using LogicalAxes = std::vector<std::string>;

inline constexpr const char* kStageAxis = "pp";

class ShardingRules {
 public:
  // `overrides` replace defaults: they map a logical axis to mesh axes joined by '+', or to "" for none.
  explicit ShardingRules(MeshAxes mesh, const std::map<std::string, std::string>& overrides = {});

  // Returns the same rules for activations outside of the layers. There, pp also splits the rows of the batch, if the
  // size of pp divides the number of rows.
  ShardingRules outside_layers() const;
  // Returns the same rules for activations that have only one row: rows and positions are not split.
  ShardingRules for_one_row() const;

  const MeshAxes& mesh() const { return mesh_; }
  // Returns the number of stages of the pipeline: the size of pp, or 1.
  int64_t stages() const { return mesh_.size_of(kStageAxis); }
  // Returns how a value of `dims` is split. If a mesh axis does not divide its dim, throws UserError with the sizes;
  // `what` names the value. In these cases the dim stays unsplit instead:
  // - the dim is a vocabulary (GPT-2's 50257 tokens), or the key heads of activations (8 heads on 16 devices);
  // - the axis is pp, and the dim is the batch;
  // - the axis is ep, and the dim is not experts.
  Partition partition(const LogicalAxes& axes, const Dims& dims, const std::string& what) const;
  // Does the same as partition(), but any dim that is not divisible stays unsplit. Use it for small arrays whose
  // dims are derived from the dims of a weight.
  Partition fitting(const LogicalAxes& axes, const Dims& dims) const;
  // Returns the mesh axes that would split this logical axis but do not, because their size does not divide `dim`.
  // Looks only at the axes vocab, act_vocab and act_kv_heads; for others, returns an empty list.
  std::vector<std::string> left_whole(const std::string& axis, int64_t dim) const;
  // Constrains an activation to its rule. On one device, returns the value itself.
  Tensor constrain(const Tensor& x, const LogicalAxes& axes) const;

 private:
  Partition lay(const LogicalAxes& axes, const Dims& dims, const std::string& what, bool any_stays_whole) const;

  MeshAxes mesh_;
  std::map<std::string, std::vector<std::string>> rules_;
};

// Returns the mesh of a recipe: axes in the order pp, dp, fsdp, ep, tp, sp, without those of size 1. When `mesh` is
// empty, or still says auto because choose_mesh (plan/mesh_choice.h) has not replaced it, all devices are on fsdp.
// Throws UserError on an unknown axis, and when the product of the sizes is not `devices`.
MeshAxes make_mesh(const std::map<std::string, int64_t>& mesh, int64_t devices);

// Returns "mesh fsdp 2 x tp 4", or "one device".
std::string mesh_title(const MeshAxes& mesh);
// Returns the mesh as a recipe writes it: "mesh: {fsdp: 4, tp: 2}".
std::string mesh_key(const std::map<std::string, int64_t>& mesh);

}  // namespace fettle
