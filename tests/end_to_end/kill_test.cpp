// Kills runs with SIGKILL at random moments. Each run continues from its checkpoints and ends like an uninterrupted
// run.
//
// Environment variables: FETTLE_KILLS is the number of kills (20); FETTLE_KILL_SEED is the seed of the random moments.
// scripts/kill_loop sets both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAreArray;

constexpr int64_t kSteps = 24;

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Every step is saved, so a write is in progress at nearly every moment.
std::vector<std::string> words(const fs::path& output, const std::string& type) {
  return with(train_words(output),
              {"finetuning_type=" + type, "save_strategy=steps", "save_steps=1", "save_total_limit=2",
               "lora_dropout=0.1", "lr_scheduler_type=cosine", "plot_loss=false", "max_steps=" + std::to_string(kSteps),
               "resume_from_checkpoint=true"});
}

std::string result_of(const fs::path& output, const std::string& type) {
  return read_text(output / (type == "lora" ? "adapter_model.safetensors" : "model.safetensors"));
}

bool is_writing(const fs::path& output) {
  std::error_code code;
  for (fs::directory_iterator it(output, code), end; !code && it != end; it.increment(code))
    if (it->path().filename().string().find(".tmp-") != std::string::npos) return true;
  return false;
}

int64_t newest_step(const fs::path& output) {
  const auto newest = newest_checkpoint(output);
  return newest ? newest->step : 0;
}

// Kills the run at a random moment: at its start, some steps later, or during a write. The run may end before that.
void kill_somewhere(Running& running, const fs::path& output, std::mt19937& random) {
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  const auto pause = [&](int64_t microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(below(microseconds)));
  };
  const int64_t kind = below(4), from = newest_step(output), target = from + 1 + below(4);
  if (kind == 0) {
    pause(400'000);
  } else {
    wait_until([&] { return running.ended() || fs::exists(checkpoint_path(output, target)); });
    if (kind > 1) wait_until([&] { return running.ended() || is_writing(output); });
    pause(kind == 3 ? 300'000 : 20'000);
  }
  running.send(SIGKILL);
}

TEST(Kill, EveryResumeContinuesAndEndsInTheSameLosses) {
  const int64_t kills = number_from("FETTLE_KILLS", 20);
  const int64_t seed = number_from("FETTLE_KILL_SEED", std::random_device()());
  SCOPED_TRACE("FETTLE_KILL_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<uint32_t>(seed));
  TempFolder folder;
  for (const char* type : {"lora", "full"}) {
    const Outcome whole = run_fettle(folder, words(folder / type, type));
    ASSERT_EQ(whole.code, 0) << whole.err;
  }
  int64_t done = 0, ended = 0, in_write = 0;
  for (int64_t chain = 0; done < kills; ++chain) {
    const std::string type = chain % 2 == 0 ? "lora" : "full";
    const fs::path output = folder / ("cut" + std::to_string(chain));
    for (Outcome outcome{.code = 128 + SIGKILL}; outcome.code != 0;) {
      Running running(folder.path(), words(output, type));
      if (done < kills) kill_somewhere(running, output, random);
      outcome = running.wait();
      ASSERT_TRUE(outcome.code == 0 || outcome.code == 128 + SIGKILL)
          << "kill " << done << " of chain " << chain << ": exit " << outcome.code << '\n'
          << outcome.err;
      if (outcome.code == 0) continue;
      ++done;
      in_write += is_writing(output) ? 1 : 0;
      // A folder with the name of a checkpoint must be complete to its last byte.
      for (const CheckpointFolder& checkpoint : list_checkpoints(output)) {
        ASSERT_TRUE(checkpoint.complete) << checkpoint.path;
        ASSERT_EQ(user_error([&] { StateReader(state_folder(checkpoint.path)).verify(); }), "no error");
      }
    }
    ++ended;
    EXPECT_THAT(logged_losses(output), ElementsAreArray(logged_losses(folder / type))) << "chain " << chain;
    EXPECT_EQ(result_of(output, type), result_of(folder / type, type)) << "chain " << chain;
    EXPECT_FALSE(is_writing(output)) << "leftovers of chain " << chain;
    if (HasFailure()) return;
  }
  EXPECT_GT(in_write, 0) << "no kill happened during a write, so the test proves nothing about writes";
  std::printf("%lld kills, %lld of them within a write, over %lld runs that ended; FETTLE_KILL_SEED=%lld\n",
              static_cast<long long>(done), static_cast<long long>(in_write), static_cast<long long>(ended),
              static_cast<long long>(seed));
}

}  // namespace
}  // namespace fettle
