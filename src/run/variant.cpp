#include "run/variant.h"

#include "config/recipe.h"

namespace fettle {

Recipe with_variant(Recipe recipe, const Variant& variant) {
  auto take = [](auto& value, const auto& changed) {
    if (changed) value = *changed;
  };
  take(recipe.per_device_train_batch_size, variant.per_device_train_batch_size);
  if (variant.per_device_eval_batch_size) recipe.per_device_eval_batch_size = variant.per_device_eval_batch_size;
  if (variant.quantization_bit) recipe.quantization_bit = variant.quantization_bit;
  take(recipe.gradient_accumulation_steps, variant.gradient_accumulation_steps);
  take(recipe.cutoff_len, variant.cutoff_len);
  take(recipe.gradient_checkpointing, variant.gradient_checkpointing);
  take(recipe.finetuning_type, variant.finetuning_type);
  take(recipe.optim, variant.optim);
  take(recipe.bf16, variant.bf16);
  take(recipe.offload_optimizer, variant.offload_optimizer);
  take(recipe.offload_param, variant.offload_param);
  take(recipe.offload_dir_weights, variant.offload_dir_weights);
  take(recipe.train_from_scratch, variant.train_from_scratch);
  take(recipe.mesh, variant.mesh);
  for (const auto& [logical, axes] : variant.sharding) recipe.sharding[logical] = axes;
  if (variant.any_device_count) recipe.device_count.reset();
  if (variant.any_bits) recipe.quantization_bit.reset();
  if (variant.any_labels) {
    recipe.problem_type.clear();
    recipe.num_labels.reset();
    recipe.id2label.clear();
  }
  if (variant.exact) {
    recipe.bf16 = recipe.pure_bf16 = recipe.fp16 = recipe.tf32 = false;
    recipe.lora_dtype = "float32";
    recipe.offload_param = recipe.offload_optimizer = false;
    recipe.offload_dir.clear();
    recipe.offload_dir_weights = false;
  }
  return recipe;
}

}  // namespace fettle
