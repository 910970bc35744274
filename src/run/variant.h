// Defines Variant: what a command may change of a recipe before it is resolved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fettle {

// Values that replace those of the recipe keys with the same names. Plans try them: another batch, mesh or
// rematerialisation.
struct Variant {
  std::optional<int64_t> per_device_train_batch_size, per_device_eval_batch_size, gradient_accumulation_steps,
      cutoff_len;
  std::optional<std::string> gradient_checkpointing, finetuning_type;
  std::optional<bool> offload_optimizer, offload_param;
  std::optional<std::map<std::string, int64_t>> mesh;
  bool any_device_count = false;  // drops device_count
  // When adapters are merged while weights are loaded, keeps the merged base in f32, as an export computes it.
  bool merges_in_f32 = false;
};

}  // namespace fettle
