// Tests checkpoints of bitsandbytes that leave some modules in floats (llm_int8_skip_modules), such as Unsloth's
// dynamic 4-bit models: training on them equals training on the same values in floats.
#include <gtest/gtest.h>

#include <algorithm>

#include "block_values.h"
#include "model_copies.h"
#include "resolve_run.h"
#include "training.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const Words kLeftOut = {"model.layers.0.mlp.down_proj", "model.layers.1.self_attn.q_proj", "lm_head"};

bool is_left_out(const std::string& tensor) {
  return std::ranges::any_of(kLeftOut, [&](const std::string& module) { return tensor.starts_with(module + "."); });
}

HostArray values_of(const ModelRepository& model, const std::string& name) {
  const StoredTensor stored = model.find(name);
  return stored.file->read(*stored.entry);
}

// Writes the checkpoint in nf4, with the original values of the modules that are left out.
void write_skipping(const fs::path& folder) {
  const ModelRepository floats = ModelRepository::open(reference_model("llama")),
                        codes = ModelRepository::open(reference_model("llama") / "quantised/nf4");
  NamedArrays tensors;
  for (const std::string& name : codes.names())
    if (!is_left_out(name)) tensors.emplace_back(name, values_of(codes, name));
  for (const std::string& name : floats.names())
    if (is_left_out(name)) tensors.emplace_back(name, values_of(floats, name));
  nlohmann::json config = codes.config();
  config["quantization_config"]["llm_int8_skip_modules"] = kLeftOut;
  write_model(folder, config, tensors);
}

// Writes the same values in floats.
void write_values(const fs::path& folder) {
  const ModelRepository floats = ModelRepository::open(reference_model("llama"));
  const bool nested = ModelRepository::open(reference_model("llama") / "quantised/nf4")
                          .config()["quantization_config"]["bnb_4bit_use_double_quant"];
  NamedArrays tensors;
  for (const std::string& name : floats.names()) {
    HostArray values = values_of(floats, name).to(DType::kF32);
    if (name.find("_proj.weight") != std::string::npos && !is_left_out(name))
      through_codes({Quantisation::Type::kNf4, nested}, values.as<float>(), values.shape().dims.back());
    tensors.emplace_back(name, std::move(values));
  }
  write_model(folder, floats.config(), tensors);
}

// Trains an adapter further, because the values of a new one would depend on how the layers are divided into stacks.
TrainResult train_on(const fs::path& model, Words more = {}) {
  if (more.empty()) more = {"adapter_name_or_path=" + (reference_model("llama") / "adapter_init").string()};
  Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_dropout=0"};
  words.insert(words.end(), more.begin(), more.end());
  return train(read_recipe("", words), {.steps = 3, .rate = 5e-3});
}

TEST(SkippedModules, StayInFloats) {
  TempFolder folder;
  write_skipping(folder / "codes");
  write_values(folder / "values");
  const TrainResult got = train_on(folder / "codes"), wanted = train_on(folder / "values");
  expect_equal_lists(got.losses, wanted.losses, 1e-5, "loss");
  expect_equal_lists(got.norms, wanted.norms, 1e-4, "norm");
  const TrainResult all_codes = train_on(reference_model("llama") / "quantised/nf4");
  EXPECT_GT(std::abs(all_codes.losses[0] / wanted.losses[0] - 1), 1e-4) << "the modules left out make a difference";
}

TEST(SkippedModules, CannotBeCombinedWithSomeKeys) {
  TempFolder folder;
  write_skipping(folder / "codes");
  for (const char* key : {"layers_to_transform=[0]", "offload_param=true"}) {
    const std::string said = user_error([&] { train_on(folder / "codes", {key}); });
    EXPECT_NE(said.find("mlp.down_proj.weight (1 of 2 layers)"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace fettle
