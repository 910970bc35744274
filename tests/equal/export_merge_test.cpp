// The exported model does not depend on the devices that check it.
#include <gtest/gtest.h>

#include "checkpoint/repository.h"
#include "export/export.h"
#include "temp_folder.h"

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
  EXPECT_LT(eight.logits->difference_from_adapter, eight.logits->bound);
  EXPECT_NEAR(eight.logits->kept, one.logits->kept, 1e-4);
}

// What is merged is what was trained on: the codes' values, made here or found in the checkpoint.
TEST(Export, AQuantisedBaseBecomesPlainWeights) {
  const std::string model = std::string(FETTLE_SOURCE_DIR) + "/tests/reference/models/llama";
  for (const char* format : {"nf4", "int8"}) {
    const TempFolder folder;
    Recipe recipe;
    recipe.plugin = "cpu";
    recipe.adapter_name_or_path = {model + "/adapter_final"};
    auto exported = [&](const std::string& from, const char* to) {
      recipe.model_name_or_path = from;
      recipe.export_dir = (folder / to).string();
      const LogitCheck check = run_export(recipe).logits.value();
      EXPECT_LT(check.difference_from_adapter, 1e-4 * check.scale) << format << ' ' << to;
      EXPECT_GT(check.difference_from_base, 1e-2 * check.scale) << format << ' ' << to;
      return ModelRepository::open(recipe.export_dir);
    };
    const ModelRepository stored = exported(model + "/quantised/" + format, "stored");
    recipe.quantization_bit = format == std::string("nf4") ? 4 : 8;
    const ModelRepository made = exported(model, "made");
    recipe.quantization_bit.reset();
    const ModelRepository plain = exported(model, "plain");
    EXPECT_FALSE(stored.config().contains("quantization_config"));
    EXPECT_EQ(stored.names(), plain.names());
    double stored_away = 0, plain_away = 0;
    for (const std::string& name : made.names()) {
      auto values = [&](const ModelRepository& repository) {
        return repository.find(name).file->read(*repository.find(name).entry);
      };
      const HostArray a = values(made), b = values(stored), c = values(plain);
      ASSERT_EQ(a.shape(), b.shape()) << name;
      for (int64_t i = 0; i < a.shape().elements(); ++i) {
        stored_away = std::max(stored_away, std::abs(double{a.as<float>()[i]} - b.as<float>()[i]));
        plain_away = std::max(plain_away, std::abs(double{a.as<float>()[i]} - c.as<float>()[i]));
      }
    }
    EXPECT_GT(plain_away, 1e-3) << format;
    // bitsandbytes rounds to int8 by way of float16: some codes are the next ones, a step away.
    EXPECT_LT(stored_away, format == std::string("nf4") ? plain_away / 10 : 2 * plain_away) << format;
  }
}

}  // namespace
}  // namespace fettle
