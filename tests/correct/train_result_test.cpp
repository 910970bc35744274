// Tests that the weights of every family are loaded, split over a mesh, and written with the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/peft/adapter_files.h"
#include "data/chat/chat.h"
#include "data_fixtures.h"
#include "families.h"
#include "model_copies.h"
#include "paths.h"
#include "resolve_run.h"
#include "run/device_request.h"
#include "step/state/train_state.h"
#include "temp_folder.h"
#include "train/result.h"

namespace fettle {
namespace {

// Returns the first axis of the mesh: fsdp, which splits weights, or dp, which does not. In the small Falcon-H1 and
// Nemotron-H, in_proj has 262 = 2 * 131 outputs, which only tp 2 can split.
const char* weights_axis(const ModelRepository& repository) {
  const ModelConfig config = make_model(repository.config(), "config.json").config;
  return config.mamba2 && config.mamba2->projected() % 4 != 0 ? "dp" : "fsdp";
}

class FullResult : public testing::TestWithParam<std::string> {};

TEST_P(FullResult, HasTheBytesThatWereLoaded) {
  Recipe recipe;
  recipe.model_name_or_path = source_folder().string() + "/tests/reference/models/" + GetParam();
  recipe.plugin = "cpu";
  recipe.finetuning_type = "full";
  recipe.device_count = 8;
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const bool experts = make_model(repository.config(), "config.json").config.num_experts > 0;
  recipe.mesh = {{weights_axis(repository), experts ? 2 : 4}, {"ep", experts ? 2 : 1}, {"tp", 2}};
  Devices devices(device_request(recipe));
  const auto run = make_run(recipe, repository.config(), "config.json", 8);
  const TempFolder folder;
  write_result(folder.path(), run, repository, load_state(devices, run, repository, false));
  const ModelRepository written = ModelRepository::open(folder.path());
  ASSERT_EQ(written.names(), repository.names());
  EXPECT_EQ(result_bytes(run, repository), written.total_bytes());
  for (const std::string& name : written.names()) {
    const StoredTensor got = written.find(name), wanted = repository.find(name);
    EXPECT_EQ(got.entry->shape, wanted.entry->shape) << name;
    const HostArray a = got.file->read(*got.entry), b = wanted.file->read(*wanted.entry);
    ASSERT_EQ(a.bytes(), b.bytes()) << name;
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FullResult, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

// Full tuning copies layers that predict tokens further ahead (MTP).
TEST(LaterLayers, HaveTheBytesThatWereLoaded) {
  for (const char* model : {"qwen3_5", "qwen3_5_text", "qwen3_next", "deepseek_v3", "glm4_moe"}) {
    SCOPED_TRACE(model);
    const TempFolder folder;
    const std::vector<std::string> later = write_with_later_layers(folder / "base", model);
    Recipe recipe = reference_recipe(model);
    recipe.model_name_or_path = (folder / "base").string();
    recipe.finetuning_type = "full";
    const ModelRepository repository = ModelRepository::open(folder / "base");
    Devices& devices = cpu_devices();
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    std::filesystem::create_directories(folder / "tuned");
    write_result(folder / "tuned", run, repository, load_state(devices, run, repository, false));
    EXPECT_GT(later.size(), 10u);
    expect_same_tensors(folder / "tuned", folder / "base", later);
  }
}

// A run from random weights has no base from which the result could copy the weights that no gradient trains.
TEST(FromScratch, ResultsHaveTheWeightsThatAreNotTrained) {
  for (const char* name : {"deepseek_v3", "gemma4"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    Recipe recipe;
    recipe.model_name_or_path = source_folder().string() + "/tests/reference/models/" + name;
    recipe.plugin = "cpu";
    recipe.finetuning_type = "full";
    recipe.train_from_scratch = true;
    recipe.device_count = 1;
    const ModelRepository repository =
        ModelRepository::open(recipe.model_name_or_path, ModelRepository::Weights::kIgnored);
    Devices devices(device_request(recipe));
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    ASSERT_FALSE(run.frozen.empty());
    const TrainState state = load_state(devices, run, repository, true);
    for (const StateArray& array : trained_arrays(run)) EXPECT_TRUE(state.buffers.contains(array.name)) << array.name;
    write_result(folder.path(), run, repository, state);
    const ModelRepository written = ModelRepository::open(folder.path());
    for (const Param& param : run.model.params)
      for (int64_t i = 0; i < param.stored_count(); ++i)
        EXPECT_TRUE(written.contains(param.stored_name(i))) << param.stored_name(i);
  }
}

// The correction of a router is not trained, and stays f32 when all other weights are bf16: rounded, it would choose
// other experts. Transformers keeps it in f32 as well.
TEST(RouterCorrection, KeepsItsBytesInFullTuningInBf16) {
  for (const char* name :
       {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "minimax_m2", "lfm2_moe", "nemotron_h_moe", "ernie4_5_moe"}) {
    SCOPED_TRACE(name);
    const TempFolder model, folder;
    const std::filesystem::path source = source_folder() / "tests/reference/models" / name;
    nlohmann::json config = ModelRepository::open(source).config();
    config["dtype"] = "bfloat16";
    write_text(model / "config.json", config.dump());
    std::filesystem::copy(source / "model.safetensors", model.path());
    Recipe recipe;
    recipe.model_name_or_path = model.path().string();
    recipe.plugin = "cpu";
    recipe.finetuning_type = "full";
    recipe.bf16 = true;
    recipe.device_count = 1;
    const ModelRepository repository = ModelRepository::open(model.path());
    Devices devices(device_request(recipe));
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    const std::string& correction = run.model.config.routing.correction;
    ASSERT_NE(correction, "");
    write_result(folder.path(), run, repository, load_state(devices, run, repository, false));
    const ModelRepository written = ModelRepository::open(folder.path());
    size_t compared = 0;
    for (const std::string& tensor : written.names()) {
      if (!tensor.ends_with("." + correction)) continue;
      const StoredTensor got = written.find(tensor), wanted = repository.find(tensor);
      ASSERT_EQ(got.entry->shape.dtype, DType::kF32);
      const HostArray a = got.file->read(*got.entry), b = wanted.file->read(*wanted.entry);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(b.bytes())), 0) << tensor;
      ++compared;
    }
    EXPECT_GT(compared, 0u);
    for (const Param& param : run.trained) EXPECT_FALSE(param.hf_name.ends_with(correction));
    for (const Param& param : run.frozen)
      if (param.hf_name.ends_with(correction)) {
        EXPECT_EQ(param.dtype, DType::kF32);
      }
  }
}

// PEFT's LoRA weights of experts are loaded, split over a mesh, and written with the same names, shapes and bytes.
TEST(AdapterResult, LoraWeightsOfExpertsHaveTheBytesThatWereLoaded) {
  for (const char* adapter : {"mixtral/variants/experts_final",
                              "mixtral/variants/experts_down",
                              "qwen3_moe/variants/experts",
                              "gpt_oss/variants/experts_final",
                              "qwen3_5_moe/variants/experts_final",
                              "glm4_moe/variants/all_linear_final",
                              "nemotron_h_moe/variants/experts_final",
                              "lfm2_moe/variants/experts_final",
                              "llama4/variants/experts_final",
                              "granite4/variants/experts_final",
                              "deepseek_v2/variants/all_linear_final",
                              "deepseek_v3/variants/all_linear_final",
                              "glm4_moe_lite/variants/all_linear_final",
                              "qwen2_moe/variants/all_linear_final",
                              "qwen3_next/variants/all_linear_final",
                              "minimax_m2/variants/all_linear_final",
                              "gemma4_moe/variants/all_linear_final",
                              "gemma4_e2b/variants/all_linear_final",
                              "gpt_oss/variants/all_linear_final",
                              "qwen3_5_moe/variants/all_linear_final",
                              "qwen3_moe/variants/all_linear_final",
                              "mixtral/variants/all_linear_final",
                              "llama4/variants/all_linear_final",
                              "granite4/variants/all_linear_final",
                              "lfm2_moe/variants/all_linear_final",
                              "nemotron_h_moe/variants/all_linear_final",
                              "qwen2_moe/variants/experts_final",
                              "gemma4_moe/variants/experts_final",
                              "ernie4_5_moe/variants/all_linear_final",
                              "granitemoe/variants/experts_final"}) {
    SCOPED_TRACE(adapter);
    const std::filesystem::path models = source_folder() / "tests/reference/models";
    Recipe recipe;
    recipe.model_name_or_path = (models / std::string(adapter).substr(0, std::string(adapter).find('/'))).string();
    recipe.adapter_name_or_path = {(models / adapter).string()};
    recipe.plugin = "cpu";
    recipe.device_count = 8;
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    recipe.mesh = {{weights_axis(repository), 2}, {"ep", 2}, {"tp", 2}};
    Devices devices(device_request(recipe));
    const auto run = make_run(recipe, repository.config(), "config.json", 8);
    const TempFolder folder;
    testing::internal::CaptureStderr();
    write_result(folder.path(), run, repository, load_state(devices, run, repository, false));
    // Several processes call write_result for each checkpoint, too.
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("vLLM"), std::string::npos) << adapter;
    testing::internal::CaptureStderr();
    warn_of_result(run);
    const std::string warning = testing::internal::GetCapturedStderr();
    const SafetensorsFile got = SafetensorsFile::open(folder / "adapter_model.safetensors");
    const SafetensorsFile wanted = SafetensorsFile::open(models / adapter / "adapter_model.safetensors");
    size_t compared = 0;
    for (const TensorEntry& entry : wanted.entries()) {
      // The file that Fettle wrote has no LoRA weights of the image encoder. PEFT's all-linear adds them.
      const auto has = [&](const char* part) { return entry.name.find(part) != std::string::npos; };
      if (has("vision") || has("visual") || has("multi_modal_projector")) continue;
      ++compared;
      const TensorEntry* found = got.find(entry.name);
      ASSERT_NE(found, nullptr) << adapter << ' ' << entry.name;
      ASSERT_EQ(found->shape, entry.shape) << adapter << ' ' << entry.name;
      const HostArray a = got.read(*found), b = wanted.read(entry);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << adapter << ' ' << entry.name;
    }
    ASSERT_EQ(got.entries().size(), compared) << adapter;
    const auto config = read_adapter_config(folder.path(), {.target_parameters = true});
    const auto source = read_adapter_config(models / adapter, {.target_parameters = true});
    EXPECT_EQ(warning.find("for vLLM, merge the adapter") != std::string::npos, !config.target_parameters.empty())
        << adapter << ": " << warning;
    // PEFT names Gemma 4's router in target_modules.
    const size_t router = std::string_view(adapter).starts_with("gemma4_moe") ? 1 : 0;
    EXPECT_EQ(config.target_parameters.size(), source.target_parameters.size() + router) << adapter;
    EXPECT_EQ(config.rank_pattern, source.rank_pattern) << adapter;
    EXPECT_EQ(config.alpha_pattern, source.alpha_pattern) << adapter;
  }
}

// PEFT takes gate_proj, up_proj and down_proj of some families for the routed experts.
TEST(AdapterResult, WarnsOfModulesThatPeftTakesForExperts) {
  const auto warning = [](const std::string& model, const std::vector<std::string>& targets) {
    Recipe recipe = reference_recipe(model);
    recipe.lora_target = targets;
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    testing::internal::CaptureStderr();
    warn_of_result(run);
    return testing::internal::GetCapturedStderr();
  };
  for (const char* model : {"deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next", "ernie4_5_moe"}) {
    EXPECT_THAT(warning(model, {"all"}),
                testing::AllOf(testing::HasSubstr("down_proj. Under Transformers 5, PEFT takes"),
                               testing::HasSubstr("fettle export"), testing::HasSubstr("lora_target")))
        << model;
    EXPECT_EQ(warning(model, {"o_proj"}), "") << model;
  }
  for (const char* model : {"qwen2_moe", "kimi_k2", "llama"}) EXPECT_EQ(warning(model, {"all"}), "") << model;
}

// PEFT refuses layers_to_transform if target_modules is a pattern, so the pattern has the numbers of the layers.
TEST(AdapterResult, APatternHasTheNumbersOfTheLayers) {
  Recipe recipe = reference_recipe("mistral3");
  recipe.lora_target = {"q_proj"};
  recipe.layers_to_transform = {"1"};
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const TempFolder folder;
  write_result(folder.path(), run, repository, load_state(cpu_devices(), run, repository, false));
  const nlohmann::json config = nlohmann::json::parse(read_text(folder / "adapter_config.json"));
  EXPECT_EQ(config["layers_to_transform"], nullptr);
  EXPECT_THAT(config["target_modules"].get<std::string>(), testing::HasSubstr("layers\\.(?:1)\\.(self_attn\\.q_proj)"));
}

// PEFT writes an adapter without these names in modules_to_save if the vocabulary was resized.
TEST(AdapterResult, KeepsTablesThatAreOnlyStored) {
  for (const char* name : {"llama", "gemma"}) {  // Gemma's head is its embedding
    SCOPED_TRACE(name);
    Recipe recipe = reference_recipe(name);
    recipe.additional_target = {"embed_tokens"};
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    const TempFolder folder;
    const auto only_lora = [&](const std::string& to) {
      const auto run = make_run(recipe, repository.config(), "config.json", 1);
      std::filesystem::create_directories(folder / to);
      write_result(folder / to, run, repository, load_state(cpu_devices(), run, repository, false));
      return std::ranges::all_of(run.trained, &Param::is_lora);
    };
    EXPECT_FALSE(only_lora("listed"));

    // The same adapter with other values, and without the names.
    std::filesystem::copy(folder / "listed", folder / "stored");
    nlohmann::json config = nlohmann::json::parse(read_text(folder / "stored/adapter_config.json"));
    EXPECT_FALSE(config["modules_to_save"].is_null());
    config["modules_to_save"] = nullptr;
    write_text(folder / "stored/adapter_config.json", config.dump());
    const SafetensorsFile listed = SafetensorsFile::open(folder / "listed/adapter_model.safetensors");
    NamedShapes shapes;
    for (const TensorEntry& entry : listed.entries()) shapes.emplace_back(entry.name, entry.shape);
    SafetensorsWriter writer(folder / "stored/adapter_model.safetensors", shapes);
    for (const TensorEntry& entry : listed.entries()) {
      HostArray array = listed.read(entry);
      for (float& value : array.as<float>()) value += 0.5F;
      writer.write(entry.name, {array.data(), static_cast<size_t>(array.bytes())});
    }
    writer.finish();

    recipe.adapter_name_or_path = {(folder / "stored").string()};
    EXPECT_TRUE(only_lora("next"));
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "next/adapter_config.json"))["modules_to_save"], nullptr);
    const SafetensorsFile wanted = SafetensorsFile::open(folder / "stored/adapter_model.safetensors"),
                          got = SafetensorsFile::open(folder / "next/adapter_model.safetensors");
    ASSERT_EQ(got.entries().size(), wanted.entries().size());
    for (const TensorEntry& entry : wanted.entries()) {
      const TensorEntry* found = got.find(entry.name);
      ASSERT_NE(found, nullptr) << entry.name;
      EXPECT_TRUE(std::ranges::equal(got.read(*found).as<float>(), wanted.read(entry).as<float>())) << entry.name;
    }
  }
}

