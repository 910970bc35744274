// Tests AMD's real plugin on a stand-in runtime that computes nothing: transfers, memory, checkpoints and refused runs.
#include "end_to_end/stand_in_hip.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>

#include "base/size_text.h"
#include "processes.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMB = 1'000'000, kGB = 1'000'000'000;

// Returns the part `per_device` of the plan's JSON.
nlohmann::json plan_of(const Outcome& run) {
  return nlohmann::json::parse(run.out)["per_device"];
}

// Returns the initial adapter, which one CPU step with learning rate 0 leaves unchanged. The stand-in computes nothing,
// so the adapters of its runs must equal this one.
std::string initial_adapter(const TempFolder& folder) {
  const Outcome run =
      run_fettle(folder, with(train_words(folder / "cpu"), {kFewWeights, "warmup_steps=1", "max_steps=1"}));
  EXPECT_EQ(run.code, 0) << run.err;
  return read_text(folder / "cpu/adapter_model.safetensors");
}

TEST_F(StandInHip, ARunTrainsSavesResumesAndExports) {
  const std::vector<std::string> saving = {"save_strategy=steps", "save_steps=2"};
  const Outcome trained = run(words("out", saving));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("Stand-in MI300X (1 device)"), HasSubstr("does not compute")));
  EXPECT_EQ(logged_losses(folder_ / "out").size(), 4u);
  EXPECT_GT(counted("kernels").at(0).calls, 0);
  const std::string adapter = initial_adapter(folder_);
  EXPECT_EQ(read_text(folder_ / "out/adapter_model.safetensors"), adapter)
      << "the adapter after its upload, four steps and its download";

  std::filesystem::remove_all(folder_ / "out/checkpoint-4");
  const Outcome resumed = run(words("out", with(saving, {"resume_from_checkpoint=true"})));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("step 3/4"), Not(HasSubstr("step 2/4"))));
  EXPECT_EQ(read_text(folder_ / "out/adapter_model.safetensors"), adapter);

  // Exports the model without an adapter, because export refuses an adapter that changes no logit.
  for (const char* plugin : {"rocm", "cpu"}) {
    const Outcome exported =
        run({"export", "model_name_or_path=" + reference_model("llama").string(), "export_dtype=bfloat16",
             "export_dir=" + (folder_ / "merged" / plugin).string(), "plugin=" + std::string(plugin)});
    ASSERT_EQ(exported.code, 0) << exported.err;
  }
  EXPECT_EQ(read_text(folder_ / "merged/rocm/model.safetensors"), read_text(folder_ / "merged/cpu/model.safetensors"));
}

// A GPU computes small micro-batches at once. A run that continues does the same.
TEST_F(StandInHip, SmallMicroBatchesAreComputedAtOnceAlsoAfterAResume) {
  const std::vector<std::string> more{"gradient_accumulation_steps=4", "per_device_train_batch_size=1",
                                      "save_strategy=steps", "save_steps=2"};
  const Outcome trained = run(words("out", more));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, ContainsRegex("auto chooses [a-z]+, and 4 of a step's 4 micro-batches at once"));
  const auto rows = nlohmann::json::parse(read_text(folder_ / "out/trainer_state.json"))["train_batch_size"];
  EXPECT_EQ(rows, 1) << "the recipe's number";

  std::filesystem::remove_all(folder_ / "out/checkpoint-4");
  const Outcome resumed = run(words("out", with(more, {"resume_from_checkpoint=true"})));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err,
              ContainsRegex("gradient_checkpointing: [a-z]+, and 4 of a step's 4 micro-batches at once, as in "
                            "the run that wrote the checkpoint"));
}

