// Tests training by several processes on this machine, which are started as the supported launchers start them. The
// plugin several_cpu_plugin computes the same as one process with all devices, so results must be equal to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <set>

#include "base/seconds_since.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "environment.h"
#include "processes.h"
#include "run_fettle.h"
#include "runtime/vendors/plugin.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

class SeveralProcesses : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(Plugin::find("cpu"), ""); }
  // Without this setting, compiling would take most of the time.
  const Environment quick_{"XLA_FLAGS", "--xla_backend_optimization_level=0"};

  // Returns the words of a run with four devices and dropout. One process or several processes together can execute
  // this run.
  std::vector<std::string> words(const std::string& output, const std::vector<std::string>& more = {}) const {
    return with(train_words(folder_ / output),
                with({"device_count=4", "per_device_train_batch_size=1", "packing=true", "lora_dropout=0.1"}, more));
  }

  // Starts `count` processes as torchrun does. `own` maps a rank to additional words for this process. If `apart` is
  // true, each process runs in its own folder.
  std::vector<Running> start(int count, const std::vector<std::string>& words,
                             const std::map<int, std::vector<std::string>>& own = {}, bool apart = false) {
    const std::string port = std::to_string(free_port());
    std::vector<Running> running;
    for (int rank = 0; rank < count; ++rank) {
      const std::string number = std::to_string(rank), size = std::to_string(count);
      const Environment variables[] = {{"RANK", number},
                                       {"LOCAL_RANK", number},
                                       {"WORLD_SIZE", size},
                                       {"LOCAL_WORLD_SIZE", size},
                                       {"MASTER_ADDR", "gpu01.example.org"},  // not looked up on one host
                                       {"FETTLE_STORE_PORT", port},
                                       {"FETTLE_HEARTBEAT_SECONDS", "6"},
                                       {"FETTLE_INNER_PLUGIN", Plugin::find("cpu").string()}};
      const std::filesystem::path place = folder_ / ("process-" + number);
      std::filesystem::create_directories(place);
      std::vector<std::string> all = with(words, {std::string("plugin=") + FETTLE_SEVERAL_PLUGIN});
      if (own.contains(rank)) all = with(all, own.at(rank));
      std::optional<Environment> zone;
      if (zones_.contains(rank)) zone.emplace("TZ", zones_.at(rank));
      running.emplace_back(place, all, "", apart ? place.string() : "");
    }
    return running;
  }
  std::vector<Outcome> run(int count, const std::vector<std::string>& words,
                           const std::map<int, std::vector<std::string>>& own = {}, bool apart = false) {
    std::vector<Outcome> out;
    for (const Running& one : start(count, words, own, apart)) out.push_back(one.wait());
    return out;
  }
  void expect_success(const std::vector<Outcome>& outcomes) const {
    for (const Outcome& one : outcomes) ASSERT_EQ(one.code, 0) << one.err;
  }
  void expect_same_result(const std::string& one, const std::string& other, const std::string& weights) const {
    EXPECT_EQ(logged_losses(folder_ / one).size(), 6u);
    EXPECT_THAT(logged_losses(folder_ / other), ElementsAreArray(logged_losses(folder_ / one)));
    EXPECT_TRUE(read_text(folder_ / one / weights) == read_text(folder_ / other / weights)) << "the weights differ";
  }

  TempFolder folder_;
  std::map<int, std::string> zones_;  // time zones by rank; a rank without one has that of this process
};

TEST_F(SeveralProcesses, LossesAndResultsAreThoseOfOne) {
  for (const auto& [method, weights] : {std::pair{"finetuning_type=lora", "adapter_model.safetensors"},
                                        {"finetuning_type=full", "model.safetensors"}}) {
    const std::string one = std::string("one-") + method, two = std::string("two-") + method;
    const std::vector<std::string> more{method, "val_size=4", "eval_strategy=steps", "eval_steps=3"};
    const Outcome alone = run_fettle(folder_, words(one, more));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const auto together = run(2, words(two, more));
    expect_success(together);
    expect_same_result(one, two, weights);
    EXPECT_THAT(together[0].err, HasSubstr("step 6/6"));
    EXPECT_THAT(together[1].err, Not(HasSubstr("step 6/6"))) << "only process 0 reports";
    EXPECT_FALSE(std::filesystem::exists(folder_ / two / "parts"));
  }
}

