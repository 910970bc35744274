// Tests how logical axes become mesh axes: the table, its overrides, meshes of recipes, and how much of a model a
// device stores.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "graph_run.h"
#include "models/model.h"
#include "programs/layouts.h"
#include "reference_models.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

using Split = std::vector<std::vector<std::string>>;

const MeshAxes kMesh{{{"dp", 2}, {"fsdp", 2}, {"tp", 2}}};

TEST(Rules, EachMeshAxisSplitsTheFirstDimThatNamesIt) {
  const ShardingRules rules(kMesh);
  EXPECT_EQ(rules.partition({"vocab", "embed"}, {64, 32}, "w").dims, (Split{{"tp"}, {"fsdp"}}));
  EXPECT_EQ(rules.partition({"heads", "embed"}, {64, 32}, "w").dims, (Split{{"tp", "fsdp"}, {}}));
  EXPECT_EQ(rules.partition({"embed", "heads"}, {32, 64}, "w").dims, (Split{{"fsdp"}, {"tp"}}));
  EXPECT_EQ(rules.partition({"layers", "norm"}, {4, 32}, "w").dims, (Split{{}, {}}));
  EXPECT_EQ(rules.partition({"batch", "length"}, {8, 32}, "w").dims, (Split{{"dp", "fsdp"}, {}}));
  EXPECT_EQ(rules.partition({"", "", "act_mlp"}, {1, 3, 32}, "w").dims, (Split{{}, {}, {"tp"}}));
}

TEST(Rules, AxesThatTheMeshLacksDoNotSplit) {
  const ShardingRules rules(MeshAxes{{{"sp", 4}}});
  EXPECT_EQ(rules.partition({"vocab", "embed"}, {63, 31}, "w").dims, (Split{{}, {}}));
  EXPECT_EQ(rules.partition({"batch", "length"}, {3, 32}, "w").dims, (Split{{}, {"sp"}}));
}

// GPT-2 has 50257 tokens. Some models have fewer key heads than tp has devices.
TEST(Rules, VocabulariesAndKeyHeadsThatDoNotDivideStayWhole) {
  const ShardingRules rules(kMesh);
  EXPECT_EQ(rules.partition({"vocab", "embed"}, {50257, 32}, "w").dims, (Split{{}, {"fsdp"}}));
  EXPECT_EQ(rules.left_whole("vocab", 50257), std::vector<std::string>{"tp"});
  EXPECT_EQ(rules.left_whole("vocab", 50256), std::vector<std::string>{});
  EXPECT_EQ(rules.left_whole("embed", 31), std::vector<std::string>{}) << "partition() throws for this axis";
  EXPECT_EQ(rules.partition({"batch", "", "act_vocab"}, {4, 8, 50257}, "logits").dims, (Split{{"dp", "fsdp"}, {}, {}}));
  const ShardingRules wide(MeshAxes{{{"tp", 8}}});
  EXPECT_EQ(wide.partition({"act_kv_heads"}, {4}, "keys").dims, (Split{{}}));
  EXPECT_EQ(wide.partition({"act_kv_heads"}, {16}, "keys").dims, (Split{{"tp"}}));
  const ShardingRules both(kMesh, {{"vocab", "fsdp+tp"}});
  EXPECT_EQ(both.partition({"vocab"}, {6}, "w").dims, (Split{{"fsdp"}})) << "only the axes that divide it";
}

// ep splits the experts. It splits other weights like fsdp. If it does not divide a dim, it splits the next one.
TEST(Rules, EpSplitsExpertsAndOtherWeights) {
  const ShardingRules rules(MeshAxes{{{"fsdp", 2}, {"ep", 4}}});
  EXPECT_EQ(rules.partition({"experts", "mlp", "embed"}, {8, 64, 32}, "w").dims, (Split{{"ep"}, {"fsdp"}, {}}));
  EXPECT_EQ(rules.partition({"mlp", "rank", "experts"}, {64, 2, 8}, "w").dims, (Split{{"fsdp"}, {}, {"ep"}}));
  EXPECT_EQ(rules.partition({"heads", "embed"}, {64, 32}, "w").dims, (Split{{"fsdp", "ep"}, {}}));
  EXPECT_EQ(rules.partition({"vocab", "embed"}, {64, 32}, "w").dims, (Split{{}, {"fsdp", "ep"}}));
  EXPECT_EQ(rules.partition({"heads", "embed"}, {6, 32}, "w").dims, (Split{{"fsdp"}, {"ep"}}));
  EXPECT_THROW(rules.partition({"experts", "mlp", "embed"}, {6, 64, 32}, "w"), UserError);
}

