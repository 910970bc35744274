// Tests how layers of different kinds are divided into loops, and how stacks are cut between these loops.
#include <gtest/gtest.h>

#include "models/layer_groups.h"

namespace fettle {
namespace {

// Returns the groups of layers. Each letter of `kinds` is the kind of one layer.
std::vector<LayerGroup> groups_of(const std::string& kinds) {
  std::map<char, LayerSet> sets;
  for (size_t layer = 0; layer < kinds.size(); ++layer)
    sets[kinds[layer]].numbers.push_back(static_cast<int64_t>(layer));
  std::vector<LayerSet> all{all_layers(static_cast<int64_t>(kinds.size()))};
  for (const auto& [kind, set] : sets) all.push_back(set);
  return group_layers(static_cast<int64_t>(kinds.size()), all);
}

void expect_groups(const std::string& kinds, const std::vector<LayerGroup>& wanted) {
  const std::vector<LayerGroup> got = groups_of(kinds);
  ASSERT_EQ(got.size(), wanted.size()) << kinds;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first) << kinds << ' ' << i;
    EXPECT_EQ(got[i].period, wanted[i].period) << kinds << ' ' << i;
    EXPECT_EQ(got[i].repeats, wanted[i].repeats) << kinds << ' ' << i;
  }
}

TEST(LayerGroups, RepeatTheShortestSequenceThatGoesFarthest) {
  expect_groups("aaaa", {{0, 1, 4}});
  expect_groups("daaaa", {{0, 1, 1}, {1, 1, 4}});
  expect_groups("lllflllflllf", {{0, 4, 3}});
  expect_groups("llfllfll", {{0, 3, 2}, {6, 1, 2}});
  expect_groups("abcde", {{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}});
  expect_groups("abababa", {{0, 2, 3}, {6, 1, 1}});
}

TEST(LayerGroups, CutTheStacks) {
  const std::vector<LayerGroup> groups = groups_of("dfafaf");
  Param of_all{.hf_name = "layers.{}.norm.weight", .dims = {2}, .axes = {"norm"}, .role = Role::kNorm};
  of_all.layers = all_layers(6);
  Param of_some = of_all, outside = of_all;
  of_some.layers = {{1, 3, 5}, 3};
  outside.layers = {};
  std::vector<std::string> names;
  for (const Param& param : cut_at_groups({of_all, of_some, outside}, groups)) names.push_back(param.stack_name());
  EXPECT_EQ(names, (std::vector<std::string>{"layers.{}.norm.weight[0:1]", "layers.{}.norm.weight[1:5]",
                                             "layers.{}.norm.weight[5:6]", "layers.{}.norm.weight[1:4]",
                                             "layers.{}.norm.weight[5:6]", "layers.{}.norm.weight"}));
  EXPECT_EQ(of_some.stored_name(2), "layers.5.norm.weight");
}

}  // namespace
}  // namespace fettle
