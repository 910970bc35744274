#include <gtest/gtest.h>

#include <numeric>

#include "runtime/signature.h"

namespace fettle {
namespace {

TEST(Layout, ShardedFollowsTheMeshRowMajor) {
  // dim 0 over axis 1 (size 2), dim 1 over axes 0 then 2 (2 x 2); mesh 2 x 2 x 2.
  const Layout layout = Layout::sharded({4, 8}, {2, 2, 2}, {{1}, {0, 2}});
  ASSERT_EQ(layout.count(), 8);
  // device 5 = coordinates (1, 0, 1): row tile 0, column tile 1*2+1 = 3
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

// Every box of every split of several shapes, against plain index arithmetic.
TEST(Layout, BoxesAreCopiedElementForElement) {
  const std::vector<Dims> shapes = {{}, {6}, {4, 6}, {2, 3, 4}, {2, 4, 2, 6}, {3, 1, 5}};
  for (const Dims& dims : shapes) {
    const Shape shape{DType::kI16, dims};
    std::vector<int16_t> global(shape.elements());
    std::iota(global.begin(), global.end(), int16_t{0});
    // start and size: every way to cut [lo, hi) in each dim, by a mixed-radix count over a few cuts
    for (int choice = 0; choice < 81; ++choice) {
      Box box{Dims(dims.size()), Dims(dims.size())};
      int rest = choice;
      for (size_t d = 0; d < dims.size(); ++d, rest /= 3) {
        const int64_t half = dims[d] / 2;
        box.start[d] = rest % 3 == 1 ? half : 0;
        box.size[d] = rest % 3 == 0 ? dims[d] : (rest % 3 == 1 ? dims[d] - half : half);
      }
      std::vector<int16_t> shard(box.elements(), -1), back(global.size(), -1);
      copy_box_out(shape, box, reinterpret_cast<const std::byte*>(global.data()),
                   reinterpret_cast<std::byte*>(shard.data()));
      copy_box_in(shape, box, reinterpret_cast<const std::byte*>(shard.data()),
                  reinterpret_cast<std::byte*>(back.data()));
      for (int64_t i = 0; i < shape.elements(); ++i) {
        int64_t offset = 0;
        bool inside = true;
        for (int64_t d = shape.rank() - 1, r = i, scale = 1; d >= 0; --d) {
          const int64_t at = r % dims[d] - box.start[d];
          inside = inside && at >= 0 && at < box.size[d];
          offset += at * scale;
          scale *= box.size[d];
          r /= dims[d];
        }
        if (inside) {
          EXPECT_EQ(shard[offset], global[i]);
        }
        EXPECT_EQ(back[i], inside ? global[i] : -1);
      }
    }
  }
}

}  // namespace
}  // namespace fettle
