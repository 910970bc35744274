#include "runtime/options.h"

#include <compile_options.pb.h>

#include "base/error.h"

namespace fettle {
namespace {

void write_assignment(const std::vector<int64_t>& device_ids, pjrt_proto::DeviceAssignment& assignment) {
  assignment.set_replica_count(1);
  assignment.set_computation_count(static_cast<int32_t>(device_ids.size()));
  for (int64_t id : device_ids) assignment.add_computation_devices()->add_replica_device_ids(id);
}

// Writes a flag's value to the field for its type. The fields form a protobuf oneof, so even the values 0 and false are
// written.
void write_override(const OptionValue& value, pjrt_proto::OptionOverride& out) {
  if (const auto* text = std::get_if<std::string>(&value)) out.set_string_field(*text);
  if (const auto* flag = std::get_if<bool>(&value)) out.set_bool_field(*flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) out.set_int_field(*integer);
  if (const auto* real = std::get_if<double>(&value)) out.set_double_field(*real);
}

}  // namespace

std::string encode_compile_options(const CompileOptions& options, const std::vector<int64_t>& device_ids) {
  internal_check(options.num_partitions >= 1, "compile options: found {} partitions, wanted 1 or more",
                 options.num_partitions);
  internal_check(device_ids.empty() || static_cast<int>(device_ids.size()) == options.num_partitions,
                 "compile options: {} devices do not fit {} partitions", device_ids.size(), options.num_partitions);
  pjrt_proto::CompileOptions proto;
  pjrt_proto::ExecutableBuildOptions& build = *proto.mutable_executable_build_options();
  build.set_device_ordinal(-1);  // not set, so that a stored program loads in a process with any devices
  build.set_num_replicas(1);
  build.set_num_partitions(options.num_partitions);
  build.set_use_spmd_partitioning(options.num_partitions > 1);
  if (!device_ids.empty()) write_assignment(device_ids, *build.mutable_device_assignment());
  build.set_use_shardy_partitioner(true);
  for (const auto& [name, value] : options.env) {
    pjrt_proto::EnvOption& option = *proto.add_env_option_overrides();
    option.set_key(name);
    write_override(value, *option.mutable_value());
  }
  return proto.SerializeAsString();
}

}  // namespace fettle
