// Defines Variant: changes that a command may make to a recipe before the recipe is resolved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapters/side_by_side.h"

namespace fettle {

struct Recipe;

// Values that replace the values of the recipe's keys with the same names. For example, a plan tries other batches,
// meshes or rematerialisation policies.
struct Variant {
  std::optional<int64_t> per_device_train_batch_size, per_device_eval_batch_size, gradient_accumulation_steps,
      cutoff_len;
  std::optional<int64_t> quantization_bit;
  std::optional<std::string> gradient_checkpointing, finetuning_type, optim;
  std::optional<bool> bf16, offload_optimizer, offload_param, offload_dir_weights, train_from_scratch;
  std::optional<std::map<std::string, int64_t>> mesh;
  std::map<std::string, std::string> sharding = {};  // replaces these entries of the recipe's sharding
  bool any_device_count = false;                     // ignores the recipe's device_count
  bool any_bits = false;                             // ignores the recipe's quantization_bit
  bool any_labels = false;                           // ignores the recipe's keys about labels
  bool exact = false;                                // all arithmetic is in f32, and nothing is offloaded
  // When adapters are merged during loading, keeps the merged base in f32, like an export does.
  bool merges_in_f32 = false;
  bool frozen_in_f32 = false;  // keeps weights that are not trained in f32, whatever config.json says
  std::vector<SideAdapter> side_by_side =
      {};  // AdapterSpec::side_by_side; if not empty, the recipe must name no adapters
};

// Returns the recipe with these changes. merges_in_f32, frozen_in_f32 and side_by_side are not keys of a recipe;
// resolve() applies them.
Recipe with_variant(Recipe recipe, const Variant& variant);

}  // namespace fettle