TEST_F(StandInHip, EachByteGoesOnceToEachOfEightDevicesThatNeedsIt) {
  set("STAND_IN_DEVICES", 8);
  set("STAND_IN_BYTES", 6 * kGB);
  const Outcome trained = run(words("out"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<Work> sent = counted("to_device"), pools = counted("pools"), threads = counted("pool_thread");
  EXPECT_EQ(read_text(folder_ / "out/adapter_model.safetensors"), initial_adapter(folder_));

  const nlohmann::json plan = plan_of(run(planning({"--json"})));
  const auto bytes = [&](const char* part) { return plan[part].get<int64_t>(); };
  const int64_t weights = bytes("frozen_bytes") + bytes("adapter_bytes") + bytes("optimizer_bytes");
  constexpr int64_t kSteps = 4, kProbe = 2 * 64 * 64 * 4, kScalars = 2000;
  // 12 base weights; A and B of one module, each with two moments; 2 matrices that check the devices' arithmetic.
  constexpr int64_t kArrays = 12 + 3 * 2 + 2;
  constexpr int64_t kArraysOfAStep = 13;
  ASSERT_EQ(sent.size(), 8u);
  for (const Work& device : sent) {
    EXPECT_GE(device.bytes, weights);
    EXPECT_LE(device.bytes, weights + kSteps * bytes("batch_bytes") + kProbe + kScalars);
    EXPECT_LE(device.calls, kArrays + kSteps * kArraysOfAStep);
  }
  EXPECT_EQ(counted("between_devices").at(1).calls, 0);

  // The devices allocate their memory in parallel. The plugin fills a table for each device, which takes seconds for a
  // large device.
  std::set<int64_t> different;
  for (const Work& thread : threads) different.insert(thread.bytes);
  EXPECT_GE(different.size(), 4u);
  for (const Work& pool : pools) EXPECT_EQ(pool.calls, 1);
}

TEST_F(StandInHip, OnlyTheDevicesThatAreAskedForAreOpened) {
  set("STAND_IN_DEVICES", 2);
  const Outcome trained = run(words("out", {"max_steps=1", "device_count=1"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<Work> pools = counted("pools");
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].calls, 1);
  EXPECT_EQ(pools[1].calls, 0);
}

// Returns the name of the mesh in the line "mesh dp 4 ... taken; limited by ..." of a table.
std::string taken_mesh(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("mesh "); at != std::string::npos && line.find(" taken; ") != std::string::npos)
      return line.substr(at, line.find("  ", at) - at);
  return "none";
}

// With the rates of the first file, the links are the slowest part of a step. With the rates of the second file, the
// memory is the slowest part. So the two files lead to different meshes.
TEST_F(StandInHip, TrainTakesTheMeshOfThePlanForTheSameTarget) {
  set("STAND_IN_DEVICES", 4);
  set("STAND_IN_BYTES", 6 * kGB);
  std::set<std::string> meshes;
  for (const std::string rates : {"link_gb_per_s: 0.01", "memory_gb_per_s: 0.01\nlink_gb_per_s: 100000"}) {
    write_text(folder_ / "target.yaml", "like: mi300x\n" + rates + "\n");
    const std::vector<std::string> more{"mesh=auto",
                                        "lora_target=all",
                                        "target=" + (folder_ / "target.yaml").string() + ":4",
                                        "per_device_train_batch_size=1",
                                        "packing=true",
                                        "max_steps=1"};
    const std::string out = "out" + std::to_string(meshes.size());
    const Outcome planned = run(planning(more)), trained = run(words(out, more));
    ASSERT_EQ(planned.code, 0) << planned.err;
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(taken_mesh(trained.err), taken_mesh(planned.out)) << planned.out << trained.err;
    meshes.insert(taken_mesh(planned.out));
  }
  EXPECT_EQ(meshes.size(), 2u) << "the rates decide: " << testing::PrintToString(meshes);
}

TEST_F(StandInHip, WithOffloadTheLayersStayInTheHostsMemory) {
  const Outcome trained = run(words("out", {"offload_param=true", "offload_optimizer=true"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("in the host's memory"));
  EXPECT_EQ(read_text(folder_ / "out/adapter_model.safetensors"), initial_adapter(folder_));
}

// The plan assumes that every row has cutoff_len tokens. The rows of this run are shorter, so the step needs less
// memory than the plan shows.
TEST_F(StandInHip, AStepThatIsTooLargeIsRefusedWithItsNumbers) {
  const std::vector<std::string> large = {"per_device_train_batch_size=64", "gradient_checkpointing=false"};
  const Outcome planned = run(with(planning({"--json"}), large));
  EXPECT_EQ(planned.code, 0) << planned.err;
  set("STAND_IN_BYTES", 800 * kMB + 4 * kMB);  // 0.8 GB are reserved for libraries
  const Outcome trained = run(words("out", large));
  EXPECT_EQ(trained.code, 3) << trained.err;
  EXPECT_THAT(trained.err, ContainsRegex("the step needs [0-9.]+ MB on each"));
  EXPECT_GT(plan_of(planned)["peak_bytes"].get<int64_t>(), 4 * kMB);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(StandInHip, WhatOtherProgramsHoldIsLeftToThem) {
  set("STAND_IN_HELD", 2 * kGB);
  const Outcome trained = run(words("out", {"max_steps=1", "bf16=true"}));  // hipBLASLt computes bf16 products
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("other programs use 1.20 GB of it; this program takes 2.00 GB"));
  EXPECT_LE(counted("pools").at(0).bytes, 2 * kGB + kMB);
}

TEST_F(StandInHip, ADeviceThatComputesNothingIsRefused) {
  set("FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC", std::nullopt);
  set("STAND_IN_DEVICES", 2);
  const Outcome trained = run(words("out"));
  EXPECT_EQ(trained.code, 4) << trained.err;
  EXPECT_THAT(trained.err,
              AllOf(HasSubstr("device 0 of Stand-in MI300X (2 devices) does not compute"), HasSubstr("docs/gpus.md")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(StandInHip, EachProcessOfAHostLoadsItsProgramFromTheCache) {
  set("STAND_IN_DEVICES", 2);
  // Returns the names and inodes of the stored programs after a run of two processes with one device each.
  auto stored_after = [&](const std::string& output) {
    const std::string port = std::to_string(free_port());
    std::vector<Running> running;
    for (const std::string rank : {"0", "1"}) {
      const Environment variables[] = {{"RANK", rank},
                                       {"LOCAL_RANK", rank},
                                       {"WORLD_SIZE", "2"},
                                       {"LOCAL_WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "localhost"},
                                       {"FETTLE_STORE_PORT", port}};
      std::filesystem::create_directories(folder_ / rank);
      running.emplace_back(folder_ / rank, words(output, {"max_steps=1"}));
    }
    for (const Running& one : running) {
      const Outcome outcome = one.wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
    std::set<std::pair<std::string, ino_t>> programs;
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "compiled")) {
      struct stat status {};
      stat(file.path().c_str(), &status);
      programs.emplace(file.path().filename(), status.st_ino);
    }
    return programs;
  };
  const auto programs = stored_after("first");
  EXPECT_GT(programs.size(), 1u);
  EXPECT_EQ(stored_after("second"), programs) << "the second run compiled again";
}

// For the memory of eight MI300X, the plugin's tables need 49 GB of host memory.
TEST_F(StandInHip, AHostWithTooLittleMemoryForTheTablesIsToldSo) {
  set("STAND_IN_DEVICES", 8);
  set("STAND_IN_BYTES", 206'158'430'208);
  const Outcome trained = Running(folder_.path(), words("out"), "", "", 3 * kGB).wait();
  EXPECT_EQ(trained.code, 3) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("a table of 48.96 GB in host memory"), HasSubstr("gpu_memory_utilization"),
                                 HasSubstr("ROCR_VISIBLE_DEVICES")));
}

}  // namespace
}  // namespace fettle