// Each process has the devices of one stage.
TEST_F(SeveralProcesses, StagesOfAPipelineAreThoseOfOne) {
  const std::vector<std::string> more{
      "mesh=pp=2,fsdp=2", "gradient_accumulation_steps=2", "max_steps=6", "save_strategy=steps", "save_steps=3",
      "val_size=4",       "eval_strategy=steps",           "eval_steps=3"};
  const Outcome alone = run_fettle(folder_, words("one", more));
  ASSERT_EQ(alone.code, 0) << alone.err;
  expect_success(run(2, words("two", more)));
  expect_same_result("one", "two", "adapter_model.safetensors");
}

TEST_F(SeveralProcesses, CheckpointsOfWeightsAloneAreThoseOfOne) {
  const std::vector<std::string> more{"pissa_init=true", "lora_dropout=0", "save_only_model=true",
                                      "save_strategy=steps", "save_steps=3"};
  expect_success({run_fettle(folder_, words("one", more))});
  expect_success(run(2, words("two", more)));
  for (const std::string weights : {"adapter_model.safetensors", "checkpoint-3/adapter_model.safetensors"})
    expect_same_result("one", "two", weights);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "two/checkpoint-3/state"));
}

// One, two and four processes continue from checkpoint 4, which four processes wrote. Four processes continue from
// checkpoint 4, which one process wrote.
TEST_F(SeveralProcesses, AnyNumberResumesWhatAnyOtherWrote) {
  const std::vector<std::string> saves{"save_strategy=steps", "save_steps=2"};
  const std::string weights = "adapter_model.safetensors";
  expect_success(run(1, words("whole", saves)));
  std::filesystem::copy(folder_ / "whole", folder_ / "by-four", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_ / "by-four/checkpoint-6");
  expect_success(run(4, words("cut", with(saves, {"max_steps=6"}))));
  std::filesystem::remove_all(folder_ / "cut/checkpoint-6");
  std::filesystem::copy(folder_ / "cut", folder_ / "by-one", std::filesystem::copy_options::recursive);
  const auto again = with(saves, {"resume_from_checkpoint=true"});

  expect_success(run(1, words("by-one", again)));
  expect_same_result("whole", "by-one", weights);
  expect_success(run(2, words("cut", again)));
  expect_same_result("whole", "cut", weights);

  std::filesystem::remove_all(folder_ / "by-one/checkpoint-6");
  expect_success(run(4, words("by-one", again)));
  expect_same_result("whole", "by-one", weights);
  expect_success(run(4, words("by-four", again)));
  expect_same_result("whole", "by-four", weights);
}

// Each process has the state of its own devices, or also their weights, in a file of its own. With dp=2, each part of
// the state is in the files of both processes.
TEST_F(SeveralProcesses, OptimizerStateOnDisksIsThatOfOne) {
  const TempFolder disk(program_file().parent_path());
  const std::string weights = "model.safetensors";
  const std::vector<std::string> with_weights{"bf16=true", "offload_dir_weights=true"};
  for (const auto& [mesh, keys] : {std::pair{std::string("mesh=fsdp=4"), std::vector<std::string>()},
                                   {"mesh=dp=2,fsdp=2", {}},
                                   {"mesh=dp=2,fsdp=2", with_weights}}) {
    const std::vector<std::string> more = with(
        keys,
        {"finetuning_type=full", mesh, "offload_dir=" + disk.path().string(), "save_strategy=steps", "save_steps=3"});
    const std::string one = fmt::format("one-{}-{}", mesh, keys.size()),
                      two = fmt::format("two-{}-{}", mesh, keys.size());
    const Outcome alone = run_fettle(folder_, words(one, more));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const auto together = run(2, words(two, more));
    expect_success(together);
    EXPECT_THAT(together[0].err, HasSubstr("s of updates"));
    expect_same_result(one, two, weights);
    EXPECT_TRUE(std::filesystem::is_empty(disk.path()));

    // One process continues from the checkpoint of two, and two from that of one.
    for (const std::string& name : {one, two}) std::filesystem::remove_all(folder_ / name / "checkpoint-6");
    const auto again = with(more, {"resume_from_checkpoint=true"});
    expect_success({run_fettle(folder_, words(two, again))});
    expect_success(run(2, words(one, again)));
    expect_same_result(one, two, weights);
  }
}

