#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "plan/target_file.h"
#include "temp_folder.h"

namespace fettle {
namespace {

class TargetFileErrors : public ::testing::Test {
 protected:
  void expect_error(const std::string& text, const std::string& words) {
    const std::filesystem::path file = folder.path() / "mine.yaml";
    std::ofstream(file) << text;
    try {
      read_target(file);
      FAIL() << "no error with \"" << words << "\" for:\n" << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("mine.yaml"), std::string::npos) << error.what();
    }
  }
  TempFolder folder;
};

TEST_F(TargetFileErrors, FilesWithoutADescription) {
  EXPECT_THROW(read_target(folder.path() / "missing.yaml"), UserError);
  EXPECT_THROW(read_target(folder.path()), UserError);
  expect_error("", "wanted keys and values");
  expect_error("- mi300x\n", "wanted keys and values");
  expect_error("like: [\n", "invalid yaml");
}

TEST_F(TargetFileErrors, KeysAndValues) {
  expect_error("like: mi300x\nmemory_gibb: 3\n",
               "mine.yaml:2: 'memory_gibb' is not a key of a target; did you mean memory_gib?");
  expect_error("like: mi300x\nmemory_gib: much\n", "mine.yaml:2: memory_gib is 'much', wanted a number");
  expect_error("like: mi300x\nmemory_gib: -1\n", "wanted a number from 0.1");
  expect_error("like: mi300x\nmemory_gib: .nan\n", "wanted a number from 0.1");
  expect_error("like: mi300x\nmemory_gib: [1]\n", "'a list or a map'");
  expect_error("like: mi300x\nlink_peers: 1.5\n", "wanted a whole number");
  expect_error("like: mi300x\ntitle: 'a \"b\"'\n", "wanted text like My GPU");
  expect_error("like: mi300x\nchip: {cores: 0}\n", "mine.yaml:2: cores is '0'");
  expect_error("like: mi300x\nchip: {core: 1}\n", "'core' is not a key of a target");
  expect_error("like: mi300x\nchip: 304\n", "chip is not a map");
  expect_error("like: mi300x\nchip: {capability: '9'}\n", "capability is '9', wanted text like 9.0 or gfx942");
  expect_error("like: mi300x\nchip: {cores: 3}\nconfig: text\n", "remove one of them");
  expect_error("like: mi301x\n", "did you mean mi300x?");
  expect_error("like: [mi300x]\n", "is not known");
  expect_error("like: mi300x\nplugin: cpu\n", "mine.yaml:2: plugin is 'cpu', wanted a plugin that can compile");
}

TEST_F(TargetFileErrors, WithoutLikeAllKeysAreRequired) {
  expect_error("name: mine\n", "mine.yaml:1: plugin is missing; add it, or set `like: mi300x`");
  const std::string figures =
      "plugin: cuda\nmemory_gib: 8\nbf16_tflops: 10\nf32_tflops: 5\nmemory_gb_per_s: 100\nlink_gb_per_s: 8\n"
      "network_gb_per_s: 1\n";
  expect_error(figures, "chip and config are both missing");
  expect_error(figures + "chip:\n  cores: 3\n", "capability is missing");
}

TEST_F(TargetFileErrors, UnknownNamesGetSuggestions) {
  try {
    find_target("h1000");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean h100?"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("gb300"), std::string::npos) << "all targets are listed";
  }
}

}  // namespace
}  // namespace fettle
