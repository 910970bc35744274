// Defines adapter_options, which reads the LoRA options of an adapter folder.
#pragma once

#include <filesystem>

#include "adapters/lora.h"
#include "checkpoint/peft/adapter_files.h"

namespace fettle {

// Opens a PEFT folder, which may use DoRA, modules_to_save and target_parameters. Throws UserError like read_adapter.
AdapterFolder open_adapter(const std::filesystem::path& folder);

// Returns the options from the folder's config and tensors. Throws UserError when modules differ in rank, in alpha or
// in the layers that have LoRA weights, or when a tensor does not belong to the model.
LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model);

}  // namespace fettle
