// Tests that the exported model depends neither on the devices that check it nor on whether several adapters are merged
// at once or one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "export/export.h"
#include "made_adapter.h"
#include "paths.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

TEST(Export, OneAndEightDevicesWriteTheSame) {
  const std::string model = source_folder().string() + "/tests/reference/models/llama";
  const TempFolder folder;
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = model;
  recipe.adapter_name_or_path = {model + "/adapter_final"};
  recipe.export_dir = (folder / "one").string();
  const ExportReport one = run_export(Request(recipe, Command::kExport));
  recipe.export_dir = (folder / "eight").string();
  recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
  const ExportReport eight = run_export(Request(recipe, Command::kExport));
  for (const std::string& file : list_tree(folder / "one"))
    EXPECT_TRUE(read_text(folder / "one" / file) == read_text(folder / "eight" / file)) << file;
  EXPECT_EQ(list_tree(folder / "one"), list_tree(folder / "eight"));
  EXPECT_LT(eight.logits->difference_from_adapter, eight.logits->bound);
  EXPECT_NEAR(eight.logits->kept, one.logits->kept, 1e-4);
}

// The adapter is merged into the weights that training used: the dequantised values of the codes. Fettle makes the
// codes or reads them from the checkpoint.
TEST(Export, AQuantisedBaseBecomesPlainWeights) {
  const std::string model = (source_folder() / "tests/reference/models/llama").string();
  for (const char* format : {"nf4", "int8"}) {
    const TempFolder folder;
    Recipe recipe;
    recipe.plugin = "cpu";
    recipe.adapter_name_or_path = {model + "/adapter_final"};
    auto exported = [&](const std::string& from, const char* to) {
      recipe.model_name_or_path = from;
      recipe.export_dir = (folder / to).string();
      const LogitCheck check = run_export(Request(recipe, Command::kExport)).logits.value();
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
    // bitsandbytes rounds to int8 via float16, so some codes differ by one step.
    EXPECT_LT(stored_away, format == std::string("nf4") ? plain_away / 10 : 2 * plain_away) << format;
  }
}

// Returns the tensors of a model folder by name.
std::map<std::string, Value> tensors(const std::filesystem::path& folder) {
  const ModelRepository repository = ModelRepository::open(folder);
  std::map<std::string, Value> out;
  for (const std::string& name : repository.names())
    out[name] = to_value(repository.find(name).file->read(*repository.find(name).entry));
  return out;
}

// A module that an adapter trained in full replaces the model's module, and with it the changes that earlier adapters
// made to this module. The LoRA weights of later adapters are added to the new module.
TEST(Export, AdaptersMergedAtOnceEqualAdaptersMergedOneByOne) {
  const std::string llama = source_folder().string() + "/tests/reference/models/llama";
  const Model model = make_model(nlohmann::json::parse(read_text(llama + "/config.json")), "config.json");
  const TempFolder folder;
  make_adapter(folder / "a1", model, {.rank = 4, .modules = {"self_attn.q_proj", "mlp.down_proj"}}, 1);
  make_adapter(folder / "a2", model, {.rank = 4, .modules = {"self_attn.v_proj"}, .saved = {"down_proj"}}, 100);
  make_adapter(folder / "a3", model, {.rank = 4, .modules = {"mlp.down_proj"}}, 200);
  Recipe recipe;
  recipe.plugin = "cpu";
  auto exported = [&](const std::string& from, const std::vector<std::string>& adapters, const std::string& to) {
    recipe.model_name_or_path = from;
    recipe.adapter_name_or_path.clear();
    for (const std::string& adapter : adapters) recipe.adapter_name_or_path.push_back((folder / adapter).string());
    recipe.export_dir = (folder / to).string();
    const LogitCheck check = run_export(Request(recipe, Command::kExport)).logits.value();
    EXPECT_LT(check.difference_from_adapter, 1e-4 * check.scale) << to;  // also compares with merging in memory
    return tensors(folder / to);
  };
  auto expect_same = [](const std::map<std::string, Value>& got, const std::map<std::string, Value>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [name, value] : wanted)
      for (size_t i = 0; i < value.elements.size(); ++i)
        ASSERT_NEAR(got.at(name).elements[i], value.elements[i], 1e-6) << name << ' ' << i;
  };
  exported(llama, {"a1"}, "1");
  const std::map<std::string, Value> two = exported((folder / "1").string(), {"a2"}, "2");
  const std::string down = "model.layers.1.mlp.down_proj.weight";
  const SafetensorsFile a2 = SafetensorsFile::open(folder / "a2/adapter_model.safetensors");
  EXPECT_EQ(two.at(down).elements, to_value(a2.read(*a2.find("base_model.model." + down))).elements);
  expect_same(exported(llama, {"a1", "a2"}, "12"), two);
  expect_same(exported(llama, {"a1", "a2", "a3"}, "123"), exported((folder / "2").string(), {"a3"}, "3"));
}

