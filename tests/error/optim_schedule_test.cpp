#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/schedule.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(Schedule, AnUnknownTypeIsAUserErrorThatListsTheTypes) {
  EXPECT_THAT(user_error([] { check_schedule_type("cosin"); }),
              testing::AllOf(testing::HasSubstr("lr_scheduler_type: 'cosin'"),
                             testing::HasSubstr("cosine_with_restarts"), testing::HasSubstr("warmup_stable_decay")));
}

}  // namespace
}  // namespace fettle
