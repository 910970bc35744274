// Tests the streamed load: every device gets its box of the stored tensors, each byte is read once, pieces of any size
// give the same arrays, and host memory contains only a few pieces at a time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>

#include "base/arrays/box_copy.h"
#include "checkpoint/load.h"
#include "checkpoint/safetensors_writer.h"
#include "correct/runtime_programs.h"
#include "temp_folder.h"

namespace fettle {
namespace {

constexpr int64_t kLayers = 2;

HostArray some_values(const Dims& dims, int64_t seed) {
  std::vector<float> values(static_cast<size_t>(product(dims)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<int64_t>(i) * 2654435761 + seed) % 65536 - 32768) / 256;
  return HostArray::from({DType::kF32, dims}, values);
}

// A file with a stack of two layers and a single parameter, both of shape `dims`.
class Stored {
 public:
  Stored(const Dims& dims, DType dtype) {
    NamedShapes shapes;
    for (int64_t i = 0; i < kLayers; ++i) shapes.emplace_back(name_of_layer(stacked.hf_name, i), Shape{dtype, dims});
    shapes.emplace_back(alone.hf_name, Shape{dtype, dims});
    stacked.dims = alone.dims = dims;
    SafetensorsWriter writer(folder_ / "x.safetensors", shapes);
    for (size_t i = 0; i < shapes.size(); ++i) {
      values_.push_back(some_values(dims, static_cast<int64_t>(i)).to(dtype));
      writer.write(shapes[i].first, {values_[i].data(), static_cast<size_t>(values_[i].bytes())});
    }
    writer.finish();
    file_.emplace(SafetensorsFile::open(folder_ / "x.safetensors"));
  }

  Param stacked{"layers.{}.w", {}, {}, Role::kLinear, all_layers(kLayers)}, alone{"w", {}, {}, Role::kNorm};

  // Loads the parameter and compares the box of every device.
  void expect_loads(const Param& param, DType dtype, const Dims& mesh, const std::vector<std::vector<int>>& axes) {
    const Shape shape = stacked_shape(param, dtype);
    const Layout layout = Layout::sharded(shape.dims, mesh, axes);
    std::atomic<int64_t> read{0};
    const DeviceBuffer array = load_param(
        eight_devices(), param, dtype, layout,
        [&](const std::string& name) {
          return StoredTensor{&*file_, file_->find(name)};
        },
        [&](int64_t bytes) { read += bytes; });
    HostArray global(shape);
    const int64_t first = param.stacked() ? 0 : kLayers, count = param.stacked() ? kLayers : 1;
    for (int64_t i = 0; i < count; ++i) {
      const HostArray one = values_[static_cast<size_t>(first + i)].to(dtype);
      std::memcpy(global.data() + i * one.bytes(), one.data(), static_cast<size_t>(one.bytes()));
    }
    for (int i = 0; i < layout.count(); ++i) {
      const Box& box = layout.boxes[static_cast<size_t>(i)];
      HostArray wanted({dtype, box.size});
      copy_common(Box::whole(shape.dims), global.data(), box, wanted.data(), byte_size(dtype));
      const HostArray got = array.download_shard(i);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(wanted.bytes())), 0)
          << param.hf_name << ' ' << box.to_string();
    }
    EXPECT_EQ(read, count * values_[0].bytes()) << "each byte is read once, also when several devices need it";
  }

 private:
  TempFolder folder_;
  std::vector<HostArray> values_;
  std::optional<SafetensorsFile> file_;
};

TEST(LoadRow, SplitOverRowsColumnsAndBoth) {
  Stored stored({16, 24}, DType::kF32);
  stored.expect_loads(stored.stacked, DType::kF32, {8}, {{}, {0}, {}});
  stored.expect_loads(stored.stacked, DType::kF32, {8}, {{}, {}, {0}});
  stored.expect_loads(stored.stacked, DType::kF32, {2, 4}, {{}, {1}, {0}});
  stored.expect_loads(stored.stacked, DType::kF32, {2, 4}, {{}, {1}, {}});
  stored.expect_loads(stored.stacked, DType::kF32, {8}, {{}, {}, {}});
  stored.expect_loads(stored.alone, DType::kF32, {2, 4}, {{0, 1}, {}});
  stored.expect_loads(stored.alone, DType::kBF16, {2, 4}, {{0}, {1}});
}

