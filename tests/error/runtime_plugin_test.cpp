#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "environment.h"
#include "runtime/client.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/topology.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the text of the DeviceError (exit code 4) that the action throws. The test fails if it throws none.
template <typename Action>
std::string device_error(const Action& action) {
  try {
    action();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kDevice);
    return error.what();
  }
  ADD_FAILURE() << "no DeviceError";
  return "";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class PluginError : public ::testing::Test {
 protected:
  PluginError() : folder(fs::temp_directory_path() / ("fettle_plugin_test_" + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~PluginError() override { fs::remove_all(folder); }
  const fs::path folder;
};

TEST_F(PluginError, MissingFileNamesThePathAndTheRemedy) {
  const fs::path path = folder / "xla_cuda_plugin.so";
  const std::string text = device_error([&] { Plugin::load(path.string()); });
  expect_contains(text, path.string());
  expect_contains(text, "make plugins");
}

TEST_F(PluginError, UnknownNameListsTheSearchedPlaces) {
  setenv("FETTLE_PLUGIN_PATH", folder.c_str(), 1);
  const std::string text = device_error([] { Plugin::load("abacus"); });
  unsetenv("FETTLE_PLUGIN_PATH");
  expect_contains(text, "\"abacus\"");
  expect_contains(text, folder.string());
  EXPECT_TRUE(Plugin::find("abacus").empty());
}

TEST_F(PluginError, NoPluginIsLoadedFromTheWorkingDirectory) {
  const Environment cache("FETTLE_CACHE", std::nullopt), home("HOME", std::nullopt);
  const fs::path place = folder / ".cache/fettle/plugins/abacus";
  fs::create_directories(place);
  fs::copy_file(FETTLE_OLD_PLUGIN, place / "plugin.so");
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_TRUE(Plugin::find("abacus").empty());
  const std::string text = device_error([] { Plugin::load("abacus"); });
  fs::current_path(before);
  expect_contains(text, "there is no cache to look in: neither FETTLE_CACHE nor HOME is set");
}

TEST_F(PluginError, CachedPluginsThatOthersMayWriteAreNotLoaded) {
  const Environment cache("FETTLE_CACHE", folder.string());
  const fs::path place = folder / "plugins/abacus", plugin = place / "plugin.so";
  fs::create_directories(place);
  fs::copy_file(FETTLE_OLD_PLUGIN, plugin);
  fs::permissions(plugin, fs::perms::owner_all);
  fs::permissions(place, fs::perms::owner_all);
  expect_contains(device_error([] { Plugin::load("abacus"); }), "speaks PJRT API");  // the plugin's library was loaded
  const auto refused = [&](const fs::path& path) {
    const std::string text = device_error([] { Plugin::load("abacus"); });
    expect_contains(text, "Fettle does not load " + plugin.string() + ": " + path.string());
    expect_contains(text, "chmod go-w " + path.string());
  };
  fs::permissions(plugin, fs::perms::group_write, fs::perm_options::add);
  refused(plugin);
  fs::permissions(plugin, fs::perms::owner_all);
  fs::permissions(place, fs::perms::others_write, fs::perm_options::add);
  refused(place);
  fs::permissions(place, fs::perms::owner_all);
  std::ofstream(place / "libhelper.so").close();  // files that are installed with a plugin may be loaded, too
  fs::permissions(place / "libhelper.so", fs::perms::all);
  expect_contains(device_error([] { Plugin::load("abacus"); }),
                  "Fettle does not load " + (place / "libhelper.so").string());
}

// `make plugins` puts the libraries into `nvidia` beside the plugin's folder. pip puts the plugin one folder deeper.
TEST_F(PluginError, CachedLibrariesThatOthersMayWriteAreNotLoaded) {
  const Environment cache("FETTLE_CACHE", folder.string()), path("FETTLE_PLUGIN_PATH", std::nullopt);
  const fs::path plugins = folder / "plugins", library = plugins / "nvidia/cu13/lib/libcublas.so.13";
  fs::create_directories(library.parent_path());
  std::ofstream(library).close();
  for (const char* name : {"cuda", "jax_plugins/xla_cuda13"}) {
    const fs::path place = plugins / name;
    fs::create_directories(place);
    fs::copy_file(FETTLE_OLD_PLUGIN, place / "xla_cuda_plugin.so");
    for (const fs::path& each : {place, place / "xla_cuda_plugin.so", library.parent_path(), library})
      fs::permissions(each, fs::perms::owner_all);
    expect_contains(device_error([] { Plugin::load("cuda"); }), "speaks PJRT API");
    fs::permissions(library, fs::perms::others_write, fs::perm_options::add);
    expect_contains(device_error([] { Plugin::load("cuda"); }), "Fettle does not load " + library.string());
    fs::remove_all(place);
  }
}

TEST_F(PluginError, TextFile) {
  const fs::path path = folder / "plugin.so";
  std::ofstream(path) << "this is not a plugin\n";
  expect_contains(device_error([&] { Plugin::load(path.string()); }), "not a shared object");
}

TEST_F(PluginError, EmptyFileAndFolder) {
  const fs::path path = folder / "empty.so";
  std::ofstream(path).close();
  expect_contains(device_error([&] { Plugin::load(path.string()); }), "not a shared object");
  expect_contains(device_error([&] { Plugin::load(folder.string()); }), "folder");
}

TEST_F(PluginError, TruncatedPlugin) {
  const fs::path path = folder / "cut_cpu_plugin.so";
  fs::copy_file(Plugin::find("cpu"), path);
  for (int size : {100000, 70, 20}) {
    fs::resize_file(path, size);
    expect_contains(device_error([&] { Plugin::load(path.string()); }), "cut off");
  }
}

// Loads libc, a shared object that every Linux system has.
TEST_F(PluginError, SharedObjectThatIsNotAPlugin) {
  std::ifstream maps("/proc/self/maps");
  std::string libc;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libc.so") != std::string::npos) libc = line.substr(line.find('/'));
  }
  ASSERT_FALSE(libc.empty());
  expect_contains(device_error([&] { Plugin::load(libc); }), "GetPjrtApi");
}

TEST_F(PluginError, PluginOlderThanTheApi) {
  const std::string text = device_error([] { Plugin::load(FETTLE_OLD_PLUGIN); });
  expect_contains(text, "PJRT API 0.40");
  expect_contains(text, "0.81");
}

TEST_F(PluginError, PluginPathIsSearchedBeforeTheCache) {
  fs::create_directories(folder / "cpu");
  std::ofstream(folder / "cpu" / "first_plugin.so") << "x";
  setenv("FETTLE_PLUGIN_PATH", ("/nonexistent:" + folder.string()).c_str(), 1);
  EXPECT_EQ(Plugin::find("cpu"), folder / "cpu" / "first_plugin.so");
  unsetenv("FETTLE_PLUGIN_PATH");
}

TEST_F(PluginError, TheCpuPluginDoesNotCompileAheadOfTime) {
  const std::string text =
      device_error([] { Topology::create(Plugin::load("cpu"), "platform_name: \"CUDA\"", "1x1x8"); });
  for (const std::string_view vendor : vendors_with_targets()) expect_contains(text, std::string(vendor));
}

}  // namespace
}  // namespace fettle
