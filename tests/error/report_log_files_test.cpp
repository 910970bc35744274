#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/log_files.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

TEST(TrainerStateFile, BadOnesAreNamed) {
  TempFolder folder;
  const fs::path file = folder / "trainer_state.json";
  const auto error = [&](const std::string& text) {
    write_text(file, text);
    return user_error([&] { read_trainer_state(file); });
  };
  EXPECT_THAT(error("{\"global_step\": \"a\"}"), testing::HasSubstr("'global_step' is \"a\", wanted a number"));
  EXPECT_THAT(error("[]"), testing::HasSubstr("wanted an object"));
  EXPECT_THAT(error("{"), testing::HasSubstr("trainer_state.json: is not valid JSON: the text ends too early"));
  EXPECT_THAT(error("{\"log_history\": [1]}"), testing::HasSubstr("log_history"));
}

TEST(ProgressFile, UnwritablePlaceIsNamed) {
  TempFolder folder;
  EXPECT_THAT(user_error([&] { append_progress(folder / "none/trainer_log.jsonl", {ProgressRecord()}); }),
              testing::HasSubstr("cannot write"));
  EXPECT_THAT([&] { append_progress("/dev/full", {ProgressRecord()}); },
              testing::ThrowsMessage<DoesNotFit>(testing::HasSubstr("No space left on device")));
}

}  // namespace
}  // namespace fettle
