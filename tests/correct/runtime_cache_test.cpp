#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "correct/runtime_programs.h"
#include "environment.h"
#include "runtime/compile_cache.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  Cache() : folder(fs::temp_directory_path() / ("fettle_cache_test_" + std::to_string(getpid()))) {
    fs::remove_all(folder);
  }
  ~Cache() override { fs::remove_all(folder); }

  void expect_right_step(const Executable& step) {
    StepOnHost host;
    DeviceBuffer w = DeviceBuffer::upload(eight_devices(), f32_array({16, 8}, host.w), rows_over_8({16, 8}));
    DeviceBuffer x = DeviceBuffer::upload(eight_devices(), f32_array({32, 16}, host.x), rows_over_8({32, 16}));
    DeviceBuffer y = DeviceBuffer::upload(eight_devices(), f32_array({32, 8}, host.y), rows_over_8({32, 8}));
    const std::vector<DeviceBuffer> out = step.run({&w, &x, &y});
    const double wanted = host.step();
    EXPECT_NEAR(out[1].download().as<float>()[0], wanted, 1e-5 * wanted);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
    return found;
  }

  const fs::path folder;
  const CompileOptions options = {.num_partitions = 8};
};

TEST_F(Cache, SecondCompileLoadsTheProgram) {
  CompileCache first(folder);
  const Executable compiled = first.compile(eight_devices(), kStepText, step_signature(), options);
  expect_right_step(compiled);
  EXPECT_EQ(first.hits(), 0);
  EXPECT_EQ(files(), std::vector<fs::path>{first.file_of(eight_devices(), kStepText, options)});
  CompileCache second(folder);
  const Executable loaded = second.compile(eight_devices(), kStepText, step_signature(), options);
  expect_right_step(loaded);
  EXPECT_EQ(loaded.memory_stats().peak, compiled.memory_stats().peak);
  EXPECT_EQ(loaded.memory_stats().reported_peak, compiled.memory_stats().reported_peak);
  EXPECT_EQ(second.hits(), 1);
}

TEST_F(Cache, TextOptionsAndFlagsAreInTheKey) {
  const CompileCache cache(folder);
  const Client& client = eight_devices();
  const fs::path plain = cache.file_of(client, kStepText, options);
  EXPECT_EQ(cache.file_of(client, kStepText, options), plain);
  EXPECT_NE(cache.file_of(client, kStepText + " ", options), plain);
  EXPECT_NE(cache.file_of(client, kStepText, {.num_partitions = 4}), plain);
  EXPECT_NE(cache.file_of(client, kStepText, {.num_partitions = 8, .devices = {1, 0, 2, 3, 4, 5, 6, 7}}), plain);
  EXPECT_NE(cache.file_of(client, kStepText, {.num_partitions = 8, .env = {{"xla_cpu_enable_fast_math", true}}}),
            plain);
  const std::string flags = std::getenv("XLA_FLAGS");
  setenv("XLA_FLAGS", (flags + " --xla_cpu_enable_fast_math=false").c_str(), 1);
  EXPECT_NE(cache.file_of(client, kStepText, options), plain);
  setenv("XLA_FLAGS", flags.c_str(), 1);
  EXPECT_EQ(cache.file_of(client, kStepText, options), plain);
  const Environment threads("PJRT_NPROC", "77");
  EXPECT_NE(cache.file_of(client, kStepText, options), plain);
}

TEST_F(Cache, DamagedFilesAreCompiledAgainAndReplaced) {
  CompileCache cache(folder);
  cache.compile(eight_devices(), kStepText, step_signature(), options);
  const fs::path file = files().at(0);
  const auto damage = [&](int kind) {
    const auto size = fs::file_size(file);
    if (kind == 0) fs::resize_file(file, size / 2);
    if (kind == 1) fs::resize_file(file, 3);
    if (kind == 2) std::ofstream(file, std::ios::in | std::ios::binary).seekp(size - 100) << "????";
    if (kind == 3) std::ofstream(file, std::ios::trunc) << "not a program";
    if (kind == 4) std::ofstream(file, std::ios::app) << "more";
  };
  for (int kind = 0; kind < 5; ++kind) {
    damage(kind);
    CompileCache again(folder);
    expect_right_step(again.compile(eight_devices(), kStepText, step_signature(), options));
    EXPECT_EQ(again.hits(), 0) << kind;
    CompileCache whole(folder);
    whole.compile(eight_devices(), kStepText, step_signature(), options);
    EXPECT_EQ(whole.hits(), 1) << kind;
  }
  EXPECT_EQ(files().size(), 1u) << "no partial files are left";
}

