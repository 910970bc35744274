#include <gtest/gtest.h>

#include "runtime/options.h"

namespace fettle {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[c >> 4];
    text += kDigits[c & 15];
  }
  return text;
}

TEST(CompileOptions, EightPartitionsWithoutDevices) {
  // The fields are device_ordinal = -1 (not set), num_replicas = 1, num_partitions = 8, SPMD and Shardy.
  EXPECT_EQ(hex(encode_compile_options({.num_partitions = 8}, {})), "1a1408ffffffffffffffffff01200128083001980101");
}

TEST(CompileOptions, OnePartitionIsNotSpmd) {
  EXPECT_EQ(hex(encode_compile_options({}, {})), "1a1208ffffffffffffffffff0120012801980101");
}

TEST(CompileOptions, DeviceIdsArePackedVarints) {
  // Field 9 is the DeviceAssignmentProto {1, 2, [{[0]}, {[2049]}]}.
  const std::string bytes = hex(encode_compile_options({.num_partitions = 2}, {0, 2049}));
  EXPECT_EQ(bytes,
            "1a2508ffffffffffffffffff01200128023001"
            "4a0f"
            "08011002"
            "1a030a0100"
            "1a040a028110"
            "980101");
}

TEST(CompileOptions, OverridesKeepTheirTypeAndFalseIsWritten) {
  const CompileOptions options = {.env = {{"a", false}, {"b", int64_t{300}}, {"c", std::string("x")}, {"d", 1.0}}};
  EXPECT_EQ(hex(encode_compile_options(options, {})),
            "1a1208ffffffffffffffffff0120012801980101"
            "3a070a016112021000"
            "3a080a0162120318ac02"
            "3a080a016312030a0178"
            "3a0e0a0164120921000000000000f03f");
}

}  // namespace
}  // namespace fettle
