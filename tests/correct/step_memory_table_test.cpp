// Compares the memory table with counts made by hand, the compiler's statistics and shardings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "memory_tables.h"
#include "programs/devices.h"
#include "run/device_request.h"
#include "runtime/vendors/vendor.h"
#include "step/memory/memory_table.h"
#include "step/step.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Recipe small_recipe() {
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.lora_rank = 4;
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  return recipe;
}

Run cpu_job(const Recipe& recipe, int64_t devices = 1) {
  return job_for(recipe, {.count = devices});
}

constexpr int64_t kGB = 1'000'000'000;

// llama's reference model has vocabulary 256, hidden size 64, MLP size 96, 2 layers, 4 heads and 2 key heads of size
// 16, and an untied head.
constexpr int64_t kLayer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96 + 2 * 64;
constexpr int64_t kBase = 2 * 256 * 64 + 2 * kLayer + 64;
constexpr int64_t kPairs = 2 * 4 * ((64 + 64) * 2 + (64 + 32) * 2 + (64 + 96) * 3);

TEST(MemoryTable, CountsLora) {
  const MemoryTable table = table_of(cpu_job(small_recipe()), {.peak = 10'000'000}, {.limit = kGB}, "cpu (1 device)");
  EXPECT_EQ(table.frozen, 4 * kBase);
  EXPECT_EQ(table.trained, 4 * kPairs);
  EXPECT_TRUE(table.adapters);
  EXPECT_EQ(table.optimizer, 8 * kPairs);
  EXPECT_EQ(table.gradients, 4 * kPairs);
  EXPECT_EQ(table.batch, 5 * 4 * 2 * 2 * 40) << "tokens, targets, positions, segments and rows";
  EXPECT_EQ(table.frozen + table.trained + table.optimizer + table.batch + table.temporaries, table.peak);
}

TEST(MemoryTable, HostMemoryHasItsOwnLine) {
  Recipe recipe = small_recipe();
  recipe.finetuning_type = "full";
  recipe.offload_optimizer = recipe.offload_param = true;
  const MemoryStats stats{.host_argument = 30'000'000,
                          .host_output = 29'000'000,
                          .host_alias = 29'000'000,
                          .host_temp = 500'000,
                          .peak = 10'000'000};
  const MemoryTable table = table_of(cpu_job(recipe), stats, {.limit = kGB}, "");
  EXPECT_EQ(table.trained, 4 * (kBase - 2 * kLayer)) << "embedding, head and norm";
  EXPECT_EQ(table.gradients, table.trained);
  EXPECT_EQ(table.optimizer, 0);
  EXPECT_EQ(table.host_trained, 4 * 2 * kLayer);
  EXPECT_EQ(table.host_optimizer, 8 * kBase);
  EXPECT_EQ(table.host(), 30'500'000);
  EXPECT_THAT(format_memory_table(table), HasSubstr("in the host's memory          30.50 MB"));
  EXPECT_EQ(to_json(table)["host_bytes"], 30'500'000);
}

TEST(MemoryTable, CountsFullTuningAndLowPrecision) {
  Recipe recipe = small_recipe();
  recipe.finetuning_type = "full";
  const MemoryTable full = table_of(cpu_job(recipe), {.peak = 10'000'000}, {}, "");
  EXPECT_EQ(full.frozen, 0);
  EXPECT_EQ(full.trained, 4 * kBase);
  EXPECT_EQ(full.optimizer, 8 * kBase);
  EXPECT_FALSE(full.adapters);
  recipe.finetuning_type = "lora";
  recipe.bf16 = true;
  const MemoryTable low = table_of(cpu_job(recipe), {.peak = 10'000'000}, {}, "");
  EXPECT_EQ(low.frozen, 2 * kBase);
  EXPECT_EQ(low.trained, 4 * kPairs) << "adapters stay f32";
}

TEST(MemoryTable, CountsOneDevicesShare) {
  Recipe recipe = small_recipe();
  recipe.finetuning_type = "full";
  const MemoryTable one = table_of(cpu_job(recipe), {.peak = 10'000'000}, {}, "");
  const MemoryTable four = table_of(cpu_job(recipe, 4), {.peak = 10'000'000}, {}, "");
  EXPECT_LT(four.trained, one.trained / 3);
  EXPECT_GE(four.trained, one.trained / 4);
  EXPECT_EQ(four.optimizer, 2 * four.trained);
  EXPECT_EQ(four.batch, one.batch) << "the batch is per device";
}