TEST_F(Cache, WithoutAWritableFolderProgramsAreCompiledEachTime) {
  std::ofstream(folder) << "a file where the folder should be";
  CompileCache cache(folder / "programs");
  expect_right_step(cache.compile(eight_devices(), kStepText, step_signature(), options));
  EXPECT_EQ(cache.hits(), 0);
}

TEST_F(Cache, TheLeastRecentlyUsedProgramsAreDeleted) {
  const std::string text(kStepText);
  const auto compile = [&](CompileCache& cache, int spaces) {
    cache.compile(eight_devices(), text + std::string(static_cast<size_t>(spaces), ' '), step_signature(), options);
  };
  const auto file_of = [&](int spaces) {
    return CompileCache(folder).file_of(eight_devices(), text + std::string(static_cast<size_t>(spaces), ' '), options);
  };
  CompileCache unlimited(folder);
  for (int i = 0; i < 3; ++i) compile(unlimited, i);
  ASSERT_EQ(files().size(), 3u);
  const auto bytes = static_cast<int64_t>(fs::file_size(file_of(0)));
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i) fs::last_write_time(file_of(i), now - std::chrono::hours(9 - i));
  std::ofstream(folder / "left_behind.partial") << "by a stopped process";
  fs::last_write_time(folder / "left_behind.partial", now - std::chrono::hours(25));
  std::ofstream(folder / "notes.txt") << "not the cache's";

  CompileCache limited(folder, bytes * 7 / 2);  // three programs fit
  compile(limited, 0);                          // uses program 0, so program 1 is now the least recently used
  EXPECT_EQ(limited.hits(), 1);
  compile(limited, 3);
  EXPECT_TRUE(fs::exists(file_of(0)));
  EXPECT_FALSE(fs::exists(file_of(1)));
  EXPECT_TRUE(fs::exists(file_of(2)));
  EXPECT_TRUE(fs::exists(file_of(3)));
  EXPECT_FALSE(fs::exists(folder / "left_behind.partial"));
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));

  CompileCache tiny(folder, 1);
  compile(tiny, 4);
  EXPECT_TRUE(fs::exists(file_of(4))) << "the program in use stays";
  EXPECT_EQ(files().size(), 2u) << "the program and notes.txt";
}

TEST_F(Cache, TheLimitIsTenGigabytesOrTheEnvironments) {
  const auto limit = [](const std::optional<std::string>& text) {
    const Environment variable("FETTLE_COMPILE_CACHE_GB", text);
    return CompileCache::default_limit();
  };
  EXPECT_EQ(limit(std::nullopt), 10'000'000'000);
  EXPECT_EQ(limit("2.5"), 2'500'000'000);
  EXPECT_EQ(limit("0"), std::numeric_limits<int64_t>::max());
  for (const char* bad : {"many", "-1", "10GB", "nan"}) {
    try {
      limit(bad);
      ADD_FAILURE() << bad;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("FETTLE_COMPILE_CACHE_GB is '" + std::string(bad) + "', wanted"), 0u);
    }
  }
}

TEST_F(Cache, ProgramsThatOthersMayWriteAreNotLoaded) {
  CompileCache first(folder);
  first.compile(eight_devices(), kStepText, step_signature(), options);
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all) << "the folder was made for this user alone";
  const fs::path file = files().at(0);
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  CompileCache second(folder);
  testing::internal::CaptureStderr();
  expect_right_step(second.compile(eight_devices(), kStepText, step_signature(), options));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(second.hits(), 0);
  EXPECT_NE(said.find("the stored program is not used: " + file.string() + " can be written by other users"),
            std::string::npos)
      << said;
  CompileCache third(folder);
  third.compile(eight_devices(), kStepText, step_signature(), options);
  EXPECT_EQ(third.hits(), 1) << "the program was compiled again and replaced";
  fs::permissions(folder, fs::perms::others_write, fs::perm_options::add);
  CompileCache fourth(folder);
  fourth.compile(eight_devices(), kStepText, step_signature(), options);
  EXPECT_EQ(fourth.hits(), 0) << "another user could replace files in this folder";
}

}  // namespace
}  // namespace fettle
