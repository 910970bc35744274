// Tests `fettle plan --shards`, which shows how a step's arrays are split over devices. It compiles nothing, and the
// devices may be absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> shards_words(const std::vector<std::string>& more) {
  return with({"plan", "model_name_or_path=" + reference_model("llama").string(), "per_device_train_batch_size=2",
               "cutoff_len=40", "lora_rank=4", "--shards"},
              more);
}

TEST(PlanShards, DrawsTheMeshOfATarget) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, shards_words({"--target", "mi300x:2x4", "mesh.fsdp=4", "mesh.tp=2", "plugin=/nowhere.so"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("8 x AMD Instinct MI300X, mesh fsdp 4 x tp 2"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run.out, HasSubstr("  self_attn.o_proj, mlp.down_proj\n"
                                 "  each split over [fsdp, tp]\n"
                                 "┌─────┬─────┐\n"
                                 "│  0  │  1  │\n"
                                 "├─────┼─────┤\n"
                                 "│  2  │  3  │\n"
                                 "├─────┼─────┤\n"
                                 "│  4  │  5  │\n"
                                 "├─────┼─────┤\n"
                                 "│  6  │  7  │\n"
                                 "└─────┴─────┘\n"));
  EXPECT_THAT(run.out, HasSubstr("optimizer state m\n  each is split like adapters\n"));
}

// LoRA weights are split like their base weight: A like the input dimension, B like the output dimension.
TEST(PlanShards, JsonAgreesWithTheMeshOfThisMachine) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, shards_words({"--target", "this", "plugin=cpu", "mesh.fsdp=2", "mesh.tp=2", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const auto shards = nlohmann::json::parse(run.out)["shards"];
  std::map<std::string, nlohmann::json> arrays;
  for (const auto& array : shards["arrays"]) {
    int64_t parts = 1;
    for (const auto& axes : array["partition"])
      for (const auto& axis : axes) {
        parts *= 2;
        EXPECT_TRUE(axis == "fsdp" || axis == "tp") << array;
      }
    EXPECT_EQ(array["bytes_per_device"].get<int64_t>() * parts, array["bytes"].get<int64_t>()) << array;
    arrays[array["name"]] = array["partition"];
  }
  for (const auto& [row, partition] : arrays) {
    if (!row.ends_with("lora_A.weight") || row.starts_with("m/") || row.starts_with("v/")) continue;
    const std::string module = row.substr(0, row.size() - std::string("lora_A.weight").size());
    EXPECT_EQ(arrays.at(module + "lora_B.weight")[1], arrays.at(module + "weight")[1]) << module;
    EXPECT_EQ(partition[1], nlohmann::json::array()) << "the rank is not split: " << module;
  }
  EXPECT_EQ(arrays.at("tokens"), nlohmann::json::parse(R"([[], ["fsdp"], []])"));
}

}  // namespace
}  // namespace fettle
