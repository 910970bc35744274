// Tests how a parameter's role affects its training: weight decay, learning rate, 8-bit state, number of positions.
#include <gtest/gtest.h>

#include "families.h"
#include "run/preflight.h"
#include "training.h"
#include "training_run.h"

namespace fettle {
namespace {

Run job_of(const std::string& model, std::vector<std::string> words) {
  words.insert(words.end(), {"model_name_or_path=" + reference_model(model).string(), "plugin=cpu"});
  if (std::ranges::find(kEncoders, model) != kEncoders.end())
    words.insert(words.end(), {"stage=cls", "num_labels=3", "problem_type=single_label_classification"});
  const ModelRepository repository = ModelRepository::open(reference_model(model));
  return make_run(read_recipe("", words), repository.config(), "config.json", 1);
}

std::vector<std::string> all_models() {
  std::vector<std::string> out = kFamilies;
  out.insert(out.end(), kEncoders.begin(), kEncoders.end());
  return out;
}

// Returns whether checkpoints use this name for a token embedding or a head.
bool is_named_embedding(const std::string& name) {
  for (const char* known : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight", "lm_head.weight",
                            "embed_in.weight", "embed_out.weight", "model.embeddings.weight", "tok_embeddings.weight"})
    if (name.ends_with(known)) return true;
  return false;
}

void expect_training_follows_names(const Run& run, const std::string& model, bool loraplus) {
  int64_t decaying = 0;
  for (const Param& param : run.trained) {
    SCOPED_TRACE(model + " " + param.hf_name);
    const std::string& name = param.hf_name;
    const OptimWeight weight = optim_weight(run, param);
    // These vectors are neither biases nor norms. PyTorch's usual choice applies weight decay to them.
    const bool coefficients = name.ends_with(".sinks") || name.ends_with(".A_log") || name.ends_with(".D") ||
                              name.ends_with("router.scale") || name.ends_with("router.per_expert_scale");
    const bool vector = (param.stored_dims().size() == 1 && !coefficients) || name.ends_with("_proj_bias");
    const bool magnitude = name.ends_with("lora_magnitude_vector");
    EXPECT_TRUE(param.trained);
    EXPECT_EQ(weight.weight_decay, !vector || magnitude ? 0.25 : 0);
    decaying += weight.weight_decay > 0;
    if (loraplus)
      EXPECT_EQ(weight.rate, vector || name.ends_with(".lora_B.weight") ? 16 : 1);
    else
      EXPECT_DOUBLE_EQ(weight.rate, is_named_embedding(name) ? 0.1 : 1);
    EXPECT_EQ(weight.embedding, name.ends_with("_embeddings.weight") || name.ends_with("embed_tokens.weight") ||
                                    name.ends_with("embed_tokens_per_layer.weight") ||
                                    name.ends_with("model.embeddings.weight") || name.ends_with("embed_in.weight") ||
                                    name.ends_with(".wte.weight") || name.ends_with(".wpe.weight"));
  }
  EXPECT_GT(decaying, 0) << model;
  for (const Param& param : run.frozen) EXPECT_FALSE(param.trained) << model << ' ' << param.hf_name;
}

TEST(Roles, DecideDecayAndRateOfFullTuning) {
  for (const std::string& model : all_models())
    expect_training_follows_names(
        job_of(model, {"finetuning_type=full", "weight_decay=0.25", "learning_rate=1e-4", "embedding_lr=1e-5"}), model,
        false);
}

TEST(Roles, DecideDecayAndRateOfAdapters) {
  for (const std::string& model : all_models()) {
    std::vector<std::string> words{"weight_decay=0.25", "loraplus_lr_ratio=16", "use_dora=true"};
    expect_training_follows_names(job_of(model, words), model, true);
    const std::vector<Param> trained = job_of(model, words).trained;
    for (const Role role : {Role::kLoraA, Role::kLoraB, Role::kLoraMagnitude}) {
      std::set<std::string> names;  // a stack may be cut into several parameters
      for (const Param& param : trained)
        if (param.role == role) names.insert(param.hf_name);
      const Model& of = job_of(model, words).model;
      EXPECT_EQ(names.size(), of.linears().size() - of.family->without_lora.size()) << model;
    }
  }
}

// Adam-mini has one second moment for each head of q and k. Gemma 4's layers without a window have heads of another
// size.
TEST(Roles, HeadsOfAdamMini) {
  const auto run = job_of("gemma4", {"finetuning_type=full", "optim=adam_mini"});
  std::map<int64_t, int64_t> stacks;  // number of stacks, by the rows of a head
  for (const Param& param : run.trained) {
    const int64_t rows = optim_weight(run, param).head_rows;
    if (rows == 0) continue;
    const bool full = run.model.config.window[static_cast<size_t>(param.layers.numbers.front())] == 0;
    EXPECT_EQ(rows, full ? 32 : 16) << param.stack_name();
    ++stacks[rows];
  }
  EXPECT_EQ(stacks.size(), 2u);
}

// As in Transformers, rounding the weights of ERNIE 4.5's routers would change which experts are chosen.
TEST(Roles, RoutersOfErnieAreAlwaysFloat32) {
  const auto frozen = job_of("ernie4_5_moe", {"bf16=true"});
  size_t routers = 0;
  for (const Param& param : frozen.frozen) {
    if (param.role != Role::kRouter) continue;
    EXPECT_EQ(frozen.dtype_of(param, frozen.precision.frozen), DType::kF32);
    ++routers;
  }
  EXPECT_EQ(routers, 1u);
  Recipe recipe = reference_recipe("ernie4_5_moe");
  recipe.finetuning_type = "full";
  recipe.pure_bf16 = true;
  TrainingRun full(recipe);
  full.advance();
  for (const Param& param : full.run.trained) {
    const DType wanted = param.role == Role::kRouter ? DType::kF32 : DType::kBF16;
    EXPECT_EQ(full.state.buffers.at(trained_input(param)).shape().dtype, wanted) << param.hf_name;
    EXPECT_EQ(trained_array(full.run, param).shape.dtype, wanted) << param.hf_name;
  }
}

// Muon and Adafactor treat only matrices by rows and columns. The checkpoint's short convolutions have three dims, and
// so have the weights of experts that are in one tensor.
TEST(Roles, DecideWhichWeightsAreMatrices) {
  int64_t convolutions = 0, experts = 0;
  for (const std::string& model : all_models()) {
    const auto run = job_of(model, {"finetuning_type=full"});
    for (const Param& param : run.trained) {
      SCOPED_TRACE(model + " " + param.hf_name);
      const OptimWeight weight = optim_weight(run, param);
      const bool convolution = param.hf_name.ends_with("conv1d.weight") || param.hf_name.ends_with("conv.conv.weight");
      const bool expert = param.has_experts();
      EXPECT_EQ(weight.is_matrix(), !convolution && param.stored_dims().size() > 1);
      if (expert) {
        EXPECT_EQ(weight.stack_dims(), (Dims{param.layer_count(), run.model.config.num_experts}));
      }
      convolutions += convolution, experts += expert && !param.of_experts();
    }
  }
  EXPECT_GT(convolutions, 0);
  EXPECT_GT(experts, 0);
}

TEST(Roles, OnlyTablesOfPositionsLimitTheLength) {
  for (const std::string& model : all_models()) {
    const auto run = job_of(model, {});
    const auto length = static_cast<size_t>(run.model.config.max_position_embeddings) + 1;
    const std::vector<Example> rows{{std::vector<int32_t>(length, 1), std::vector<int32_t>(length, 1), "rows.jsonl:1"}};
    bool ends = false;
    try {
      check_positions(run, rows);
    } catch (const UserError&) {
      ends = true;
    }
    EXPECT_EQ(ends, model == "gpt2" || model == "gpt_bigcode" || model == "bert" || model == "roberta") << model;
  }
}

// Freeze-tuning cuts stacked parameters. Each part has its own name and the role of the whole stack.
TEST(Roles, OfAPartOfTheLayersAreKept) {
  const auto run = job_of("llama", {"finetuning_type=freeze", "freeze_trainable_layers=1"});
  std::set<std::string> names;
  for (const auto* params : {&run.frozen, &run.trained})
    for (const Param& param : *params)
      if (param.role == Role::kLinear && param.hf_name.ends_with("up_proj.weight")) {
        names.insert(param.stack_name());
        EXPECT_EQ(param.layers.count(), 1);
        EXPECT_EQ(param.trained, params == &run.trained);
        EXPECT_EQ(param.stored_name(0),
                  "model.layers." + std::to_string(param.layers.numbers.front()) + ".mlp.up_proj.weight");
      }
  EXPECT_EQ(names, (std::set<std::string>{"model.layers.{}.mlp.up_proj.weight[0:1]",
                                          "model.layers.{}.mlp.up_proj.weight[1:2]"}));
}

}  // namespace
}  // namespace fettle