// The arrays are larger than a piece, and not a multiple of the piece size. They are loaded with and without
// conversion.
TEST(LoadRow, SeveralPieces) {
  Stored stored({1500, 1300}, DType::kF32);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    stored.expect_loads(stored.stacked, dtype, {1}, {{}, {}, {}});
    stored.expect_loads(stored.stacked, dtype, {4}, {{}, {}, {0}});
    stored.expect_loads(stored.alone, dtype, {2}, {{0}, {}});
  }
}

TEST(LoadRow, OneDimAndOneLongRow) {
  Stored narrow({40}, DType::kBF16);
  narrow.expect_loads(narrow.stacked, DType::kF32, {8}, {{}, {0}});
  narrow.expect_loads(narrow.alone, DType::kBF16, {8}, {{}});
  Stored wide({2, 1500000}, DType::kF32);
  wide.expect_loads(wide.stacked, DType::kF32, {2}, {{}, {}, {0}});
}

// Returns the bytes of this process's memory that belong neither to files nor to shared memory.
int64_t private_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  throw std::runtime_error("/proc/self/status has no RssAnon");
}

// On the CPU plugin, the device array is also in the memory of this process.
TEST(LoadRow, HoldsFewPiecesInHostMemory) {
  constexpr int64_t kMB = 1'000'000;
  const TempFolder folder;
  Param param{"layers.{}.w", {4096, 8192}, {"", ""}, Role::kLinear, all_layers(kLayers)};
  NamedShapes shapes;
  for (int64_t i = 0; i < kLayers; ++i)
    shapes.emplace_back(name_of_layer(param.hf_name, i), Shape{DType::kBF16, param.dims});
  {
    SafetensorsWriter writer(folder / "x.safetensors", shapes);
    const std::vector<std::byte> zeros(static_cast<size_t>(byte_size(DType::kBF16) * product(param.dims)));
    for (const auto& [name, shape] : shapes) writer.write(name, zeros);
    writer.finish();
  }
  const SafetensorsFile file = SafetensorsFile::open(folder / "x.safetensors");
  const Shape shape = stacked_shape(param, DType::kF32);
  const int64_t bytes = shape.elements() * byte_size(shape.dtype);  // 268 MB
  eight_devices();
  const int64_t before = private_memory();
  std::atomic<int64_t> most{0};
  const DeviceBuffer array = load_param(
      eight_devices(), param, shape.dtype, Layout::sharded(shape.dims, {2}, {{}, {0}, {}}),
      [&](const std::string& name) {
        return StoredTensor{&file, file.find(name)};
      },
      [&](int64_t) {
        const int64_t now = private_memory();
        for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
      });
  const int64_t beside = most - before - bytes;
  std::printf("%lld MB beside the array of %lld MB\n", static_cast<long long>(beside / kMB),
              static_cast<long long>(bytes / kMB));
  EXPECT_GT(most - before, bytes / 2) << "the memory was not measured";
  EXPECT_LT(beside, 80 * kMB) << "a reader has a piece of 4 MB and staging memory, and there are " << kReaders;
}

TEST(FillInPieces, EveryElementOnce) {
  const Shape shape{DType::kI32, {3, 700, 800}};
  const Layout layout = Layout::sharded(shape.dims, {4}, {{}, {0}, {}});
  const DeviceBuffer array = fill_in_pieces(eight_devices(), shape, layout, [&](const Box& box, std::byte* out) {
    auto* values = reinterpret_cast<int32_t*>(out);
    for (int64_t a = 0; a < box.size[0]; ++a)
      for (int64_t b = 0; b < box.size[1]; ++b)
        for (int64_t c = 0; c < box.size[2]; ++c)
          *values++ = static_cast<int32_t>(((box.start[0] + a) * 700 + box.start[1] + b) * 800 + box.start[2] + c);
  });
  const HostArray got = array.download();
  for (int32_t i = 0; i < shape.elements(); ++i) ASSERT_EQ(got.as<int32_t>()[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace fettle