// The bytes that the table counts as stored are the compiler's arguments, except for a few scalars.
TEST(MemoryTable, AgreesWithTheCompiler) {
  for (const char* type : {"lora", "full"}) {
    Recipe recipe = small_recipe();
    recipe.finetuning_type = type;
    Devices devices(device_request(recipe));
    const auto run = cpu_job(recipe);
    const MemoryStats stats = devices.compile(build_train_step(run, 40)).memory_stats();
    const MemoryTable table = table_of(run, stats, devices.memory(), devices.title());
    const int64_t held = table.frozen + table.trained + table.optimizer + table.batch;
    EXPECT_LE(held, stats.argument) << type;
    EXPECT_LT(stats.argument - held, 4096) << type;
    EXPECT_EQ(table.peak, stats.peak);
    EXPECT_GT(table.temporaries, 0);
    EXPECT_TRUE(table.fits());
  }
}

TEST(MemoryTable, Printed) {
  const auto run = cpu_job(small_recipe());
  const std::string text =
      format_memory_table(table_of(run, {.peak = 10'000'000}, {.limit = 4 * kGB}, "cpu (1 device)"));
  EXPECT_THAT(text, AllOf(HasSubstr("on each device of cpu (1 device)"), HasSubstr("frozen weights"),
                          HasSubstr("adapter weights"), HasSubstr("of which gradients"), HasSubstr("10.00 MB"),
                          HasSubstr("4.00 GB"), HasSubstr("3.99 GB")));
  EXPECT_THAT(format_memory_table(table_of(run, {.peak = 10'000'000}, {}, "x")),
              AllOf(HasSubstr("limit is not known"), Not(HasSubstr("head-room"))));
}

TEST(MemoryTable, Json) {
  const nlohmann::json known = to_json(table_of(cpu_job(small_recipe()), {.peak = 10'000'000}, {.limit = kGB}, "x"));
  EXPECT_EQ(known["peak_bytes"], 10'000'000);
  EXPECT_EQ(known["limit_bytes"], kGB);
  EXPECT_EQ(known["frozen_bytes"], 4 * kBase);
  EXPECT_EQ(known["adapter_bytes"], 4 * kPairs);
  EXPECT_EQ(known["optimizer_bytes"], 8 * kPairs);
  EXPECT_EQ(known["head_room_bytes"], 990'000'000);
  const nlohmann::json unknown = to_json(table_of(cpu_job(small_recipe()), {.peak = 10'000'000}, {}, "x"));
  EXPECT_TRUE(unknown["limit_bytes"].is_null());
  EXPECT_TRUE(unknown["head_room_bytes"].is_null());
}

// Returns the share of a 24 GB device: `utilization`, or less if library_bytes and communication_bytes leave less. The
// made-up vendor has 1 GB of each.
MemoryShare share(double utilization, int64_t devices, int64_t used = 0) {
  Vendor vendor = unknown_vendor();
  vendor.library_bytes = vendor.communication_bytes = kGB;
  return share_memory(vendor, 24 * kGB, used, utilization, devices);
}

TEST(MemoryTable, TheLimitIsTheShareOfTheDevice) {
  const auto run = cpu_job(small_recipe());
  const MemoryTable fits = table_of(run, {.peak = 22'800'000'000}, share(0.95, 1), "x");
  EXPECT_TRUE(fits.fits());
  EXPECT_EQ(fits.head_room(), 0);
  EXPECT_THAT(format_memory_table(fits), HasSubstr("22.80 GB  (of 24.00 GB, gpu_memory_utilization: 0.95)"));
  EXPECT_FALSE(table_of(run, {.peak = 22'800'000'001}, share(0.95, 1), "x").fits());
  EXPECT_TRUE(table_of(run, {.peak = 22'800'000'001}, share(0.98, 1), "x").fits()) << "23 GB";
  const nlohmann::json json = to_json(fits);
  EXPECT_EQ(json["memory_bytes"], 24 * kGB);
  EXPECT_EQ(json["limit_bytes"], 22'800'000'000);
  EXPECT_EQ(json["gpu_memory_utilization"], 0.95);
  EXPECT_EQ(json["allowance_bytes"], kGB);
}

TEST(MemoryTable, LibrariesAndOtherProgramsReduceTheLimit) {
  const auto run = cpu_job(small_recipe());
  EXPECT_THAT(format_memory_table(table_of(run, {.peak = kGB}, share(0.95, 2), "x")),
              HasSubstr("22.00 GB  (of 24.00 GB, minus an estimated 2.00 GB for driver and libraries)"));
  EXPECT_THAT(
      format_memory_table(table_of(run, {.peak = kGB}, share(0.95, 2, 4 * kGB), "x")),
      HasSubstr("19.00 GB  (of 24.00 GB, minus an estimated 2.00 GB for driver and libraries and 3.00 GB of other "
                "programs)"));
  EXPECT_FALSE(table_of(run, {.peak = kGB}, share(0.95, 2, 24 * kGB), "x").fits()) << "nothing is left";
}

}  // namespace
}  // namespace fettle
