#include "runtime/options.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace fettle {
namespace {

// The protobuf wire format: each field is a key (number << 3 | wire type) and a varint, 8 bytes or a counted string.
class ProtoWriter {
 public:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void integer(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void real(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);  // little-endian, as the format is
    bytes_.append(raw, sizeof raw);
  }
  void text(int field, const std::string& value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const ProtoWriter& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

ProtoWriter device_assignment(const std::vector<int64_t>& device_ids) {
  ProtoWriter assignment;
  assignment.integer(1, 1);                  // replica_count
  assignment.integer(2, device_ids.size());  // computation_count
  for (int64_t id : device_ids) {
    ProtoWriter ids, device;
    ids.varint(static_cast<uint64_t>(id));
    device.text(1, ids.bytes());    // replica_device_ids, packed
    assignment.message(3, device);  // computation_devices
  }
  return assignment;
}

ProtoWriter option_override(const OptionValue& value) {
  ProtoWriter writer;
  if (const auto* text = std::get_if<std::string>(&value)) writer.text(1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) writer.integer(2, *flag ? 1 : 0);  // false is written out
  if (const auto* integer = std::get_if<int64_t>(&value)) writer.integer(3, static_cast<uint64_t>(*integer));
  if (const auto* real = std::get_if<double>(&value)) writer.real(4, *real);
  return writer;
}

}  // namespace

std::string encode_compile_options(const CompileOptions& options, const std::vector<int64_t>& device_ids) {
  internal_check(options.num_partitions >= 1, "compile options: {} partitions", options.num_partitions);
  internal_check(device_ids.empty() || static_cast<int>(device_ids.size()) == options.num_partitions,
                 "compile options: {} devices for {} partitions", device_ids.size(), options.num_partitions);
  ProtoWriter build;
  build.integer(4, 1);  // num_replicas
  build.integer(5, static_cast<uint64_t>(options.num_partitions));
  if (options.num_partitions > 1) build.integer(6, 1);  // use_spmd_partitioning
  if (!device_ids.empty()) build.message(9, device_assignment(device_ids));
  build.integer(19, 1);  // use_shardy_partitioner
  ProtoWriter all;
  all.message(3, build);  // executable_build_options
  for (const auto& [name, value] : options.env) {
    ProtoWriter entry;
    entry.text(1, name);
    entry.message(2, option_override(value));
    all.message(7, entry);  // env_option_overrides
  }
  return all.bytes();
}

}  // namespace fettle
