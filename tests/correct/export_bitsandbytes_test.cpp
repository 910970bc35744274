// Tests exports of checkpoints in which bitsandbytes quantised more than the linear layers of the text model: experts,
// routers, image encoders and layers that no computation uses. The export must have all their values in floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bitsandbytes_models.h"
#include "checkpoint/load.h"
#include "export/export.h"
#include "models/model.h"

namespace fettle {
namespace {

class BitsandbytesExport : public testing::TestWithParam<std::string> {};

TEST_P(BitsandbytesExport, HasTheValuesInFloats) {
  const TempFolder folder;
  std::filesystem::path model = reference_model(GetParam());
  if (GetParam() == "qwen3_5") write_with_later_layers(model = folder / "model", GetParam());
  EXPECT_GT(write_in_nf4(model, folder / "codes", folder / "values"), 10);
  const ModelRepository codes = ModelRepository::open(folder / "codes");
  check_weights(codes, make_model(codes.config(), "config.json"));
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = (folder / "codes").string();
  recipe.export_dir = (folder / "out").string();
  run_export(Request(recipe, Command::kExport));
  const ModelRepository out = ModelRepository::open(folder / "out"), wanted = ModelRepository::open(folder / "values");
  EXPECT_FALSE(out.config().contains("quantization_config"));
  EXPECT_EQ(out.names(), wanted.names());
  expect_same_tensors(folder / "out", folder / "values", wanted.names());
}

// The check of the export computes the logits of the quantised base with the adapter.
TEST(BitsandbytesMerge, EqualsTheBaseWithTheAdapter) {
  const TempFolder folder;
  write_in_nf4(reference_model("qwen3_moe"), folder / "codes", folder / "values");
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = (folder / "codes").string();
  recipe.adapter_name_or_path = {(reference_model("qwen3_moe") / "adapter_final").string()};
  recipe.export_dir = (folder / "out").string();
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  ASSERT_TRUE(report.logits);
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
}

INSTANTIATE_TEST_SUITE_P(Models, BitsandbytesExport,
                         testing::Values("qwen3_moe", "mixtral", "gemma3_wrapped", "mistral3", "qwen3_5"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
