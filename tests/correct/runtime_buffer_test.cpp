#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "correct/runtime_programs.h"
#include "runtime/buffer.h"

namespace fettle {
namespace {

// Returns an array of different bytes, so that a misplaced element is noticed.
HostArray counting(const Shape& shape) {
  HostArray array(shape);
  for (int64_t i = 0; i < array.bytes(); ++i) array.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  if (shape.dtype == DType::kPred) {
    for (int64_t i = 0; i < array.bytes(); ++i) array.data()[i] = static_cast<std::byte>(i % 3 == 0);
  }
  return array;
}

void expect_same_bytes(const HostArray& a, const HostArray& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << a.shape().to_string();
}

TEST(DeviceBuffer, EveryDtypeAndLayoutComesBackUnchanged) {
  const Dims dims = {8, 4, 6};
  const std::vector<Layout> layouts = {
      Layout::replicated(dims, 8),
      Layout::sharded(dims, {8}, {{0}, {}, {}}),
      Layout::sharded(dims, {2, 4}, {{}, {1}, {0}}),
      Layout::sharded(dims, {4, 2}, {{1}, {}, {}}),
      {{Box{{0, 0, 0}, {4, 4, 6}}, Box{{4, 0, 0}, {4, 4, 6}}}, {6, 1}},
      {{Box{{0, 0, 0}, {8, 4, 6}}}, {3}},
  };
  for (DType dtype : {DType::kPred, DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32,
                      DType::kI64, DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const HostArray array = counting({dtype, dims});
    for (const Layout& layout : layouts) {
      expect_same_bytes(DeviceBuffer::upload(eight_devices(), array, layout).download(), array);
    }
  }
}

TEST(DeviceBuffer, ScalarsAndEmptyArrays) {
  const HostArray scalar = f32_array({}, {2.5f});
  expect_same_bytes(DeviceBuffer::upload(eight_devices(), scalar, Layout::replicated({}, 8)).download(), scalar);
  const HostArray nothing(Shape{DType::kF32, {0, 4}});
  EXPECT_EQ(DeviceBuffer::upload(eight_devices(), nothing, Layout::replicated({0, 4}, 2)).download().bytes(), 0);
}

TEST(DeviceBuffer, ShardsAreTheBoxes) {
  const HostArray array = counting({DType::kI32, {16, 2}});
  const DeviceBuffer buffer = DeviceBuffer::upload(eight_devices(), array, rows_over_8({16, 2}));
  for (int i = 0; i < 8; ++i) {
    const HostArray shard = buffer.download_shard(i);
    EXPECT_EQ(shard.shape(), (Shape{DType::kI32, {2, 2}}));
    EXPECT_EQ(std::memcmp(shard.data(), array.data() + i * 16, 16), 0);
  }
}

TEST(DeviceBuffer, FillIsCalledOnceForEachDistinctBox) {
  const Layout layout = Layout::sharded({8}, {2, 4}, {{1}});
  std::vector<Box> asked;
  const DeviceBuffer buffer =
      DeviceBuffer::upload(eight_devices(), Shape{DType::kI32, {8}}, layout, [&](const Box& box, std::byte* out) {
        asked.push_back(box);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(out) % 64, 0u);
        const int32_t values[] = {static_cast<int32_t>(box.start[0]), static_cast<int32_t>(box.start[0] + 1)};
        std::memcpy(out, values, sizeof values);
      });
  EXPECT_EQ(asked, layout.parts());
  const HostArray back = buffer.download();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(back.as<int32_t>()[i], i);
  EXPECT_EQ(buffer.download_shard(6).as<int32_t>()[0], 4);
}

TEST(DeviceBuffer, UploadDoesNotKeepTheCallersArray) {
  HostArray array = counting({DType::kF32, {8, 1024}});
  const HostArray copy = array.clone();
  const DeviceBuffer split = DeviceBuffer::upload(eight_devices(), array, rows_over_8({8, 1024}));
  const DeviceBuffer whole = DeviceBuffer::upload(eight_devices(), array, Layout::replicated({8, 1024}, 8));
  std::memset(array.data(), 0xee, array.bytes());
  expect_same_bytes(split.download(), copy);
  expect_same_bytes(whole.download(), copy);
}

TEST(DeviceBuffer, ZerosAreZero) {
  const HostArray zeros =
      DeviceBuffer::zeros(eight_devices(), {DType::kBF16, {16, 3}}, rows_over_8({16, 3})).download();
  for (uint16_t value : zeros.as<uint16_t>()) EXPECT_EQ(value, 0);
}

TEST(DeviceBuffer, PinnedHostMemoryStoresBytes) {
  const HostArray array = counting({DType::kF32, {16, 8}});
  const DeviceBuffer buffer = DeviceBuffer::upload(eight_devices(), array, rows_over_8({16, 8}), "pinned_host");
  EXPECT_EQ(buffer.memory_kind(), "pinned_host");
  expect_same_bytes(buffer.download(), array);
}

TEST(DeviceBuffer, MovesAndReleases) {
  const HostArray array = counting({DType::kF32, {8}});
  DeviceBuffer a = DeviceBuffer::upload(eight_devices(), array, rows_over_8({8}));
  EXPECT_FALSE(a.is_deleted());
  DeviceBuffer b = std::move(a);
  EXPECT_TRUE(a.is_deleted());
  expect_same_bytes(b.download(), array);
  b.release();
  EXPECT_TRUE(b.is_deleted());
  EXPECT_THROW(b.download(), InternalError);
  EXPECT_TRUE(DeviceBuffer().is_deleted());
}

TEST(DeviceBuffer, OutlivesItsClient) {
  const HostArray array = counting({DType::kF32, {4}});
  DeviceBuffer buffer;
  {
    const Client client(Plugin::load("cpu"), {.device_count = 2});
    buffer = DeviceBuffer::upload(client, array, Layout::replicated({4}, 2));
  }
  expect_same_bytes(buffer.download(), array);
}

}  // namespace
}  // namespace fettle
