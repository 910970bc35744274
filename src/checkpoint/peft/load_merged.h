// Defines load_merged, which loads a parameter and merges adapters into it.
#pragma once

#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_merge.h"

namespace fettle {

// Does the same as load_param, but applies the adapters' changes in f32 and rounds once to `dtype`. If an adapter
// contains the whole tensor (modules_to_save), `find` must return that tensor (AdapterMerge::saved). Only the LoRA
// weights of a few layers are in memory at a time. Throws UserError when the result is not finite.
DeviceBuffer load_merged(const Client& client, const Param& param, DType dtype, const Layout& layout,
                         const AdapterMerge& merge, const FindTensor& find, const LoadProgress& progress,
                         const std::string& memory_kind = "");

}  // namespace fettle
