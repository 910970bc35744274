// Compares pictures of shardings on a mesh of 2 x 4 character by character.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sharding/picture.h"

namespace fettle {
namespace {

const MeshAxes kMesh{{{"fsdp", 2}, {"tp", 4}}};

TEST(Picture, TwoSplitDimsAreRowsAndColumns) {
  EXPECT_EQ(draw_partition({{{}, {"fsdp"}, {"tp"}}}, kMesh, false),
            "┌─────┬─────┬─────┬─────┐\n"
            "│  0  │  1  │  2  │  3  │\n"
            "├─────┼─────┼─────┼─────┤\n"
            "│  4  │  5  │  6  │  7  │\n"
            "└─────┴─────┴─────┴─────┘\n");
  EXPECT_EQ(draw_partition({{{"tp"}, {"fsdp"}}}, kMesh, false),
            "┌─────┬─────┐\n"
            "│  0  │  4  │\n"
            "├─────┼─────┤\n"
            "│  1  │  5  │\n"
            "├─────┼─────┤\n"
            "│  2  │  6  │\n"
            "├─────┼─────┤\n"
            "│  3  │  7  │\n"
            "└─────┴─────┘\n");
}

TEST(Picture, ReplicasShareABox) {
  EXPECT_EQ(draw_partition({{{}, {"fsdp"}}}, kMesh, false),
            "┌───────┬───────┐\n"
            "│  0-3  │  4-7  │\n"
            "└───────┴───────┘\n");
  EXPECT_EQ(draw_partition({{{"tp"}, {}}}, kMesh, false),
            "┌───────┐\n"
            "│  0,4  │\n"
            "├───────┤\n"
            "│  1,5  │\n"
            "├───────┤\n"
            "│  2,6  │\n"
            "├───────┤\n"
            "│  3,7  │\n"
            "└───────┘\n");
  EXPECT_EQ(draw_partition({{{}}}, kMesh, false),
            "┌───────┐\n"
            "│  0-7  │\n"
            "└───────┘\n");
}

// The last of the two axes varies fastest. So {"tp", "fsdp"} gives another order of devices than {"fsdp", "tp"}.
TEST(Picture, TwoAxesOfADimAreDrawnInTheirOrder) {
  EXPECT_EQ(draw_partition({{{}, {"tp", "fsdp"}}}, kMesh, false),
            "┌─────┬─────┬─────┬─────┬─────┬─────┬─────┬─────┐\n"
            "│  0  │  4  │  1  │  5  │  2  │  6  │  3  │  7  │\n"
            "└─────┴─────┴─────┴─────┴─────┴─────┴─────┴─────┘\n");
  EXPECT_EQ(draw_partition({{{}, {"fsdp", "tp"}}}, kMesh, false),
            "┌─────┬─────┬─────┬─────┬─────┬─────┬─────┬─────┐\n"
            "│  0  │  1  │  2  │  3  │  4  │  5  │  6  │  7  │\n"
            "└─────┴─────┴─────┴─────┴─────┴─────┴─────┴─────┘\n");
}

TEST(Picture, ManyPartsAreLeftOutAndManyReplicasShortened) {
  EXPECT_EQ(draw_partition({{{}, {"fsdp"}}}, {{{"fsdp", 64}}}, false),
            "┌──────┬──────┬──────┬──────┬───┬──────┐\n"
            "│  0   │  1   │  2   │  3   │...│  63  │\n"
            "└──────┴──────┴──────┴──────┴───┴──────┘\n");
  EXPECT_EQ(draw_partition({{{}, {"tp"}}}, {{{"fsdp", 8}, {"tp", 2}}}, false),
            "┌───────────┬───────────┐\n"
            "│  0,2..14  │  1,3..15  │\n"
            "└───────────┴───────────┘\n");
}

TEST(Picture, ColourFillsBoxesOnly) {
  EXPECT_EQ(draw_partition({{{}, {"fsdp"}}}, {{{"fsdp", 2}}}, true),
            "┌─────┬─────┐\n"
            "│\x1b[30;48;5;110m  0  \x1b[0m│\x1b[30;48;5;150m  1  \x1b[0m│\n"
            "└─────┴─────┘\n");
}

std::vector<PlacedArray> some_arrays() {
  const ShardingRules rules(kMesh);
  std::vector<PlacedArray> arrays;
  auto add = [&](const char* kind, const char* name, const char* label, const Shape& shape, const LogicalAxes& axes) {
    arrays.push_back({kind, name, label, shape, axes, rules.partition(axes, shape.dims, name)});
  };
  add("weights", "layers.{}.q.weight", "q", {DType::kBF16, {2, 16, 64}}, {"layers", "heads", "embed"});
  add("weights", "layers.{}.norm.weight", "norm", {DType::kBF16, {2, 64}}, {"layers", "norm"});
  add("weights", "head.weight", "head", {DType::kBF16, {16, 64}}, {"heads", "embed"});
  add("moments", "layers.{}.q.weight (m, v)", "q", {DType::kF32, {2, 16, 64}}, {"layers", "heads", "embed"});
  add("moments", "layers.{}.norm.weight (m, v)", "norm", {DType::kF32, {2, 64}}, {"layers", "norm"});
  add("moments", "head.weight (m, v)", "head", {DType::kF32, {16, 64}}, {"heads", "embed"});
  add("batch", "tokens", "tokens", {DType::kI32, {1, 4, 32}}, {"", "batch", "length"});
  return arrays;
}

TEST(Picture, ArraysOfAKindWithOnePartitionShareAPicture) {
  EXPECT_EQ(format_placed(some_arrays(), kMesh, false),
            "weights\n"
            "  q, head\n"
            "  each split over [tp+fsdp, -]\n"
            "┌─────┐\n"
            "│  0  │\n"
            "├─────┤\n"
            "│  4  │\n"
            "├─────┤\n"
            "│  1  │\n"
            "├─────┤\n"
            "│  5  │\n"
            "├─────┤\n"
            "│  2  │\n"
            "├─────┤\n"
            "│  6  │\n"
            "├─────┤\n"
            "│  3  │\n"
            "├─────┤\n"
            "│  7  │\n"
            "└─────┘\n"
            "  norm\n"
            "  not split: every device stores all of it\n"
            "┌───────┐\n"
            "│  0-7  │\n"
            "└───────┘\n"
            "\n"
            "moments\n"
            "  each is split like weights\n"
            "\n"
            "batch\n"
            "  tokens\n"
            "  split over [-, fsdp, -]\n"
            "┌───────┐\n"
            "│  0-3  │\n"
            "├───────┤\n"
            "│  4-7  │\n"
            "└───────┘\n"
            "\n"
            "  array                         shape        dtype  split over       a device    whole\n"
            "weights\n"
            "  layers.{}.q.weight            [2, 16, 64]  bf16   [-, tp+fsdp, -]   0.51 KB  4.10 KB\n"
            "  layers.{}.norm.weight         [2, 64]      bf16   [-, -]            0.26 KB  0.26 KB\n"
            "  head.weight                   [16, 64]     bf16   [tp+fsdp, -]      0.26 KB  2.05 KB\n"
            "moments\n"
            "  layers.{}.q.weight (m, v)     [2, 16, 64]  f32    [-, tp+fsdp, -]   1.02 KB  8.19 KB\n"
            "  layers.{}.norm.weight (m, v)  [2, 64]      f32    [-, -]            0.51 KB  0.51 KB\n"
            "  head.weight (m, v)            [16, 64]     f32    [tp+fsdp, -]      0.51 KB  4.10 KB\n"
            "batch\n"
            "  tokens                        [1, 4, 32]   i32    [-, fsdp, -]      0.26 KB  0.51 KB\n");
}

TEST(Picture, JsonHoldsWhatScriptsNeed) {
  const nlohmann::json json = placed_json(some_arrays(), kMesh);
  EXPECT_EQ(json["mesh"], nlohmann::json::parse(R"([{"axis": "fsdp", "size": 2}, {"axis": "tp", "size": 4}])"));
  EXPECT_EQ(json["arrays"].size(), 7u);
  EXPECT_EQ(json["arrays"][0], nlohmann::json::parse(R"({
    "kind": "weights", "name": "layers.{}.q.weight", "shape": [2, 16, 64], "dtype": "bf16",
    "axes": ["layers", "heads", "embed"], "partition": [[], ["tp", "fsdp"], []],
    "bytes_per_device": 512, "bytes": 4096})"));
}

// A box must not list devices that store different parts.
TEST(Picture, ThreeSplitDimsHaveABoxForEachPart) {
  const MeshAxes mesh{{{"fsdp", 2}, {"tp", 2}, {"sp", 2}}};
  EXPECT_EQ(draw_partition({{{"fsdp"}, {"sp"}, {"tp"}}}, mesh, false),
            "┌─────┬─────┬─────┬─────┐\n"
            "│  0  │  2  │  1  │  3  │\n"
            "├─────┼─────┼─────┼─────┤\n"
            "│  4  │  6  │  5  │  7  │\n"
            "└─────┴─────┴─────┴─────┘\n");
}

}  // namespace
}  // namespace fettle
