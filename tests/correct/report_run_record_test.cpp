// Tests that the running sums keep every bit when they are written to a manifest and read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/run_record.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(LogSums, KeepEveryBit) {
  const LogSums sums{.loss = 0.1 + 0.2,
                     .steps = 2,
                     .metrics = {{"rewards/margins", {-1.0 / 3, 2}}, {"tiny", {5e-324, 1}}},
                     .total_loss = std::nextafter(17.0, 18.0),
                     .total_steps = 9,
                     .overflows = 3};
  EXPECT_EQ(read_log_sums(nlohmann::json::parse(to_json(sums).dump())), sums);
  EXPECT_EQ(read_log_sums(nlohmann::json::object()), LogSums()) << "a checkpoint of an earlier version";
}

TEST(Started, GoesThroughAManifest) {
  const LocalTime abroad{1721649600, -4 * 3600, "-04"};
  EXPECT_EQ(read_local_time(nlohmann::json::parse(to_json(abroad).dump())), abroad);
  EXPECT_EQ(abroad.text(), "2024-07-22 08:00:00 -0400");
  EXPECT_THAT(user_error([] { read_local_time({{"seconds", "x"}}); }), testing::HasSubstr("the field 'started' of"));
}

TEST(LogSums, OfAnotherTypeAreRefused) {
  EXPECT_THAT(user_error([] { read_log_sums({{"loss", "x"}}); }), testing::HasSubstr("'x' is not a number"));
  EXPECT_THAT(user_error([] { read_log_sums({{"steps", "x"}}); }), testing::HasSubstr("the field 'running_sums' of"));
  EXPECT_THAT(user_error([] {
                read_log_sums({{"metrics", {{"a", 1}}}});
              }),
              testing::HasSubstr("the field 'running_sums' of"));
}

}  // namespace
}  // namespace fettle
