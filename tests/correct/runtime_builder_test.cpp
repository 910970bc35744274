#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "correct/runtime_programs.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

std::vector<std::byte> some_bytes(int64_t count) {
  std::vector<std::byte> bytes(count);
  for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 13 + i / 255);
  return bytes;
}

class Build : public ::testing::TestWithParam<Staging> {};

TEST_P(Build, PiecesInAnyOrderFromSeveralThreads) {
  // There are four parts; each part is on two devices.
  const Shape shape{DType::kF32, {8, 50}};
  const Layout layout = Layout::sharded(shape.dims, {4, 2}, {{0}, {}});
  BufferBuilder builder(eight_devices(), shape, layout, "", GetParam(), /*staging_limit=*/64);
  ASSERT_EQ(builder.parts(), layout.parts());
  std::vector<std::thread> threads;
  const std::vector<std::byte> bytes = some_bytes(shape.bytes());
  for (int part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      const std::span<const std::byte> all = std::span(bytes).subspan(part * 400, 400);
      builder.write(part, 300, all.subspan(300));
      builder.write(part, 0, all.subspan(0, 7));
      builder.write(part, 7, all.subspan(7, 293));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const DeviceBuffer buffer = builder.finish();
  buffer.wait();
  EXPECT_EQ(std::memcmp(buffer.download().data(), bytes.data(), bytes.size()), 0);
  for (int device = 0; device < 8; ++device) {
    EXPECT_EQ(std::memcmp(buffer.download_shard(device).data(), bytes.data() + device / 2 * 400, 400), 0);
  }
}

TEST_P(Build, ResultsRunAndAreDonated) {
  StepOnHost host;
  const Signature signature = step_signature();
  std::vector<DeviceBuffer> arguments;
  for (const auto& [info, values] :
       {std::pair{&signature.inputs[0], &host.w}, {&signature.inputs[1], &host.x}, {&signature.inputs[2], &host.y}}) {
    BufferBuilder builder(eight_devices(), info->shape, info->layout, "", GetParam(), 1 << 20);
    const int64_t part_bytes = info->shape.bytes() / 8;
    const auto* bytes = reinterpret_cast<const std::byte*>(values->data());
    for (int part = 0; part < 8; ++part) builder.write(part, 0, {bytes + part * part_bytes, size_t(part_bytes)});
    arguments.push_back(builder.finish());
  }
  const Executable step = eight_devices().compile(kStepText, signature, {.num_partitions = 8});
  for (int i = 0; i < 5; ++i) {
    std::vector<DeviceBuffer> out = step.run({&arguments[0], &arguments[1], &arguments[2]});
    EXPECT_TRUE(arguments[0].is_deleted());
    arguments[0] = std::move(out[0]);
    const double wanted = host.step();
    EXPECT_NEAR(out[1].download().as<float>()[0], wanted, 1e-5 * wanted);
  }
}

TEST_P(Build, MissingAndDoubledBytesAreRefused) {
  const Shape shape{DType::kF32, {8}};
  const std::vector<std::byte> bytes = some_bytes(32);
  BufferBuilder short_of(eight_devices(), shape, Layout::replicated({8}, 2), "", GetParam(), 1 << 20);
  short_of.write(0, 0, std::span(bytes).subspan(0, 31));
  EXPECT_THROW(short_of.finish(), InternalError);
  EXPECT_THROW(short_of.write(0, 31, std::span(bytes).subspan(0, 2)), InternalError);
  EXPECT_THROW(short_of.write(1, 0, bytes), InternalError);
  EXPECT_THROW(short_of.write(0, 0, std::span(bytes).subspan(0, 2)), InternalError);
}

TEST_P(Build, NothingIsLeftAfterFinish) {
  const Shape shape{DType::kF32, {8}};
  const std::vector<std::byte> bytes = some_bytes(32);
  BufferBuilder builder(eight_devices(), shape, Layout::replicated({8}, 2), "", GetParam(), 1 << 20);
  builder.write(0, 0, bytes);
  builder.finish();
  EXPECT_THROW(builder.parts(), InternalError);
  EXPECT_THROW(builder.finish(), InternalError);
}

// Two pages that stand for a file on a slow disk. The first read of a page waits until both pages are being read, or
// for five seconds.
class SlowPages {
 public:
  SlowPages() {
    bytes_ = static_cast<std::byte*>(mmap(nullptr, 2 * size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    first_ = bytes_;
    readers_ = 0;
    struct sigaction wait = {};
    wait.sa_sigaction = serve;
    wait.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &wait, &before_);
  }
  ~SlowPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(bytes_, 2 * size());
  }
  SlowPages(const SlowPages&) = delete;
  static size_t size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  std::span<const std::byte> page(size_t number) const { return {bytes_ + number * size(), size()}; }
  static bool read_together() { return readers_ == 2; }

 private:
  static void serve(int, siginfo_t* info, void*) {
    auto* at = static_cast<std::byte*>(info->si_addr);
    if (at < first_ || at >= first_ + 2 * size()) _exit(1);
    ++readers_;
    for (int i = 0; i < 500 && readers_ < 2; ++i) usleep(10'000);
    if (readers_ < 2) readers_ = 100;  // nobody else came
    mprotect(first_ + static_cast<size_t>(at - first_) / size() * size(), size(), PROT_READ);
  }

  static inline std::atomic<std::byte*> first_ = nullptr;
  static inline std::atomic<int> readers_ = 0;
  std::byte* bytes_;
  struct sigaction before_ = {};
};

TEST_P(Build, ThreadsReadFilesAtTheSameTime) {
  const auto page = static_cast<int64_t>(SlowPages::size());
  const Shape shape{DType::kU8, {2 * page}};
  BufferBuilder builder(eight_devices(), shape, Layout::replicated(shape.dims, 2), "", GetParam(), 8 * page);
  const SlowPages pages;
  std::thread other([&] { builder.write(0, 0, pages.page(0)); });
  builder.write(0, page, pages.page(1));
  other.join();
  EXPECT_TRUE(SlowPages::read_together());
  const DeviceBuffer buffer = builder.finish();
  buffer.wait();
}

// The limit holds one piece, so all but one thread wait.
TEST_P(Build, ManyThreadsShareLittleMemory) {
  constexpr int kThreads = 8;
  constexpr int64_t kEach = 200;
  const Shape shape{DType::kU8, {kThreads * kEach}};
  const std::vector<std::byte> bytes = some_bytes(shape.bytes());
  BufferBuilder builder(eight_devices(), shape, Layout::replicated(shape.dims, 2), "", GetParam(), 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { builder.write(0, i * kEach, std::span(bytes).subspan(i * kEach, kEach)); });
  for (std::thread& thread : threads) thread.join();
  const DeviceBuffer buffer = builder.finish();
  buffer.wait();
  EXPECT_EQ(std::memcmp(buffer.download().data(), bytes.data(), bytes.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Staging, Build,
                         ::testing::Values(Staging::kHostMemory, Staging::kTransferManager, Staging::kWholeBox));

// Returns the field `field` of /proc/self/status, such as "VmHWM" or "VmRSS", in bytes.
int64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return -1;
}

void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

// An array of 128 MiB is built on 8 devices, passed three times through a program that donates it, and read shard by
// shard.
TEST(BuilderMemory, NeitherBuildingNorDonatedRunsDoubleTheArray) {
  const Shape shape{DType::kF32, {8, 4 << 20}};
  const Layout layout = rows_over_8(shape.dims);
  const char* text = R"(
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<8x4194304xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>, tf.aliasing_output = 0 : i32})
      -> (tensor<8x4194304xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %one = stablehlo.constant dense<1.0> : tensor<8x4194304xf32>
    %r = stablehlo.add %a, %one : tensor<8x4194304xf32>
    return %r : tensor<8x4194304xf32>
  }
})";
  const ArgInfo info{"a", shape, layout, true};
  const Executable add = eight_devices().compile(text, {{info}, {info}}, {.num_partitions = 8});
  EXPECT_EQ(add.memory_stats().alias, shape.bytes() / 8);
  const int64_t piece = 1 << 18;
  std::vector<float> values(piece / 4);
  reset_peak();
  const int64_t before = status_bytes("VmRSS");
  ASSERT_GT(before, 0);

  BufferBuilder builder(eight_devices(), shape, layout);
  for (int part = 0; part < 8; ++part) {
    for (int64_t offset = 0; offset < shape.bytes() / 8; offset += piece) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = part * 1000 + static_cast<float>((offset / 4 + i) % 997);
      builder.write(part, offset, std::as_bytes(std::span(values)));
    }
  }
  DeviceBuffer array = builder.finish();
  for (int step = 0; step < 3; ++step) array = std::move(add.run({&array})[0]);
  array.wait();
  const int64_t used = status_bytes("VmHWM") - before;
  EXPECT_LT(used, shape.bytes() + shape.bytes() / 4);

  for (int part = 0; part < 8; part += 7) {
    const HostArray shard = array.download_shard(part);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 4 << 20; ++i) wrong += shard.as<float>()[i] != part * 1000 + i % 997 + 3;
    EXPECT_EQ(wrong, 0);
  }
  array.release();
  EXPECT_LT(status_bytes("VmRSS") - before, shape.bytes() / 2) << "the memory is released with the array";
}