struct MergeCase {
  const char* model;
  std::vector<LoraOptions> adapters;
};
class OneMerge : public testing::TestWithParam<MergeCase> {};

// Merging adapters at the start of a run gives bit for bit the same weights as exporting the merged model. This is true
// for any mesh.
TEST_P(OneMerge, LoadedWeightsEqualTheExportedOnes) {
  const auto& [name, options] = GetParam();
  const std::filesystem::path folder_of_model = reference_model(name);
  const Model model = make_model(nlohmann::json::parse(read_text(folder_of_model / "config.json")), "config.json");
  const TempFolder folder;
  Recipe recipe = reference_recipe(name);
  recipe.adapter_name_or_path.clear();
  for (size_t i = 0; i < options.size(); ++i) {
    recipe.adapter_name_or_path.push_back((folder / std::to_string(i)).string());
    make_adapter(recipe.adapter_name_or_path.back(), model, options[i], 100 * static_cast<uint32_t>(i + 1));
  }
  recipe.export_dir = (folder / "out").string();
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
  EXPECT_GT(report.merged_tensors, 0);
  const std::map<std::string, Value> wanted = tensors(folder / "out"), before = tensors(folder_of_model);

  recipe.create_new_adapter = true;
  const ModelRepository repository = ModelRepository::open(folder_of_model);
  for (const std::map<std::string, int64_t>& mesh :
       {std::map<std::string, int64_t>{}, {{"fsdp", 4}, {"tp", 2}}, {{"fsdp", 2}, {"tp", 2}, {"dp", 2}}}) {
    recipe.mesh = mesh;
    Devices& devices = cpu_devices(mesh.empty() ? 1 : 8);
    const auto run = make_run(recipe, repository.config(), "config.json", target_of(devices));
    TrainState state = load_state(devices, run, repository, false);
    int64_t changed = 0;
    for (const Param& param : run.frozen) {
      const Value stack = to_value(state.buffers.at(frozen_input(param)).download());
      const int64_t each = product(param.stored_dims());
      for (int64_t i = 0; i < param.stored_count(); ++i) {
        const std::vector<double> part(stack.elements.begin() + i * each, stack.elements.begin() + (i + 1) * each);
        EXPECT_EQ(part, wanted.at(param.stored_name(i)).elements) << param.stored_name(i);
        changed += part != before.at(param.stored_name(i)).elements;
      }
    }
    EXPECT_EQ(changed, report.merged_tensors);
  }
}

