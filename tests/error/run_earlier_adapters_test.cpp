// Tests that adapters are not used silently without the adapters that their run had merged into the base.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "correct/generate_models.h"
#include "run/request.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EarlierAdapters : public testing::Test {
 protected:
  EarlierAdapters() {
    std::filesystem::copy(kReferenceModels / "llama" / "adapter_final", temp / "b");
    write_json_file(
        temp / "b" / "fettle_run.json",
        {{"recipe", {{"model_name_or_path", model}, {"adapter_name_or_path", {a}}, {"create_new_adapter", true}}}});
  }
  TempFolder temp;
  const std::string model = (kReferenceModels / "llama").string();
  const std::string a = (kReferenceModels / "llama" / "adapter_final").string();
  const std::string b = (temp / "b").string();
};

TEST_F(EarlierAdapters, AreNamedIfTheListLacksThem) {
  EXPECT_THAT(missing_earlier_adapters(model, {b}), HasSubstr("set adapter_name_or_path: " + a + ", " + b));
  EXPECT_EQ(missing_earlier_adapters(model, {a, b}), "");
  EXPECT_EQ(continued_adapter(b), "") << "the run made a new adapter";
  EXPECT_EQ(missing_earlier_adapters("merged", {b}), "") << "the merged model has the other adapter in its weights";
  EXPECT_EQ(missing_earlier_adapters(model, {a}), "");
  std::filesystem::create_directory(temp / "b" / "checkpoint-10");
  EXPECT_THAT(missing_earlier_adapters(model, {(temp / "b" / "checkpoint-10").string()}), HasSubstr(a));
}

TEST_F(EarlierAdapters, OfARunThatContinuedTheLastOneAreThoseBeforeIt) {
  write_json_file(temp / "b" / "fettle_run.json",
                  {{"recipe", {{"model_name_or_path", model}, {"adapter_name_or_path", {"x"}}}}});
  EXPECT_EQ(missing_earlier_adapters(model, {b}), "");
  EXPECT_EQ(continued_adapter(b), "x");
  write_json_file(temp / "b" / "fettle_run.json",
                  {{"recipe", {{"model_name_or_path", model}, {"adapter_name_or_path", {"x", "y"}}}}});
  EXPECT_EQ(continued_adapter(b), "y");
  EXPECT_THAT(missing_earlier_adapters(model, {b}), AllOf(HasSubstr("x merged into it"), HasSubstr(": x, " + b)));
}

// A hub's copy of the adapter has no fettle_run.json.
TEST_F(EarlierAdapters, AreNamedByAFileOfTheResult) {
  const auto run = read_json_file<nlohmann::json>(temp / "b" / "fettle_run.json");
  std::filesystem::remove(temp / "b" / "fettle_run.json");
  EXPECT_EQ(missing_earlier_adapters(model, {b}), "");
  write_earlier_adapters(temp / "b", run["recipe"]);
  EXPECT_THAT(missing_earlier_adapters(model, {b}), HasSubstr("set adapter_name_or_path: " + a + ", " + b));
  EXPECT_EQ(missing_earlier_adapters(model, {a, b}), "");
}

TEST_F(EarlierAdapters, ABrokenRecordIsNoError) {
  write_text(temp / "b" / "fettle_run.json", "{");
  EXPECT_EQ(missing_earlier_adapters(model, {b}), "");
}

TEST_F(EarlierAdapters, ExportRefusesAndOtherCommandsWarn) {
  Recipe recipe = reference_recipe("llama");
  recipe.adapter_name_or_path = {b};
  recipe.export_dir = (temp / "out").string();
  EXPECT_THAT(user_error([&] { Request(recipe, Command::kExport); }), HasSubstr("was trained on"));
  testing::internal::CaptureStderr();
  Request(recipe, Command::kChat);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("warning: "), HasSubstr("was trained on")));
}

}  // namespace
}  // namespace fettle
