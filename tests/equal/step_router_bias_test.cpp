// Tests that the corrections of routers move in the same way on a mesh, in micro-batches, and with offload_dir.
#include <gtest/gtest.h>

#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

TrainResult train_moving(const std::vector<std::string>& more) {
  std::vector<std::string> words{"model_name_or_path=" + reference_model("minimax_m2").string(), "plugin=cpu",
                                 "finetuning_type=full", "moe_router_bias_update_rate=0.01"};
  words.insert(words.end(), more.begin(), more.end());
  return train(read_recipe("", words), {.steps = 3, .rate = 5e-4});
}

TEST(RouterBias, MovesInTheSameWayOnAMeshInMicroBatchesAndWithStateOnADisk) {
  TempFolder folder;
  const TrainResult wanted = train_moving({"per_device_train_batch_size=8"}),
                    mesh = train_moving({"mesh={fsdp: 2, ep: 2, tp: 2}", "per_device_train_batch_size=2",
                                         "gradient_accumulation_steps=2"}),
                    disk = train_moving({"per_device_train_batch_size=8", "offload_dir=" + (folder / "disk").string()});
  ASSERT_EQ(wanted.corrections.size(), 1u);
  for (const TrainResult* got : {&mesh, &disk}) {
    EXPECT_EQ(got->corrections.begin()->second.elements, wanted.corrections.begin()->second.elements);
    expect_equal_lists(got->losses, wanted.losses, 1e-5, "loss");
  }
}

}  // namespace
}  // namespace fettle
