// The exported model does not depend on the devices that check it.
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "train/export.h"

namespace fettle {
namespace {

TEST(Export, OneDeviceAndEightWriteTheSame) {
  const std::string model = std::string(FETTLE_SOURCE_DIR) + "/tests/reference/models/llama";
  const TempFolder folder;
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = model;
  recipe.adapter_name_or_path = {model + "/adapter_final"};
  recipe.export_dir = (folder / "one").string();
  const ExportReport one = run_export(recipe);
  recipe.export_dir = (folder / "eight").string();
  recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
  const ExportReport eight = run_export(recipe);
  for (const std::string& file : list_tree(folder / "one"))
    EXPECT_TRUE(read_text(folder / "one" / file) == read_text(folder / "eight" / file)) << file;
  EXPECT_EQ(list_tree(folder / "one"), list_tree(folder / "eight"));
  EXPECT_LT(eight.difference_from_adapter, eight.bound);
  EXPECT_NEAR(eight.kept, one.kept, 1e-4);
}

}  // namespace
}  // namespace fettle