// With `template`, the result renders conversations as in training.
TEST(ChatOfResult, IsTheTemplateOfTheRecipe) {
  for (const char* type : {"lora", "full"}) {
    SCOPED_TRACE(type);
    const TempFolder folder;
    Recipe recipe = reference_recipe("llama");
    recipe.model_name_or_path = copy_model(folder / "base");
    TestTokenizer{.special = {"<s>", "</s>", "<|eot_id|>"}}.save(folder / "base");
    recipe.finetuning_type = type;
    recipe.template_name = "llama3";
    const ModelRepository repository = ModelRepository::open(folder / "base");
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    std::filesystem::create_directories(folder / "tuned");
    write_result(folder / "tuned", run, repository, load_state(cpu_devices(), run, repository, false));
    const Tokenizer tokenizer = Tokenizer::open(folder / "tuned");
    EXPECT_EQ(tokenizer.eos_token(), "<|eot_id|>");
    EXPECT_EQ(ChatTemplate("", tokenizer).prompt_text({{{.role = "user", .content = "Hi"}}}),
              "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_EQ(std::filesystem::exists(folder / "tuned/generation_config.json"), std::string(type) == "full");
    if (std::string(type) == "full") continue;
    // The adapter is trained further, without `template`.
    recipe.template_name = "";
    recipe.adapter_name_or_path = {(folder / "tuned").string()};
    const auto again = make_run(recipe, repository.config(), "config.json", 1);
    std::filesystem::create_directories(folder / "further");
    write_result(folder / "further", again, repository, load_state(cpu_devices(), again, repository, false));
    EXPECT_EQ(read_text(folder / "further/chat_template.jinja"), read_text(folder / "tuned/chat_template.jinja"));
    EXPECT_EQ(Tokenizer::open(folder / "further").eos_token(), "<|eot_id|>");
  }
}

}  // namespace
}  // namespace fettle
