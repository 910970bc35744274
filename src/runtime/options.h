// Defines CompileOptions and encodes them as XLA's CompileOptionsProto (xla/pjrt/proto/compile_options.proto).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace fettle {

// The value's type must match the type of the plugin's flag. For example, the plugin rejects the string "false" for a
// bool.
using OptionValue = std::variant<bool, int64_t, double, std::string>;

struct CompileOptions {
  int num_partitions = 1;                       // the number of devices that share the program (SPMD, Shardy)
  std::vector<int> devices = {};                // ordinals, one per partition; empty means 0, 1, 2, ...
  std::map<std::string, OptionValue> env = {};  // compiler flags without "--"; the plugin rejects unknown ones
};

// Returns the options in the encoding that the plugin expects. `device_ids` are PJRT global device ids, one per
// partition. If `device_ids` is empty, the plugin chooses the devices. `device_ids` must be empty for compiling ahead
// of time. Equal options give equal bytes. Throws InternalError if num_partitions is below 1, or if `device_ids` has
// neither 0 nor num_partitions ids.
std::string encode_compile_options(const CompileOptions& options, const std::vector<int64_t>& device_ids);

}  // namespace fettle
