// Defines CompileOptions and its wire form, a CompileOptionsProto (xla/pjrt/proto/compile_options.proto).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace fettle {

// The type must be the one the plugin's flag has: a bool given as the string "false" is refused.
using OptionValue = std::variant<bool, int64_t, double, std::string>;

struct CompileOptions {
  int num_partitions = 1;                       // devices the program is split over (SPMD, Shardy)
  std::vector<int> devices = {};                // ordinals, one a partition; empty means 0, 1, 2, ...
  std::map<std::string, OptionValue> env = {};  // compiler flags without "--"; an unknown one is refused
};

// The bytes the plugin wants. `device_ids` are PJRT global device ids, one a partition; empty leaves the choice to the
// plugin (needed ahead of time). Equal options give equal bytes. Throws InternalError unless num_partitions >= 1 and
// device_ids is empty or as long.
std::string encode_compile_options(const CompileOptions& options, const std::vector<int64_t>& device_ids);

}  // namespace fettle
