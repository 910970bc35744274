// Tests moe_router_bias_update_rate: how each step moves the corrections of routers.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "model_copies.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

constexpr double kRate = 0.01;

struct RouterCase {
  std::string model;
  std::string norm;  // the norm in front of the router, in a layer
  bool packing;
};

class RouterBias : public testing::TestWithParam<RouterCase> {};

using Matrix = std::vector<std::vector<double>>;

Matrix matrix(const ModelRepository& repository, const std::string& name) {
  const StoredTensor stored = repository.find(name);
  const HostArray array = stored.file->read(*stored.entry).to(DType::kF32);
  const auto columns = static_cast<size_t>(array.shape().dims.back());
  Matrix out;
  for (size_t i = 0; i < array.as<float>().size(); ++i) {
    if (i % columns == 0) out.emplace_back();
    out.back().push_back(array.as<float>()[i]);
  }
  return out;
}

// Copies the model with zeros as the last weights of attention, Mamba2, MLPs and experts. So the residual stream is the
// embedded token in all layers.
void write_embedding_only(const std::filesystem::path& model, const std::filesystem::path& folder) {
  const ModelRepository repository = ModelRepository::open(model);
  NamedArrays tensors;
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    HostArray array = stored.file->read(*stored.entry);
    for (const char* last : {"o_proj.weight", "out_proj.weight", "down_proj.weight"})
      if (name.ends_with(last)) array = HostArray::zeros(array.shape());
    tensors.emplace_back(name, std::move(array));
  }
  write_model(folder, repository.config(), tensors);
}

// Returns the numbers of the `count` largest values.
std::vector<size_t> largest(const std::vector<double>& values, int64_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

// Returns the experts of a token, from the router's logits and corrections: the best ones within the best groups. A
// group counts with the sum of its two best scores.
std::vector<size_t> experts_of(const ModelConfig& c, const std::vector<double>& logits,
                               const std::vector<double>& corrections) {
  double powers = 0;
  for (const double logit : logits) powers += std::exp(logit);
  std::vector<double> scores;
  for (size_t e = 0; e < logits.size(); ++e) {
    const double power = std::exp(logits[e]);
    scores.push_back(power / (c.routing.sigmoid ? 1 + power : powers) + corrections[e]);
  }
  const auto of_group = static_cast<std::ptrdiff_t>(scores.size()) / c.routing.groups;
  std::vector<double> groups;
  for (int64_t g = 0; g < c.routing.groups; ++g) {
    const std::vector<double> own(scores.begin() + g * of_group, scores.begin() + (g + 1) * of_group);
    const std::vector<size_t> best = largest(own, 2);
    groups.push_back(own[best[0]] + own[best[1]]);
  }
  std::vector<double> open(scores.size(), -1e9);
  for (const size_t g : largest(groups, c.routing.top_groups))
    for (std::ptrdiff_t e = 0; e < of_group; ++e)
      open[g * static_cast<size_t>(of_group) + static_cast<size_t>(e)] =
          scores[g * static_cast<size_t>(of_group) + static_cast<size_t>(e)];
  return largest(open, c.experts_per_token);
}

// The expected corrections are computed from the router's logits of each token. The learning rate changes no weight, so
// only the corrections change from step to step.
TEST_P(RouterBias, MovesTowardEqualLoads) {
  TempFolder folder;
  write_embedding_only(reference_model(GetParam().model), folder / "model");
  const ModelRepository repository = ModelRepository::open(folder / "model");
  Recipe recipe = reference_recipe(GetParam().model);
  recipe.model_name_or_path = (folder / "model").string();
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  recipe.moe_router_bias_update_rate = kRate;
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const ModelConfig& c = run.model.config;

  std::vector<std::vector<int32_t>> steps;  // the tokens of each step
  const TrainResult result =
      train(recipe, {.steps = 4, .rate = 1e-30, .packing = GetParam().packing, .on_batch = [&](const Batch& batch) {
                       steps.emplace_back();
                       const auto tokens = batch.tokens.as<int32_t>(), segments = batch.segments.as<int32_t>();
                       for (size_t i = 0; i < tokens.size(); ++i)
                         if (segments[i] != 0) steps.back().push_back(tokens[i]);
                     }});
  for (const std::vector<double>* list : {&result.losses, &result.norms})
    for (const double value : *list) ASSERT_TRUE(std::isfinite(value)) << "a step that changes nothing";
  Matrix embedding;
  for (const Param& param : run.model.params)
    if (param.role == Role::kTokenEmbedding) embedding = matrix(repository, param.hf_name);
  size_t compared = 0, changed_sides = 0;
  for (const Param& param : run.frozen) {
    if (!run.moves(param)) continue;
    const std::vector<double>& got = result.corrections.at(param.stack_name()).elements;
    for (int64_t slice = 0; slice < param.layers.count(); ++slice) {
      std::string layer = param.stored_name(slice);
      layer.resize(layer.size() - c.routing.correction.size());
      const std::vector<double> norm = matrix(repository, layer + GetParam().norm + ".weight")[0];
      const Matrix router = matrix(repository, layer + c.experts.router + ".weight");
      std::vector<double> corrections = matrix(repository, param.stored_name(slice))[0];
      std::vector<int> side(corrections.size(), 0);
      for (const std::vector<int32_t>& tokens : steps) {
        std::vector<int64_t> loads(corrections.size(), 0);
        for (const int32_t token : tokens) {
          const std::vector<double>& x = embedding[static_cast<size_t>(token)];
          double squares = 0;
          for (const double value : x) squares += value * value;
          const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + c.norm_eps);
          std::vector<double> logits;
          for (const std::vector<double>& row : router) {
            logits.push_back(0);
            for (size_t d = 0; d < x.size(); ++d) logits.back() += row[d] * x[d] * factor * norm[d];
          }
          for (const size_t expert : experts_of(c, logits, corrections)) ++loads[expert];
        }
        const auto experts = static_cast<int64_t>(loads.size());
        const int64_t all = std::accumulate(loads.begin(), loads.end(), int64_t{0});
        ASSERT_EQ(all, std::ssize(tokens) * c.experts_per_token);
        for (size_t e = 0; e < loads.size(); ++e) {
          const int direction = loads[e] * experts < all ? 1 : loads[e] * experts > all ? -1 : 0;
          corrections[e] += kRate * direction;
          changed_sides += side[e] * direction < 0 ? 1 : 0;
          side[e] = direction;
        }
      }
      for (size_t e = 0; e < corrections.size(); ++e, ++compared)
        EXPECT_NEAR(got[static_cast<size_t>(slice) * corrections.size() + e], corrections[e], 1e-6)
            << layer << " expert " << e;
    }
  }
  EXPECT_GE(compared, 16u);
  EXPECT_GT(changed_sides, 0u) << "an expert with few tokens gets more than the mean later, or the other way round";
}