TEST_F(SeveralProcesses, ASignalToOneSavesInAllAtOneStep) {
  const std::vector<std::string> many{"max_steps=2000", "save_strategy=no"};
  const std::vector<Running> running = start(2, words("out", many));
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / "out/trainer_log.jsonl"); }));
  running[1].send(SIGTERM);
  for (const Running& one : running) {
    const Outcome outcome = one.wait();
    EXPECT_EQ(outcome.code, 143) << outcome.err;
  }
  const size_t steps = logged_losses(folder_ / "out").size();
  EXPECT_TRUE(
      std::filesystem::exists(folder_ / "out" / ("checkpoint-" + std::to_string(steps)) / "state/manifest.json"))
      << steps;
}

// All processes give up the evaluation before the same batch. Otherwise, they would wait for each other.
TEST_F(SeveralProcesses, ASignalToOneEndsTheEvaluationInAll) {
  std::string rows;
  for (int i = 0; i < 3000; ++i)
    rows += nlohmann::json{{"prompt", "row"}, {"completion", std::to_string(i)}}.dump() + "\n";
  write_text(folder_ / "held_out.jsonl", rows);
  const auto all = words("out", {"eval_dataset=" + (folder_ / "held_out.jsonl").string(), "template=none",
                                 "eval_strategy=steps", "eval_steps=2", "per_device_eval_batch_size=1"});
  const std::vector<Running> running = start(2, all);
  ASSERT_TRUE(wait_until([&] { return logged_losses(folder_ / "out").size() == 2; }));
  running[1].send(SIGTERM);
  for (const Running& one : running) {
    const Outcome outcome = one.wait();
    EXPECT_EQ(outcome.code, 143) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("eval at step"))) << "the test machine evaluates too fast";
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoint-2/state/manifest.json"));
}

// A file is at the path of the first checkpoint, so Fettle tries to write the checkpoint for 0.2 + 1 + 4 = 5.2 s
// (retry.h). This is longer than FETTLE_HANG_SECONDS, but must not count as a hanging step.
TEST_F(SeveralProcesses, ACheckpointThatTakesLongIsNoHangingStep) {
  std::filesystem::create_directories(folder_ / "out");
  write_text(folder_ / "out/checkpoint-2", "");
  const Environment soon("FETTLE_HANG_SECONDS", "4");
  const auto outcomes = run(2, words("out", {"save_strategy=steps", "save_steps=2"}));
  expect_success(outcomes);
  EXPECT_THAT(outcomes[0].err, HasSubstr("checkpoint-2 could not be saved"));
}

TEST_F(SeveralProcesses, ADeathEndsAllAndLeavesTheLastCheckpoint) {
  for (const int dying : {0, 1}) {
    const std::string out = "out-" + std::to_string(dying);
    const std::vector<Running> running =
        start(2, words(out, {"max_steps=2000", "save_strategy=steps", "save_steps=2"}));
    ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / out / "checkpoint-2"); }));
    running[static_cast<size_t>(dying)].send(SIGKILL);
    const auto start = Clock::now();
    const Outcome other = running[static_cast<size_t>(1 - dying)].wait();
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_EQ(other.code, 4) << other.err;
    EXPECT_THAT(other.err, AnyOf(HasSubstr("gives no sign of life"), HasSubstr("process 0 has probably ended")));
    EXPECT_EQ(running[static_cast<size_t>(dying)].wait().code, 128 + SIGKILL);
    const auto kept = newest_checkpoint(folder_ / out);
    ASSERT_TRUE(kept);
    EXPECT_NO_THROW(StateReader(state_folder(kept->path)).verify());
    if (dying == 0) continue;
    const auto recorded = nlohmann::json::parse(read_text(folder_ / out / "fettle_run.json"));
    EXPECT_EQ(recorded["state"], "failed");
    EXPECT_THAT(recorded["message"], HasSubstr("gives no sign of life"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / out / "report.html"));
  }
}

// Some keys change the number of programs that a process runs before the first step. All processes must still end.
TEST_F(SeveralProcesses, AHostWithAnotherRecipeIsNamed) {
  for (const std::string key : {"learning_rate=0.003", "kernels=off", "mesh=auto"})
    for (const Outcome& one : run(2, words("out", {"kernels=auto"}), {{1, {key}}})) {
      EXPECT_EQ(one.code, 2) << one.err;
      EXPECT_THAT(one.err, HasSubstr("the recipe differs between process 1"));
      EXPECT_THAT(one.err, HasSubstr(key.substr(0, key.find('=')) + "\":")) << "only the key that differs is shown";
    }
}

