// Tests exports in 8-bit floats that are refused: the message is right, and no files are left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/recipe.h"
#include "export/export.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CompressedExportError : public testing::Test {
 protected:
  Recipe recipe(const std::string& model) {
    Recipe out;
    out.plugin = "cpu";
    out.model_name_or_path = reference_model(model).string();
    out.export_dir = (folder_ / "out").string();
    out.export_quantization = "fp8_block";
    return out;
  }
  std::string refused(const Recipe& recipe) {
    const std::string message = user_error([&] { run_export(Request(recipe, Command::kExport)); });
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    return message;
  }
  TempFolder folder_;
};

TEST_F(CompressedExportError, OtherFormatsAtTheSameTime) {
  Recipe gguf = recipe("llama");
  gguf.export_gguf = {"q8_0"};
  EXPECT_THAT(refused(gguf), AllOf(HasSubstr("export_quantization is for safetensors"), HasSubstr("export_gguf")));
}

TEST_F(CompressedExportError, ModelsThatTheFormatCannotStore) {
  EXPECT_THAT(refused(recipe("gpt2")), HasSubstr("not of the kind 'Linear'"));
  EXPECT_THAT(refused(recipe("gpt_oss")), HasSubstr("the experts of a layer are in one tensor"));
  EXPECT_THAT(refused(recipe("gemma3_wrapped")), HasSubstr("a part that Fettle only copies"));
  EXPECT_THAT(refused(recipe("llama_classifier")), HasSubstr("classifier"));
}

}  // namespace
}  // namespace fettle
