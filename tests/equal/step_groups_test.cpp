// Tests that LoRA on a checkpoint of integers with scales (GPTQ, AWQ, compressed-tensors) equals LoRA on a checkpoint
// with the dequantised weights, on any mesh. The weights stay integers on the devices.
#include <gtest/gtest.h>

#include "model_copies.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

// Rounds the weights of a linear layer [.., N, K] to integers of 4 bits with a scale for each group of 16 inputs, and
// adds the tensors that compressed-tensors stores.
void add_packed(NamedArrays& out, const std::string& module, int64_t n, int64_t k,
                const std::function<float(int64_t output, int64_t input)>& value) {
  constexpr int64_t kGroup = 16;
  HostArray words(Shape{DType::kI32, {n, k / 8}}), scales(Shape{DType::kF32, {n, k / kGroup}}),
      shape(Shape{DType::kI64, {2}});
  shape.as<int64_t>()[0] = n, shape.as<int64_t>()[1] = k;
  std::ranges::fill(words.as<int32_t>(), 0);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t group = 0; group < k / kGroup; ++group) {
      float largest = 0;
      for (int64_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::abs(value(row, group * kGroup + i)));
      const float scale = scales.as<float>()[static_cast<size_t>(row * (k / kGroup) + group)] = largest / 7;
      for (int64_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
        const auto code = static_cast<uint32_t>(std::lround(value(row, i) / scale) + 8);
        int32_t& word = words.as<int32_t>()[static_cast<size_t>(row * (k / 8) + i / 8)];
        word = static_cast<int32_t>(static_cast<uint32_t>(word) | code << (4 * (i % 8)));
      }
    }
  out.emplace_back(module + ".weight_packed", std::move(words));
  out.emplace_back(module + ".weight_scale", std::move(scales));
  out.emplace_back(module + ".weight_shape", std::move(shape));
}

// Writes the model to `folder` with the modules for which wanted(name) is true in packed integers. The experts of a
// layer, which the model stores in one tensor, become a module each.
void write_packed(const fs::path& model, const fs::path& folder, bool inputs_first,
                  const std::function<bool(const std::string&)>& wanted, const std::vector<std::string>& ignore) {
  nlohmann::json config = ModelRepository::open(model).config();
  const nlohmann::json packed =
      ModelRepository::open(reference_model("qwen3_moe_packed")).config().at("quantization_config");
  config["quantization_config"] = packed;
  config["quantization_config"]["ignore"] = ignore;
  write_model(folder, config, with_stored_weights(model, add_packed, wanted, inputs_first));
}

Recipe lora_recipe(const fs::path& model, const Words& more = {}) {
  Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4", "lora_dropout=0"};
  words.insert(words.end(), more.begin(), more.end());
  return read_recipe("", words);
}

struct StoredExperts {
  const char* model;
  bool inputs_first;
  std::vector<std::string> ignore = {"re:(?!.*experts[.][0-9])"};
};

class GroupsOfExperts : public testing::TestWithParam<StoredExperts> {};

// The checkpoint has integers for each expert. Some models read all experts of a layer as one tensor.
TEST_P(GroupsOfExperts, EqualTheDequantisedModel) {
  TempFolder folder;
  const fs::path model = reference_model(GetParam().model);
  write_packed(
      model, folder / "packed", GetParam().inputs_first,
      [](const std::string& module) { return module.find(".experts.") != std::string::npos; }, GetParam().ignore);
  write_as_floats(folder / "packed", folder / "floats");
  const ModelRepository packed = ModelRepository::open(folder / "packed"), original = ModelRepository::open(model);
  EXPECT_EQ(packed.names(), original.names());
  const auto run = make_run(lora_recipe(folder / "packed"), packed.config(), "config.json", 1);
  size_t kept = 0;
  for (const QuantisedWeight& weight : run.quantised) kept += weight.base.has_experts() ? 1 : 0;
  EXPECT_GE(kept, 2u);
  EXPECT_EQ(kept, run.quantised.size());
  // The distance between two codes is a seventh of the group's largest value. Rounding changes a weight by at most half
  // of this distance.
  for (const std::string& name : original.names()) {
    const StoredTensor a = original.find(name), b = packed.find(name);
    const HostArray wanted = a.file->read(*a.entry).to(DType::kF32), got = b.file->read(*b.entry).to(DType::kF32);
    double largest = 0, off = 0;
    for (int64_t i = 0; i < wanted.shape().elements(); ++i) {
      largest = std::max<double>(largest, std::abs(wanted.as<float>()[i]));
      off = std::max<double>(off, std::abs(wanted.as<float>()[i] - got.as<float>()[i]));
    }
    const bool of_experts = name.find(".experts.") != std::string::npos;
    EXPECT_LE(off, of_experts ? largest / 14 * 1.001 : 0) << name;
    EXPECT_EQ(off > 0, of_experts) << name;
  }
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  const TrainResult floats = train(lora_recipe(folder / "floats"), options),
                    got = train(lora_recipe(folder / "packed"), options);
  expect_equal_lists(got.losses, floats.losses, 1e-6, "loss");
  expect_equal_lists(got.norms, floats.norms, 1e-5, "norm");
  const TrainResult eight = train(lora_recipe(folder / "packed",
                                              {"mesh={fsdp: 2, ep: 2, tp: 2}", "per_device_train_batch_size=1"}),
                                  options),
                    four = train(lora_recipe(folder / "packed", {"per_device_train_batch_size=2"}), options);
  expect_equal_lists(eight.losses, four.losses, 1e-5, "eight devices");
}