// Each host may have the model and the data in a place of its own, if they are the same.
TEST_F(SeveralProcesses, AHostMayHaveItsFilesElsewhere) {
  const std::filesystem::path model = reference_model("llama"), rows = model.parent_path() / "rows.jsonl";
  std::filesystem::copy(model, folder_ / "model", std::filesystem::copy_options::recursive);
  std::filesystem::copy(rows, folder_ / "own_rows.jsonl");
  const std::vector<std::string> own{"model_name_or_path=" + (folder_ / "model").string(),
                                     "dataset=" + (folder_ / "own_rows.jsonl").string()};
  expect_success(run(2, words("same")));
  expect_success(run(2, words("own"), {{1, own}}));
  expect_same_result("same", "own", "adapter_model.safetensors");

  // With full tuning, no weight is frozen. The weights at the start must be the same, too.
  const std::filesystem::path weights = folder_ / "model/model.safetensors";
  std::string bytes = read_text(weights);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  write_text(weights, bytes);
  for (const auto& [method, differs] : {std::pair{"finetuning_type=lora", "the base model differs"},
                                        {"finetuning_type=full", "the model at the start of training differs"}})
    for (const Outcome& one : run(2, words("other", {method}), {{1, own}})) {
      EXPECT_EQ(one.code, 2) << one.err;
      EXPECT_THAT(one.err, HasSubstr(differs));
    }
}

// The processes meet before they read the recipe and fetch the model. So if one process ends with an error, the others
// end too instead of waiting.
TEST_F(SeveralProcesses, AMistakeInOneRecipeEndsAll) {
  for (const auto& [mistake, named] : {std::pair<std::string, std::string>{"learning_rat=0.003", "learning_rat"},
                                       {"model_name_or_path=./nothing", "./nothing"}}) {
    const auto start = Clock::now();
    for (const Outcome& one : run(2, words("out"), {{1, {mistake}}})) {
      EXPECT_EQ(one.code, 2) << one.err;
      EXPECT_THAT(one.err, HasSubstr(named));
    }
    EXPECT_LT(seconds_since(start), 60);
  }
}

// RANK and WORLD_SIZE may be left in the environment by mistake.
TEST_F(SeveralProcesses, AProcessThatWaitsSaysWhoStartedIt) {
  const std::string port = std::to_string(free_port());
  const Environment variables[] = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"FETTLE_STORE_PORT", port}};
  const Running running(folder_.path(), words("out"));
  const std::filesystem::path said = folder_ / "stderr";
  EXPECT_TRUE(wait_until(
      [&] { return std::filesystem::exists(said) && read_text(said).find("unset RANK") != std::string::npos; }));
  running.send(SIGTERM);
  EXPECT_THAT(running.wait().err,
              HasSubstr("started by torchrun or PyTorchJob as process 1 of 2 (RANK is set); waiting for the others at "
                        "localhost:" +
                        port));
}

TEST_F(SeveralProcesses, ThePluginMustSupportThem) {
  const auto outcomes = run(2, words("out"), {{0, {"plugin=cpu"}}, {1, {"plugin=cpu"}}});
  for (const Outcome& one : outcomes) {
    EXPECT_EQ(one.code, 4);
    EXPECT_THAT(one.err, HasSubstr("plugin cpu does not connect several processes"));
    EXPECT_THAT(one.err, HasSubstr("or use plugin cuda or rocm"));
  }
}

// By its file's name, this is a plugin for CUDA, so programs are compiled with CUDA's timeouts. The CPU plugin inside
// does not know one of them.
TEST_F(SeveralProcesses, ThePluginMayRefuseTheTimeouts) {
  const std::filesystem::path plugin = folder_ / "cuda_plugin.so";
  std::filesystem::create_symlink(FETTLE_SEVERAL_PLUGIN, plugin);
  const std::vector<std::string> own{"plugin=" + plugin.string(), "device_count=2", "max_steps=1", "kernels=off"};
  const auto outcomes = run(2, words("out"), {{0, own}, {1, own}});
  expect_success(outcomes);
  const std::string said = "does not know the flag xla_gpu_device_execution_terminate_timeout";
  for (const Outcome& one : outcomes) {
    EXPECT_THAT(one.err, HasSubstr(said));
    EXPECT_EQ(one.err.find(said), one.err.rfind(said)) << "it is tried once";
  }
}

