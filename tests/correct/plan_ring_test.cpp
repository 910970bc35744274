// Tests what a device sends when `sp` splits the positions: keys and values travel around the ring, and nothing gathers
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/compiled/traffic.h"
#include "plan/machine.h"
#include "resolve_run.h"
#include "step/step.h"
#include "temp_folder.h"

namespace fettle {
namespace {

constexpr int64_t kLayers = 2, kHeads = 8, kKeyHeads = 2, kWidth = 16;

// Compiles a LoRA step of a small Llama for eight CPU devices, and returns its traffic.
std::vector<Traffic> traffic_at(int64_t length) {
  const nlohmann::json config = {{"model_type", "llama"},
                                 {"hidden_size", kHeads * kWidth},
                                 {"intermediate_size", 64},
                                 {"num_hidden_layers", kLayers},
                                 {"vocab_size", 64},
                                 {"num_attention_heads", kHeads},
                                 {"num_key_value_heads", kKeyHeads},
                                 {"tie_word_embeddings", false},
                                 {"torch_dtype", "float32"},
                                 {"max_position_embeddings", 8192}};
  const TempFolder folder;
  std::ofstream(folder / "config.json") << config.dump();
  const Recipe recipe = read_recipe(
      "", {"model_name_or_path=" + folder.path().string(), "plugin=cpu", "device_count=8", "mesh=sp=8", "kernels=off",
           "gradient_checkpointing=full", "cutoff_len=" + std::to_string(length), "per_device_train_batch_size=1"});
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  const auto run = make_run(recipe, config, "config.json", machine.run_target());
  const HloModule module = read_hlo(machine.compile(build_train_step(run, length), false).optimized);
  return traffic_of(module, run.sharding.mesh(), machine.linked_devices());
}

TEST(PlanRing, KeysAreSentAroundAndNotGathered) {
  constexpr int64_t kLength = 2048, kLocal = kLength / 8;
  double sent = 0, gathered = 0;
  for (const Traffic& row : traffic_at(kLength)) {
    EXPECT_EQ(row.axes, "sp") << row.collective;
    (row.collective == "collective-permute" ? sent : gathered) += row.link_bytes;
  }
  // Per layer: keys and values make 7 turns each in forward, recomputation and backward; their gradients make 8.
  const double keys = 2.0 * 4 * kLocal * kKeyHeads * kWidth, queries = 4.0 * kLocal * kHeads * kWidth;
  const double turns = kLayers * keys * (3 * 7 + 8);
  EXPECT_GT(sent, turns);
  // Each pass also exchanges the chunks of q, k, v and the result: the backward pass once for the result's cotangent
  // and once for the gradients. Segments are small.
  EXPECT_LT(sent, turns + kLayers * 3 * (keys + 2 * queries) + 0.05 * turns);
  EXPECT_LT(gathered, 0.5 * keys * 8) << "one gather of one layer's keys and values would be more";
}

}  // namespace
}  // namespace fettle