const std::vector<std::string> kAllOfLlama{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                           "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                           "mlp.down_proj"},
    kAllOfGpt2{"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
INSTANTIATE_TEST_SUITE_P(
    Adapters, OneMerge,
    testing::Values(
        MergeCase{"llama", {{.rank = 4, .modules = kAllOfLlama}}},
        MergeCase{"llama",
                  {{.rank = 4, .modules = kAllOfLlama, .dora = true},
                   {.rank = 3, .modules = {"self_attn.v_proj"}, .saved = {"down_proj"}},
                   {.rank = 2, .modules = kAllOfLlama, .dora = true}}},
        MergeCase{"gpt2", {{.rank = 4, .modules = kAllOfGpt2}}},
        MergeCase{"gpt2",
                  {{.rank = 4, .modules = kAllOfGpt2, .dora = true}, {.rank = 2, .modules = kAllOfGpt2, .dora = true}}},
        MergeCase{"phi3", {{.rank = 4, .modules = {"self_attn.qkv_proj", "mlp.gate_up_proj"}}}},
        MergeCase{"mixtral",
                  {{.rank = 4, .modules = {"self_attn.q_proj"}, .parameters = {kGateUpOfExperts, kDownOfExperts}},
                   {.rank = 2, .parameters = {kDownOfExperts}}}},
        MergeCase{"qwen3_moe", {{.rank = 2, .parameters = {kGateUpOfExperts}}}},
        MergeCase{"gpt_oss",
                  {{.rank = 2,
                    .parameters = {{ExpertPart::kRouter, "mlp.router.weight"}, kGateUpOfExperts, kDownOfExperts}}}},
        MergeCase{
            "qwen3_5_moe",
            {{.rank = 2, .rslora = true, .parameters = {kGateUpOfExperts, kDownOfExperts}, .gate_up_factor = 2}}}),
    [](const auto& info) { return std::string(info.param.model) + "_" + std::to_string(info.index); });

// If all weights of an output are zero, DoRA's norm of this output is zero too. The output stays zero, also when
// training continues.
TEST(Export, AnOutputOfZerosStaysZero) {
  const std::filesystem::path llama = source_folder() / "tests/reference/models/llama";
  const Model model = make_model(nlohmann::json::parse(read_text(llama / "config.json")), "config.json");
  const TempFolder folder;
  write_text(folder / "base/config.json", read_text(llama / "config.json"));
  NamedShapes shapes;
  std::map<std::string, Value> values = tensors(llama);
  for (const auto& [name, value] : values) shapes.emplace_back(name, value.shape);
  ModelWriter writer(folder / "base", shapes, int64_t{1} << 30);
  const std::string zeroed = "model.layers.0.self_attn.q_proj.weight";
  for (auto& [name, value] : values) {
    if (name == zeroed) std::fill_n(value.elements.begin(), value.shape.dims[1], 0);
    const HostArray array = to_array(value);
    writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  }
  writer.finish();
  make_adapter(folder / "dora", model, {.rank = 4, .modules = {"self_attn.q_proj"}, .dora = true}, 1,
               [](const std::string& name, HostArray& array) {
                 if (!name.starts_with("model.layers.0.") || name.ends_with("lora_A.weight")) return;
                 std::fill_n(array.as<float>().begin(), array.shape().rank() == 2 ? array.shape().dims[1] : 1, 0.0f);
               });
  make_adapter(folder / "more", model, {.rank = 4, .modules = {"self_attn.v_proj"}}, 100);
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = (folder / "base").string();
  for (const std::vector<std::string>& adapters : {std::vector<std::string>{"dora"}, {"dora", "more"}}) {
    recipe.adapter_name_or_path.clear();
    for (const std::string& adapter : adapters) recipe.adapter_name_or_path.push_back((folder / adapter).string());
    recipe.export_dir = (folder / ("to_" + adapters.back())).string();
    const LogitCheck check = run_export(Request(recipe, Command::kExport)).logits.value();
    EXPECT_LT(check.difference_from_adapter, 1e-4 * check.scale);
    const Value got = tensors(recipe.export_dir).at(zeroed);
    for (int64_t i = 0; i < 2 * got.shape.dims[1]; ++i)
      ASSERT_EQ(got.elements[i] == 0, i < got.shape.dims[1]) << i << ": " << got.elements[i];
  }
}

}  // namespace
}  // namespace fettle