TEST(Rules, ARecipeOverridesTheTable) {
  const ShardingRules rules(kMesh, {{"embed", ""}, {"vocab", "fsdp+tp"}, {"norm", "dp"}});
  EXPECT_EQ(rules.partition({"vocab", "embed"}, {64, 31}, "w").dims, (Split{{"fsdp", "tp"}, {}}));
  EXPECT_EQ(rules.partition({"norm"}, {32}, "w").dims, (Split{{"dp"}}));
  EXPECT_EQ(rules.partition({"heads"}, {64}, "w").dims, (Split{{"tp", "fsdp"}})) << "other rules stay";
}

TEST(Rules, ActivationsAreConstrainedOnlyOnAMesh) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8, 4}});
  EXPECT_EQ(ShardingRules(MeshAxes{}).constrain(x, {"batch", "length"}), x);
  const Tensor held = ShardingRules(kMesh).constrain(x, {"batch", "length"});
  EXPECT_EQ(held.block()->node(held.node()).op, Op::kShardingConstraint);
  EXPECT_EQ(held.block()->node(held.node()).get<Constraint>().partition.dims, (Split{{"dp", "fsdp"}, {}}));
}

TEST(Mesh, AxesAreOrderedAndOnesLeftOut) {
  using Axes = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(make_mesh({}, 1).axes, Axes{});
  EXPECT_EQ(make_mesh({}, 8).axes, (Axes{{"fsdp", 8}})) << "all devices on fsdp";
  EXPECT_EQ(make_mesh({{"tp", 2}, {"dp", 1}, {"sp", 2}, {"fsdp", 2}}, 8).axes,
            (Axes{{"fsdp", 2}, {"tp", 2}, {"sp", 2}}));
  EXPECT_EQ(make_mesh({{"fsdp", 1}}, 1).axes, Axes{});
  const MeshAxes mesh = make_mesh({{"dp", 4}, {"tp", 2}}, 8);
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.size_of("tp"), 2);
  EXPECT_EQ(mesh.size_of("fsdp"), 1);
}

// Returns how many weight elements the first device of `mesh` stores.
int64_t held(const Model& model, const MeshAxes& mesh) {
  const ShardingRules rules(mesh);
  int64_t elements = 0;
  for (const Param& param : model.params) {
    const Dims dims = stacked_shape(param, DType::kF32).dims;
    elements += layout_of(rules.partition(stacked_axes(param), dims, param.hf_name), dims, mesh).boxes[0].elements();
  }
  return elements;
}

// This is the purpose of fsdp and tp: a device stores its share of the matrices, and whole copies only of small
// vectors.
TEST(Mesh, ADeviceHoldsItsShareOfTheModel) {
  for (const char* name : {"llama", "qwen2", "qwen3", "gpt2"}) {
    const std::filesystem::path file = reference_model(name) / "config.json";
    const Model model = make_model(nlohmann::json::parse(std::ifstream(file)), file);
    int64_t vectors = 0;
    for (const Param& param : model.params)
      if (param.dims.size() == 1)
        vectors += product(param.dims) * (param.stacked() ? model.config.num_hidden_layers : 1);
    const int64_t matrices = model.parameters() - vectors;
    EXPECT_LE(held(model, make_mesh({{"fsdp", 8}}, 8)), matrices / 8 + vectors) << name;
    EXPECT_EQ(held(model, make_mesh({{"dp", 8}}, 8)), model.parameters()) << name;
    EXPECT_LT(held(model, make_mesh({{"tp", 2}}, 2)), model.parameters() * 3 / 4) << name;
    EXPECT_LT(held(model, make_mesh({{"fsdp", 4}, {"tp", 2}}, 8)), matrices / 4 + vectors) << name;
  }
}

// The program's values are split differently at each point. It gives the same results as on one device.
TEST(Mesh, ConstraintsDoNotChangeValues) {
  const Value x = random_value({DType::kF32, {8, 16}}, 1), w = random_value({DType::kF32, {16, 8}}, 2);
  auto result = [&](const MeshAxes& mesh) {
    GraphRun run(mesh);
    const ShardingRules rules(mesh, {{"vocab", "tp"}});
    const Tensor a = run.input(x, rules.partition({"batch", "embed"}, {8, 16}, "x"));
    const Tensor b = run.input(w, rules.partition({"embed", "mlp"}, {16, 8}, "w"));
    const Tensor held = rules.constrain(a * 2.0, {"", "act_mlp"});
    const Tensor y =
        rules.constrain(dot_general(held, b, {.lhs_contracting = {1}, .rhs_contracting = {0}}), {"batch", "act_heads"});
    run.output("y", y);
    run.output("sum", reduce_sum(y, {0, 1}));
    return run.run();
  };
  const std::map<std::string, Value> one = result({}), eight = result(make_mesh({{"fsdp", 2}, {"tp", 4}}, 8));
  for (const auto& [name, value] : one)
    for (size_t e = 0; e < value.elements.size(); ++e)
      EXPECT_NEAR(eight.at(name).elements[e], value.elements[e], 1e-5) << name << ' ' << e;
}

}  // namespace
}  // namespace fettle