INSTANTIATE_TEST_SUITE_P(Models, RouterBias,
                         testing::Values(RouterCase{"deepseek_v3", "post_attention_layernorm", false},
                                         RouterCase{"nemotron_h_moe", "norm", true},
                                         RouterCase{"ernie4_5_moe", "post_attention_layernorm", false}),
                         [](const auto& info) { return info.param.model; });

TEST(RouterBiasOfAReferenceModel, DoesNotMove) {
  Recipe recipe = reference_recipe("deepseek_v3");
  recipe.finetuning_type = "full";
  recipe.stage = "dpo";
  recipe.moe_router_bias_update_rate = kRate;
  const auto run = make_run(recipe, ModelRepository::open(recipe.model_name_or_path).config(), "config.json", 1);
  for (const Param& param : run.frozen)
    EXPECT_EQ(run.moves(param), std::ranges::count(run.reference.params, param.stack_name(), &Param::stack_name) == 1);
  EXPECT_EQ(run.reference.params.size(), run.trained.size() + 1)
      << "a copy of each trained weight and of the corrections";
}

TEST(RouterBiasByDefault, DoesNotMove) {
  Recipe recipe = reference_recipe("minimax_m2");
  recipe.finetuning_type = "full";
  const auto run = make_run(recipe, ModelRepository::open(recipe.model_name_or_path).config(), "config.json", 1);
  EXPECT_FALSE(run.frozen.empty());
  for (const Param& param : run.frozen) EXPECT_FALSE(run.moves(param)) << param.hf_name;
}

}  // namespace
}  // namespace fettle