TEST(BuilderMemory, ReplicasOnTheCpuShareOneCopy) {
  const Shape shape{DType::kF32, {16 << 20}};
  eight_devices();  // allocates the plugin's own memory before the measurement
  reset_peak();
  const int64_t before = status_bytes("VmRSS");
  const DeviceBuffer array = DeviceBuffer::upload(
      eight_devices(), shape, Layout::replicated(shape.dims, 8),
      [&](const Box&, std::byte* out) { std::memset(out, 1, static_cast<size_t>(shape.bytes())); });
  array.wait();
  EXPECT_LT(status_bytes("VmHWM") - before, shape.bytes() + shape.bytes() / 4);
  EXPECT_EQ(array.download_shard(7).as<uint32_t>()[1234567], 0x01010101u);
}

// Replicas share memory until one of them is donated. The donation must not change the others.
TEST(BuilderMemory, DonatedReplicasDoNotDisturbEachOther) {
  const Shape shape{DType::kF32, {4}};
  const char* text = R"(
module @m { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %r = stablehlo.add %a, %a : tensor<4xf32>
    return %r : tensor<4xf32> } })";
  const Layout both = Layout::replicated({4}, 8);
  const ArgInfo info{"a", shape, both, true};
  const std::string module = std::string(text).replace(std::string(text).find("module @m"), 9,
                                                       "module @m attributes {mhlo.num_partitions = 8 : i32}");
  const Executable twice = eight_devices().compile(module, {{info}, {info}}, {.num_partitions = 8});
  DeviceBuffer a = DeviceBuffer::upload(eight_devices(), f32_array({4}, {1, 2, 3, 4}), both);
  for (int step = 0; step < 4; ++step) a = std::move(twice.run({&a})[0]);
  for (int device = 0; device < 8; ++device) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(a.download_shard(device).as<float>()[i], 16 * (i + 1));
  }
}

}  // namespace
}  // namespace fettle
