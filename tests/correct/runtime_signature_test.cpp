#include <gtest/gtest.h>

#include <numeric>

#include "runtime/signature.h"

namespace fettle {
namespace {

TEST(Layout, ShardedFollowsTheMeshRowMajor) {
  // The mesh is 2 x 2 x 2. Dim 0 is split over axis 1 (size 2), dim 1 over axes 0 and 2 (2 x 2).
  const Layout layout = Layout::sharded({4, 8}, {2, 2, 2}, {{1}, {0, 2}});
  ASSERT_EQ(layout.count(), 8);
  // Device 5 has the coordinates (1, 0, 1), so its row tile is 0 and its column tile is 1 * 2 + 1 = 3.
  EXPECT_EQ(layout.boxes[5], (Box{{0, 6}, {2, 2}}));
  EXPECT_EQ(layout.boxes[2], (Box{{2, 0}, {2, 2}}));
  EXPECT_EQ(layout.parts().size(), 8u);
}

TEST(Layout, UnnamedAxesHoldReplicas) {
  const Layout layout = Layout::sharded({6}, {3, 2}, {{0}});
  EXPECT_EQ(layout.parts(), (std::vector<Box>{{{0}, {2}}, {{2}, {2}}, {{4}, {2}}}));
  EXPECT_EQ(layout.part_of(), (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(Layout::replicated({6}, 3).parts(), (std::vector<Box>{{{0}, {6}}}));
}

TEST(Layout, EqualityKnowsTheDefaultDevices) {
  Layout a = Layout::replicated({2}, 3), b = a;
  b.devices = {0, 1, 2};
  EXPECT_TRUE(a == b);
  b.devices = {0, 2, 1};
  EXPECT_FALSE(a == b);
}

}  // namespace
}  // namespace fettle