// As Kimi K2 Thinking is published: latent attention, shared experts and dense layers in 16 bits.
const StoredExperts kKimiK2Thinking{
    "deepseek_v3",
    false,
    {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", R"(re:.*mlp\.(gate|up|gate_up|down)_proj.*)"}};

INSTANTIATE_TEST_SUITE_P(Families, GroupsOfExperts,
                         testing::Values(StoredExperts{"qwen3_5_moe", false}, StoredExperts{"gemma4_moe", false},
                                         StoredExperts{"llama4", true}, kKimiK2Thinking),
                         [](const auto& info) { return std::string(info.param.model); });

// A checkpoint with a tensor for each expert has the values of the checkpoint with all experts of a layer in one
// tensor.
TEST(ExpertsApart, HaveTheValuesOfTheTensorWithAllExperts) {
  for (const auto& [model, inputs_first] : {std::pair{"qwen3_5_moe", false}, std::pair{"llama4", true}}) {
    TempFolder folder;
    const ModelRepository original = ModelRepository::open(reference_model(model));
    write_experts_apart(reference_model(model), folder / "apart", inputs_first);
    const ModelRepository apart = ModelRepository::open(folder / "apart");
    ASSERT_EQ(apart.names(), original.names());
    for (const std::string& name : original.names()) {
      const StoredTensor a = original.find(name), b = apart.find(name);
      ASSERT_EQ(a.entry->shape.dims, b.entry->shape.dims) << name;
      const HostArray wanted = a.file->read(*a.entry).to(DType::kF32), got = b.file->read(*b.entry).to(DType::kF32);
      EXPECT_TRUE(std::ranges::equal(wanted.as<float>(), got.as<float>())) << name;
      if (name.find(".experts.") == std::string::npos) continue;
      const Box box{{1, 3, 5}, {2, 20, 11}};
      std::vector<float> whole(440), part(440);
      a.file->read_slice(*a.entry, box, DType::kF32, reinterpret_cast<std::byte*>(whole.data()));
      b.file->read_slice(*b.entry, box, DType::kF32, reinterpret_cast<std::byte*>(part.data()));
      EXPECT_EQ(part, whole) << name;
    }
  }
}

// In the checkpoint, only the q_proj of the first layer is not quantised. The q_proj of the other layer stays in
// integers.
TEST(MixedGroups, OnlyTheLayersThatAreLeftOutAreFloats) {
  TempFolder folder;
  const std::string left = "model.layers.0.self_attn.q_proj";
  write_packed(reference_model("qwen3"), folder / "packed", false,
               [&](const std::string& module) { return module.ends_with("_proj") && module != left; },
               {"lm_head", left});
  write_as_floats(folder / "packed", folder / "floats");
  const ModelRepository repository = ModelRepository::open(folder / "packed");
  const auto run = make_run(lora_recipe(folder / "packed"), repository.config(), "config.json", 1);
  auto layers_of = [](const auto& list, auto param_of) {
    std::vector<int64_t> out;
    for (const auto& each : list)
      if (const Param& param = param_of(each); param.hf_name == "model.layers.{}.self_attn.q_proj.weight")
        out.insert(out.end(), param.layers.numbers.begin(), param.layers.numbers.end());
    return out;
  };
  EXPECT_EQ(layers_of(run.quantised, [](const QuantisedWeight& weight) { return weight.base; }),
            (std::vector<int64_t>{1}));
  std::vector<Param> floats;
  for (const Param& param : run.frozen)
    if (param.role == Role::kLinear) floats.push_back(param);
  EXPECT_EQ(layers_of(floats, [](const Param& param) { return param; }), (std::vector<int64_t>{0}));
  EXPECT_EQ(floats.size(), 1u) << "all other linear layers stay in integers";
  // The random start of an adapter depends on how its stacks are divided, so both runs start from the same adapter.
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  const Words start{"adapter_name_or_path=" + (reference_model("qwen3") / "adapter_init").string()};
  const TrainResult wanted = train(lora_recipe(folder / "floats", start), options),
                    got = train(lora_recipe(folder / "packed", start), options);
  expect_equal_lists(got.losses, wanted.losses, 1e-6, "loss");
  expect_equal_lists(got.norms, wanted.norms, 1e-5, "norm");
  // With LoRA on selected layers, the layers of a weight cannot be divided into quantised and other layers. So no layer
  // of q_proj stays in integers.
  const auto some = make_run(lora_recipe(folder / "packed", {"layers_to_transform=1"}), repository.config(), "c", 1);
  EXPECT_EQ(layers_of(some.quantised, [](const QuantisedWeight& weight) { return weight.base; }),
            (std::vector<int64_t>{}));
}

class Groups : public testing::TestWithParam<const char*> {
 protected:
  static Recipe recipe(const fs::path& model, const Words& more = {}) {
    Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4", "lora_dropout=0.1"};
    words.insert(words.end(), more.begin(), more.end());
    return read_recipe("", words);
  }
  const fs::path model_ = reference_model(GetParam());
  const TrainOptions options_{.steps = 4, .rate = 5e-3};
};

TEST_P(Groups, EqualTheDequantisedModel) {
  TempFolder folder;
  write_as_floats(model_, folder / "floats");
  for (const Words& keys : {Words{}, Words{"use_dora=true"}, Words{"gradient_checkpointing=none"}}) {
    if (!keys.empty() && keys[0] == "use_dora=true" && std::string(GetParam()) == "qwen3_moe_packed") continue;
    const TrainResult wanted = train(recipe(folder / "floats", keys), options_);
    const TrainResult got = train(recipe(model_, keys), options_);
    expect_equal_lists(got.losses, wanted.losses, 1e-6, "loss");
    expect_equal_lists(got.norms, wanted.norms, 1e-5, "norm");
  }
  // Full tuning reads the dequantised values and does not round them.
  const TrainResult wanted = train(recipe(folder / "floats", {"finetuning_type=full"}), options_);
  const TrainResult got = train(recipe(model_, {"finetuning_type=full"}), options_);
  EXPECT_EQ(got.losses, wanted.losses);
}

TEST_P(Groups, EightDevicesEqualOne) {
  const TrainResult one = train(recipe(model_, {"per_device_train_batch_size=8"}), options_);
  std::vector<std::pair<std::string, int>> meshes{{"{fsdp: 4, tp: 2}", 2}, {"{fsdp: 8}", 1}};
  if (std::string(GetParam()) == "qwen3_moe_packed") meshes.emplace_back("{fsdp: 2, ep: 4}", 4);
  for (const auto& [mesh, rows] : meshes) {
    const TrainResult eight =
        train(recipe(model_, {"mesh=" + mesh, "per_device_train_batch_size=" + std::to_string(rows)}), options_);
    expect_equal_lists(eight.losses, one.losses, 1e-5, mesh);
    expect_equal_lists(eight.norms, one.norms, 1e-4, mesh);
  }
}

// The linear layers stay integers with LoRA, and are floats with full tuning.
TEST_P(Groups, StayIntegersWithLora) {
  const ModelRepository repository = ModelRepository::open(model_);
  const auto run = make_run(recipe(model_), repository.config(), "config.json", 1);
  size_t grouped = 0;
  for (const Param& param : run.model.params) grouped += param.role == Role::kLinear || param.of_experts() ? 1 : 0;
  EXPECT_EQ(run.quantised.size(), grouped);
  const auto full = make_run(recipe(model_, {"finetuning_type=full"}), repository.config(), "config.json", 1);
  EXPECT_TRUE(full.quantised.empty());
}

INSTANTIATE_TEST_SUITE_P(Formats, Groups, testing::Values("qwen3_gptq", "qwen2_awq", "qwen3_moe_packed"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fettle