// Processes that compile may exchange measurements, so either all processes compile or none. This is also true if the
// cache of one process has a complete program that does not load.
TEST_F(SeveralProcesses, AllCompileWhenTheProgramOfOneDoesNotLoad) {
  const std::vector<std::string> more{"compile_cache=programs"};
  auto programs = [&](int rank) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ / ("process-" + std::to_string(rank)) / "programs"))
      if (entry.path().extension() == ".pjrt") files.push_back(entry.path());
    return files;
  };
  auto inodes = [&] {
    std::set<ino_t> found;
    for (const auto& file : programs(0)) {
      struct stat status {};
      stat(file.c_str(), &status);
      found.insert(status.st_ino);
    }
    return found;
  };
  expect_success(run(2, words("one", more), {}, true));
  const std::set<ino_t> before = inodes();
  ASSERT_FALSE(before.empty());
  expect_success(run(2, words("two", more), {}, true));
  EXPECT_EQ(inodes(), before) << "the programs are read";
  for (const auto& file : programs(1)) {  // layout of the file: magic, length, checksum, statistics, program
    std::string bytes = read_text(file);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + 8, sizeof length);
    std::fill(bytes.end() - static_cast<int64_t>(length), bytes.end(), 'x');
    const uint64_t checksum = XXH3_64bits(bytes.data() + bytes.size() - length, length);
    std::memcpy(bytes.data() + 16, &checksum, sizeof checksum);
    write_text(file, bytes);
  }
  expect_success(run(2, words("three", more), {}, true));
  for (const ino_t inode : inodes()) EXPECT_FALSE(before.contains(inode)) << "process 0 compiled too";
  expect_same_result("one", "three", "adapter_model.safetensors");
}

// Runs `fettle launch` with a fake remote shell, which runs the commands on this host.
TEST_F(SeveralProcesses, LaunchStartsThemAndPassesSignalsOn) {
  write_text(folder_ / "shell", "#!/bin/sh\nexec sh -c \"$2\"\n");
  std::filesystem::permissions(folder_ / "shell", std::filesystem::perms::owner_all);
  const Environment inner("FETTLE_INNER_PLUGIN", Plugin::find("cpu").string());
  auto launch = [&](const std::vector<std::string>& train) {
    std::vector<std::string> all{"launch",
                                 "--hosts",
                                 "someone@localhost,127.0.0.1",
                                 "--shell",
                                 (folder_ / "shell").string(),
                                 "--port",
                                 std::to_string(free_port())};
    all.insert(all.end(), train.begin() + 1, train.end());
    all.push_back(std::string("plugin=") + FETTLE_SEVERAL_PLUGIN);
    return all;
  };
  expect_success(run(1, words("one")));
  const Outcome two = run_fettle(folder_, launch(words("two")));
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr("2 processes, started by fettle launch"));
  expect_same_result("one", "two", "adapter_model.safetensors");

  const Running running(folder_.path(), launch(words("long", {"max_steps=2000"})));
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / "long/trainer_log.jsonl"); }));
  running.send(SIGTERM);
  const Outcome ended = running.wait();
  EXPECT_EQ(ended.code, 143) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("interrupted: step"));
}

// The shell of the second host ignores the end of its input, as ssh does when its host is lost.
TEST_F(SeveralProcesses, LaunchKillsShellsThatDoNotEnd) {
  write_text(folder_ / "shell", "#!/bin/sh\ntest $1 = a && exit 7\nsleep 1000\n");
  std::filesystem::permissions(folder_ / "shell", std::filesystem::perms::owner_all);
  const Environment quickly("FETTLE_HEARTBEAT_SECONDS", "1");
  const auto start = Clock::now();
  const Outcome one =
      run_fettle(folder_, {"launch", "--hosts", "a,b", "--shell", (folder_ / "shell").string(), "tune.yaml"});
  EXPECT_EQ(one.code, 7);
  EXPECT_THAT(one.err, HasSubstr("the shell for b does not end"));
  EXPECT_LT(seconds_since(start), 60);
}

// Tests the options for ssh with a program of the same name.
TEST_F(SeveralProcesses, LaunchLetsSshAskForNothing) {
  write_text(folder_ / "ssh", "#!/bin/sh\necho \"$1 $2 $3 $4\"\nexit 7\n");
  std::filesystem::permissions(folder_ / "ssh", std::filesystem::perms::owner_all);
  const Outcome one =
      run_fettle(folder_, {"launch", "--hosts", "a", "--shell", (folder_ / "ssh").string(), "tune.yaml"});
  EXPECT_EQ(one.out, "-oBatchMode=yes -oServerAliveInterval=2 -oServerAliveCountMax=4 a\n");
}

