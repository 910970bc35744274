// Compares schedules with Transformers' recorded multipliers (tests/reference/schedules.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "optim/schedule.h"
#include "paths.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

const Json& recorded() {
  static const Json json = Json::parse(std::ifstream(source_folder() / "tests/reference/schedules.json"));
  return json;
}

// Returns the schedule of a record. Its options are named as in lr_scheduler_kwargs. The peak rate is 1, so lr_end is a
// share of it.
Schedule schedule_of(const Json& row) {
  Schedule schedule{row["name"], row["warmup_steps"], recorded()["steps"]};
  const nlohmann::json options = row["options"];
  for (const auto& [key, value] : options.items()) {
    if (key == "min_lr_rate" || key == "min_lr_ratio" || key == "lr_end") {
      schedule.min_rate = value;
    } else if (key == "power") {
      schedule.power = value;
    } else if (key == "num_cycles") {
      schedule.cycles = value;
    } else if (key == "num_decay_steps") {
      schedule.decay_steps = value;
    } else if (key == "num_stable_steps") {
      schedule.stable_steps = value;
    } else {
      ADD_FAILURE() << "option " << key;
    }
  }
  if (options.contains("num_decay_steps") && !options.contains("num_stable_steps"))
    schedule.stable_steps = schedule.total_steps - schedule.warmup_steps - schedule.decay_steps;
  return schedule;
}

TEST(Schedule, EqualsTransformersStepByStep) {
  ASSERT_GE(recorded()["schedules"].size(), 20u);
  for (const Json& row : recorded()["schedules"]) {
    const Schedule schedule = schedule_of(row);
    for (size_t step = 0; step < row["multipliers"].size(); ++step)
      EXPECT_NEAR(schedule.multiplier(static_cast<int64_t>(step)), row["multipliers"][step].get<double>(), 1e-8)
          << row["name"] << ", warm-up " << row["warmup_steps"] << ", step " << step;
  }
}

TEST(Schedule, EveryTypeIsRecorded) {
  std::set<std::string> names;
  for (const Json& row : recorded()["schedules"]) {
    names.insert(row["name"]);
    EXPECT_NO_THROW(check_schedule_type(row["name"]));
  }
  try {
    check_schedule_type("cosin");
    FAIL();
  } catch (const std::exception& error) {
    // The message lists all types. Each of them must have been compared above.
    std::string list = error.what();
    list = list.substr(list.find("one of ") + 7) + ", ";
    for (size_t end; (end = list.find(", ")) != std::string::npos; list = list.substr(end + 2))
      EXPECT_TRUE(names.contains(list.substr(0, end))) << list.substr(0, end);
  }
}

// Compares with Transformers' values after the last step. A resumed run may be longer than its schedule.
TEST(Schedule, AfterTheEnd) {
  EXPECT_EQ((Schedule{"linear", 2, 10}).multiplier(11), 0);
  EXPECT_EQ((Schedule{.type = "polynomial", .total_steps = 10, .min_rate = 0.1, .power = 2}).multiplier(11), 0.1);
  EXPECT_EQ((Schedule{.type = "cosine_with_restarts", .total_steps = 10, .cycles = 3}).multiplier(10), 0);
  const Schedule decays{
      .type = "warmup_stable_decay", .total_steps = 10, .min_rate = 0.2, .stable_steps = 7, .decay_steps = 3};
  EXPECT_EQ(decays.multiplier(10), 0.2);
}

}  // namespace
}  // namespace fettle
