// Defines adapter_options: what an adapter's folder says of its LoRA pairs.
#pragma once

#include <filesystem>

#include "adapters/lora.h"
#include "checkpoint/peft/adapter_files.h"

namespace fettle {

// Opens a PEFT folder of a kind that Fettle applies; DoRA, modules_to_save and target_parameters are among them.
AdapterFolder open_adapter(const std::filesystem::path& folder);

// The options by the folder's config and tensors. Modules with LoRA pairs must have them on the same layers. Throws
// UserError when ranks or alphas differ by module, or when a tensor belongs to no linear layer of the model.
LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model);

}  // namespace fettle
