// Tests scripts/check_plugin_libraries, which lists the libraries that a plugin loads, and says which of them are
// missing on this machine. Also tests what `make test` downloads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <set>

#include "gpu_plugin.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Printed {
  int code;
  std::string text;
};

// Runs a shell command in the checkout. Returns its exit code and its output, which includes standard error.
Printed run_shell(const std::string& command) {
  FILE* pipe = popen(("cd " + source_folder().string() + " && { " + command + "; } 2>&1").c_str(), "r");
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
  return {WEXITSTATUS(pclose(pipe)), text};
}

// Makes a plugin that is linked to a fake library of ROCm. The plugin's RUNPATH leads to the library.
TEST(PluginLibraries, AMissingLibraryIsNamed) {
  const TempFolder folder;
  const std::string here = folder.path().string(), cache = "FETTLE_CACHE=" + here + " ";
  const Printed made =
      run_shell("cd " + here +
                " && mkdir -p plugins/rocm plugins/lib && echo 'int hip(void) { return 1; }' > hip.c"
                " && gcc -shared -fPIC -Wl,-soname,libmadehip.so.7 hip.c -o plugins/lib/libmadehip.so.7"
                " && echo 'int hip(void); int user(void) { return hip(); }' > user.c"
                " && gcc -shared -fPIC user.c plugins/lib/libmadehip.so.7 -Wl,-rpath,'$ORIGIN/../lib'"
                " -o plugins/rocm/xla_rocm_plugin.so");
  ASSERT_EQ(made.code, 0) << made.text;
  const Printed whole = run_shell(cache + "scripts/check_plugin_libraries rocm");
  EXPECT_EQ(whole.code, 0) << whole.text;
  EXPECT_THAT(whole.text, HasSubstr("ok      libmadehip.so.7"));
  std::filesystem::remove(folder.path() / "plugins/lib/libmadehip.so.7");
  const Printed lacking = run_shell(cache + "scripts/check_plugin_libraries");
  EXPECT_EQ(lacking.code, 1);
  EXPECT_THAT(lacking.text, HasSubstr("missing libmadehip.so.7"));
  EXPECT_THAT(lacking.text, HasSubstr("docs/gpus.md"));
}

TEST(PluginLibraries, WithoutAPluginThereIsNothingToCheck) {
  const TempFolder folder;
  const Printed run = run_shell("FETTLE_CACHE=" + folder.path().string() + " scripts/check_plugin_libraries");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.text, HasSubstr("make plugins"));
}

// scripts/plugins.txt lists wheels with exactly these libraries. A plugin that opens other libraries needs other
// wheels.
TEST(PluginLibraries, NvidiasPluginOpensExactlyTheseLibraries) {
  require_gpu_plugin("cuda");
  if (IsSkipped() || HasFatalFailure()) return;
  const std::string cache = Plugin::find("cuda").parent_path().parent_path().parent_path().string();
  const Printed run = run_shell("FETTLE_CACHE=" + cache + " scripts/check_plugin_libraries cuda");
  std::set<std::string> opened;
  std::istringstream lines(run.text);
  for (std::string line, status, name, detail; std::getline(lines, line);) {
    std::istringstream words(line);
    words >> status >> name >> detail;
    const bool by_plugin =
        !detail.starts_with(cache + "/plugins/nvidia/");  // false: opened by a library of that folder
    if ((status == "ok" || status == "missing") && by_plugin) opened.insert(name);
  }
  EXPECT_EQ(opened, (std::set<std::string>{"libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13", "libcudnn.so.9",
                                           "libcufft.so.12", "libcupti.so.13", "libnccl.so.2", "libnvJitLink.so.13",
                                           "libnvrtc.so.13"}))
      << run.text;
}

TEST(PluginLibraries, TestsFetchNoLibrariesOfGpus) {
  const Printed test = run_shell("make -n test"), plugins = run_shell("make -n plugins GPU=nvidia");
  EXPECT_THAT(test.text, HasSubstr("scripts/plugins.sh cuda rocm\n"));
  EXPECT_THAT(plugins.text, HasSubstr("GPU=nvidia scripts/plugins.sh\n"));
}

TEST(PluginLibraries, AnUnknownGpuIsRefused) {
  const TempFolder folder;
  const Printed run = run_shell("GPU=intel FETTLE_CACHE=" + folder.path().string() + " scripts/plugins.sh");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.text, HasSubstr("GPU=intel: wanted nvidia"));
  EXPECT_THAT(run.text, Not(HasSubstr("fetching")));
}

}  // namespace
}  // namespace fettle