TEST_F(SeveralProcesses, LaunchShowsNoToken) {
  for (const char* word : {"hub_token=hf_secret", "hf_token=hf_secret", "--hf_token=hf_secret", "--hub-token=hf_secret",
                           "ms_hub_token=hf_secret", "logging.hf_token=hf_secret"}) {
    const Outcome one = run_fettle(folder_, {"launch", "--hosts", "a,b", "--shell", "/bin/false", word});
    EXPECT_EQ(one.code, 2) << word;
    EXPECT_THAT(one.err, HasSubstr("set HF_TOKEN on every host")) << word;
    EXPECT_THAT(one.err, Not(HasSubstr("hf_secret")));
  }
}

// A fake remote shell. It prints what the host's /bin/sh would run.
constexpr const char* kPrintingShell = "#!/bin/sh\neval \"set -- ${2#exec }\"\nprintf '%s\\n' \"$3\"\nexit 7\n";

// Tests which address of the first host the processes get.
TEST_F(SeveralProcesses, LaunchNamesTheFirstHost) {
  write_text(folder_ / "shell", kPrintingShell);
  std::filesystem::permissions(folder_ / "shell", std::filesystem::perms::owner_all);
  auto launched = [&](const std::vector<std::string>& more) {
    return run_fettle(folder_, with({"launch", "--hosts", "me@gpu01,me@gpu02", "--shell", (folder_ / "shell").string(),
                                     "tune.yaml"},
                                    more))
        .out;
  };
  EXPECT_THAT(launched({}), HasSubstr("FETTLE_ADDRESS='gpu01'"));
  EXPECT_THAT(launched({"--address", "10.0.0.1"}), HasSubstr("FETTLE_ADDRESS='10.0.0.1'"));
}

TEST_F(SeveralProcesses, LaunchRefusesAFirstHostThatTheOthersCannotReach) {
  for (const char* first : {"localhost", "me@localhost", "127.0.0.1", "::1"}) {
    const Outcome one =
        run_fettle(folder_, {"launch", "--hosts", std::string(first) + ",gpu02", "--shell", "/bin/false", "tune.yaml"});
    EXPECT_EQ(one.code, 2) << one.err;
    EXPECT_THAT(one.err, AllOf(HasSubstr("cannot reach the first host as '"), HasSubstr("set --address")));
  }
}

