// Defines the load of a parameter with adapters merged into it on its way to the devices.
#pragma once

#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_merge.h"

namespace fettle {

// As load_param does, with what the adapters add in f32, rounded once to `dtype`. `find` gives saved tensors in the
// place of the base's. LoRA matrices of a few layers at a time are in memory. Throws UserError when what comes out is
// not finite.
DeviceBuffer load_merged(const Client& client, const Param& param, DType dtype, const Layout& layout,
                         const AdapterMerge& merge, const FindTensor& find, const LoadProgress& progress,
                         const std::string& memory_kind = "");

}  // namespace fettle
