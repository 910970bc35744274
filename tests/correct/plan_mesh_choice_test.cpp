// Tests which meshes are considered and which mesh is chosen, on eight CPU devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "gpu_plugin.h"
#include "paths.h"
#include "plan/mesh_choice.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;
const std::string kFile = (source_folder() / "tests/reference/models/llama/config.json").string();

Recipe recipe_for(int64_t devices) {
  Recipe recipe;
  recipe.model_name_or_path = std::filesystem::path(kFile).parent_path().string();
  recipe.plugin = "cpu";
  recipe.device_count = devices;
  recipe.mesh = {{"auto", 1}};
  recipe.lora_rank = 4;
  recipe.per_device_train_batch_size = 2;
  recipe.cutoff_len = 64;
  return recipe;
}

TEST(MeshCandidates, DivideTheModelAndKeepTheRowsOfAStep) {
  const Recipe recipe = recipe_for(8);
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  ASSERT_EQ(machine.count(), 8);
  const std::vector<MeshCandidate> found = mesh_candidates(Request(recipe, Command::kPlan), machine);
  std::set<std::string> texts;
  for (const MeshCandidate& candidate : found) {
    EXPECT_TRUE(texts.insert(candidate.text).second) << candidate.text;
    const auto run = Request(recipe, Command::kPlan).resolve({.count = 8}, Purpose::kTraining, candidate.variant);
    EXPECT_EQ(run.sharding.mesh().size(), 8) << candidate.text;
    EXPECT_EQ(run.rows_per_micro_batch(), 16) << candidate.text;
    EXPECT_GT(candidate.guessed_seconds, 0);
  }
  EXPECT_TRUE(texts.contains("mesh fsdp 8"));
  EXPECT_TRUE(texts.contains("mesh dp 8"));
  EXPECT_TRUE(texts.contains("mesh dp 2 x fsdp 2 x tp 2"));
  EXPECT_TRUE(texts.contains("mesh fsdp 2 x sp 4"));
  EXPECT_FALSE(texts.contains("mesh tp 8")) << "two key heads do not divide by 8";
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(), [](const MeshCandidate& a, const MeshCandidate& b) {
    return a.guessed_seconds < b.guessed_seconds;
  }));
}

// Each of the seven devices can have a whole copy of the model, or a part of each row.
TEST(MeshCandidates, DpAndSpAreLeftWhenNothingElseDivides) {
  const Request request(recipe_for(7), Command::kPlan);
  std::vector<std::string> texts;
  for (const MeshCandidate& candidate : mesh_candidates(request, Machine::of(request))) texts.push_back(candidate.text);
  EXPECT_THAT(texts, testing::ElementsAre("mesh dp 7", "mesh sp 7"));
}

TEST(ChooseMesh, TakesACompiledMeshAndListsTheOthers) {
  const Recipe recipe = recipe_for(4);
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  const MeshChoice choice = choose_mesh(Request(recipe, Command::kPlan), machine);
  const MeshCandidate& taken = choice.taken();
  ASSERT_TRUE(taken.plan);
  EXPECT_TRUE(taken.plan->memory.fits());
  EXPECT_EQ(taken.verdict, "taken");
  EXPECT_TRUE(taken.variant.mesh.has_value());
  EXPECT_EQ(taken.plan->rows, 8);
  for (size_t i = 1; i < choice.candidates.size(); ++i) EXPECT_NE(choice.candidates[i].verdict, "taken");
  EXPECT_THAT(format_choice(choice, machine),
              testing::AllOf(HasSubstr(taken.text), HasSubstr("this table is for gradient_checkpointing: full;")));
}

TEST(ChooseMesh, SaysWhenNothingDivides) {
  Recipe recipe = recipe_for(7);
  recipe.cutoff_len = 64;
  // dp is always possible: each of the seven devices has a whole copy of the model.
  EXPECT_EQ(choose_mesh(Request(recipe, Command::kPlan), Machine::of(Request(recipe, Command::kPlan))).taken().text,
            "mesh dp 7");
}