TEST_F(SeveralProcesses, LaunchRefusesSlurmsListOfHosts) {
  const Outcome one = run_fettle(folder_, {"launch", "--hosts", "gpu[01-03,07]", "--shell", "/bin/false", "tune.yaml"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, AllOf(HasSubstr("'gpu[01-03,07]' is a list of SLURM"), HasSubstr("scontrol show hostnames")));
}

// ssh gives the command to the user's login shell. Fish and csh read some characters differently from sh.
TEST_F(SeveralProcesses, LaunchWorksWithOtherLoginShells) {
  for (const std::string login : {"sh", "csh", "tcsh", "fish"}) {
    if (std::system(("command -v " + login + " >/dev/null").c_str()) != 0) continue;
    write_text(folder_ / "shell", "#!/bin/sh\nexec " + login + " -c \"$2\"\n");
    std::filesystem::permissions(folder_ / "shell", std::filesystem::perms::owner_all);
    const Outcome one =
        run_fettle(folder_, {"launch", "--hosts", "a", "--shell", (folder_ / "shell").string(), "a'b\\c!d $e.yaml"});
    EXPECT_EQ(one.code, 2) << login;
    EXPECT_THAT(one.err, HasSubstr("a'b\\c!d $e.yaml")) << login;
  }
  write_text(folder_ / "shell", "#!/bin/sh\necho \"$2\"\n");
  EXPECT_THAT(run_fettle(folder_, {"launch", "--hosts", "a", "--shell", (folder_ / "shell").string(), "a.yaml"}).out,
              testing::StartsWith("exec /bin/sh -c '"));
}

TEST_F(SeveralProcesses, LaunchPassesSettingsOnButNoTokens) {
  write_text(folder_ / "shell", kPrintingShell);
  std::filesystem::permissions(folder_ / "shell", std::filesystem::perms::owner_all);
  const Environment variables[] = {{"NCCL_SOCKET_IFNAME", "it's ib0"},
                                   {"FETTLE_HANG_SECONDS", "77"},
                                   {"FETTLE_STORE_PORT", "7777"},
                                   {"HF_TOKEN", "hf_secret"},
                                   {"FETTLE_API_KEY", "secret"}};
  auto launched = [&](const std::vector<std::string>& more) {
    return run_fettle(folder_,
                      with({"launch", "--hosts", "a", "--shell", (folder_ / "shell").string(), "tune.yaml"}, more))
        .out;
  };
  EXPECT_THAT(launched({}), AllOf(HasSubstr("export NCCL_SOCKET_IFNAME='it'\\''s ib0' && "),
                                  HasSubstr("export FETTLE_HANG_SECONDS='77' && "), HasSubstr("export XLA_FLAGS="),
                                  HasSubstr("export FETTLE_STORE_PORT='7777' && "), Not(HasSubstr("secret"))));
  EXPECT_THAT(launched({"--port", "8888"}), HasSubstr("export FETTLE_STORE_PORT=8888 && { "));
}

// Each process has its own current folder, so `lora` means different folders, as on hosts with their own caches.
TEST_F(SeveralProcesses, AdaptersToTrainFurtherMustBeTheSame) {
  const Outcome alone = run_fettle(folder_, words("one", {"max_steps=1"}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  for (const char* process : {"process-0", "process-1"}) {
    std::filesystem::create_directories(folder_ / process);
    std::filesystem::copy(folder_ / "one", folder_ / process / "lora");
  }
  const auto weights = folder_ / "process-1/lora/adapter_model.safetensors";
  std::string bytes = read_text(weights);
  bytes.back() ^= 1;  // in the last tensor's last number
  std::ofstream(weights, std::ios::binary) << bytes;
  for (const Outcome& one : run(2, words("two", {"max_steps=1", "adapter_name_or_path=lora"}), {}, true)) {
    EXPECT_EQ(one.code, 2);
    EXPECT_THAT(one.err, HasSubstr("the adapter differs between"));
  }
}

// Each process has its own file of held-out rows. The tokens differ, but not their number.
TEST_F(SeveralProcesses, HeldOutRowsMustBeTheSame) {
  for (const auto& [process, ids] : {std::pair{"process-0", "[1, 2, 3]"}, {"process-1", "[1, 3, 2]"}}) {
    std::filesystem::create_directories(folder_ / process);
    write_text(folder_ / process / "held_out.jsonl",
               fmt::format(R"({{"input_ids": {}, "labels": {}}})", ids, ids) + "\n");
  }
  for (const Outcome& one :
       run(2, words("out", {"max_steps=1", "eval_dataset=held_out.jsonl", "eval_strategy=epoch"}), {}, true)) {
    EXPECT_EQ(one.code, 2) << one.err;
    EXPECT_THAT(one.err, HasSubstr("the held-out data (its tokens) differs between"));
  }
}

// The chat template shows the time zone. All processes show that of process 0.
TEST_F(SeveralProcesses, HostsInDifferentTimeZonesShowOneDate) {
  zones_ = {{0, "EAST-9"}, {1, "WEST+7"}};
  const std::string chat =
      "template={{ strftime_now('%H %z') }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
      "{% endfor %}";
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows += nlohmann::json{{"messages",
                            {{{"role", "user"}, {"content", "count"}},
                             {{"role", "assistant"}, {"content", std::to_string(i)}}}}}
                .dump() +
            "\n";
  write_text(folder_ / "rows.jsonl", rows);
  const auto all = words("out", {chat, "dataset=" + (folder_ / "rows.jsonl").string(), "max_steps=1"});
  for (const Outcome& one : run(2, all)) EXPECT_EQ(one.code, 0) << one.err;
}

// Each process has its own current folder, so `output_dir=here` means different folders, as on hosts with their own
// disks.
TEST_F(SeveralProcesses, OutputFoldersMustBeOne) {
  for (const Outcome& one : run(2, words("out", {"output_dir=here"}), {}, true)) {
    EXPECT_EQ(one.code, 2);
    EXPECT_THAT(one.err, HasSubstr("name a folder on a file system that all hosts share"));
  }
}

}  // namespace
}  // namespace fettle