constexpr double kSlow = 12.5 / 8;  // 100 Gb/s for each host: GB/s of one device's share
constexpr double kFast = 448;       // as fast as the links inside a host

// LoRA of Llama 3.1 405B on two hosts of eight devices, which are not present.
class MeshOfHosts : public testing::Test {
 protected:
  void SetUp() override { require_gpu_plugin("rocm"); }

  // `device` is an AMD device. Each device has one row of `length` tokens. `figures` are more lines of the target file.
  Request request(const std::string& device, double network_gb_per_s, int64_t length, const std::string& figures) {
    const std::filesystem::path target = folder_ / "target.yaml";
    std::ofstream(target) << "like: " << device << "\nnetwork_gb_per_s: " << network_gb_per_s << "\n" << figures;
    Recipe recipe;
    recipe.model_name_or_path = (source_folder() / "examples/models/llama3.1-405b").string();
    recipe.target = target.string() + ":2x8";
    recipe.mesh = {{"auto", 1}};
    recipe.bf16 = true;
    recipe.packing = true;
    recipe.cutoff_len = length;
    recipe.per_device_train_batch_size = 1;
    recipe.gradient_checkpointing = "full";
    return Request(recipe, Command::kPlan);
  }
  std::vector<MeshCandidate> candidates(const std::string& device, double network_gb_per_s,
                                        const std::string& figures = "") {
    const Request one = request(device, network_gb_per_s, 4096, figures);
    return mesh_candidates(one, Machine::of(one));
  }
  // Returns how many times longer the best mesh without dp takes than the best mesh, by the guess.
  static double cost_without_dp(const std::vector<MeshCandidate>& sorted) {
    for (const MeshCandidate& one : sorted)
      if (one.variant.mesh->at("dp") == 1) return one.guessed_seconds / sorted.front().guessed_seconds;
    return 0;
  }

  TempFolder folder_;
};

TEST_F(MeshOfHosts, TheGuessKnowsSlowLinks) {
  const std::vector<MeshCandidate> slow = candidates("mi300x", kSlow), fast = candidates("mi300x", kFast);
  EXPECT_EQ(slow.front().variant.mesh->at("dp"), 2) << slow.front().text;
  EXPECT_GT(cost_without_dp(slow), 5);
  EXPECT_LT(cost_without_dp(fast), 1.1);
  const double slowest = cost_without_dp(candidates("mi300x", 25.0 / 8 / 8));  // 25 Gb/s for each host
  EXPECT_GT(slowest, 1.5 * cost_without_dp(candidates("mi300x", 1))) << "rates below 1 GB/s count as they are";
  // A host of eight MI210 has 550 GB, and the weights have 812 GB. So dp, which needs a copy of the weights in each
  // host, is not possible.
  const MeshCandidate large = candidates("mi210", kSlow).front();
  EXPECT_EQ(large.variant.mesh->at("dp"), 1) << large.text;
}

// A group of two or four MI300X uses only the direct links between its devices.
TEST_F(MeshOfHosts, TheGuessKnowsDirectLinks) {
  const auto guess = [](const std::vector<MeshCandidate>& all, const std::string& text) {
    return std::ranges::find(all, text, &MeshCandidate::text)->guessed_seconds;
  };
  const auto direct = candidates("mi300x", kFast), by_switch = candidates("mi300x", kFast, "link_peers: 0\n");
  EXPECT_GT(guess(direct, "mesh dp 2 x fsdp 4 x tp 2"), guess(by_switch, "mesh dp 2 x fsdp 4 x tp 2"));
  EXPECT_DOUBLE_EQ(guess(direct, "mesh dp 2 x fsdp 8"), guess(by_switch, "mesh dp 2 x fsdp 8"));
}

}  // namespace
}  // namespace fettle
