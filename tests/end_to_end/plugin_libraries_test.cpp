// Tests scripts/check_plugin_libraries, which lists the libraries that a plugin loads, and says which of them are
// missing on this machine. Also tests what `make test` downloads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "end_to_end/run_shell.h"
#include "gpu_plugin.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;

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

// If everything is installed, the scripts write nothing. Here, they could not even lock the cache.
TEST(PluginLibraries, ACompleteCacheMayBeReadOnly) {
  const TempFolder folder;
  const std::string cache = "export FETTLE_CACHE=" + folder.path().string() + "; ";
  std::filesystem::create_directories(folder / "lock");
  for (const char* item : {"cuda", "rocm"}) std::filesystem::create_directories(folder / "plugins" / item);
  const Printed before = run_shell(cache + "scripts/setup.sh");
  EXPECT_THAT(before.text, HasSubstr("/lock: "));
  const Printed ready =
      run_shell(cache + in_script("scripts/setup.sh", "missing=", "touch \"$(archives_stamp)\"") + " && " +
                in_script("scripts/plugins.sh", "complete=", "touch \"$(stamp_of cuda)\" \"$(stamp_of rocm)\""));
  EXPECT_EQ(ready.code, 0) << ready.text;
  for (const char* script : {"scripts/setup.sh", "scripts/plugins.sh cuda rocm"}) {
    const Printed run = run_shell(cache + script);
    EXPECT_EQ(run.code, 0) << run.text;
    EXPECT_THAT(run.text, Not(HasSubstr("lock")));
  }
}

// What is installed stays valid if the script changes elsewhere.
TEST(PluginLibraries, OnlyNewWheelsAreFetched) {
  const auto stamps = [](const std::string& edit) {
    const TempFolder folder;
    return run_shell("cp -r scripts " + folder.path().string() + " && cd " + folder.path().string() + " && " + edit +
                     " && export FETTLE_CACHE=/cache && " +
                     in_script("scripts/plugins.sh", "complete=", "stamp_of cuda; stamp_of rocm"))
        .text;
  };
  const std::string now = stamps("true");
  EXPECT_THAT(now, testing::MatchesRegex("/cache/plugins/cuda/ready-[0-9a-f]*\n/cache/plugins/rocm/ready-[0-9a-f]*\n"));
  EXPECT_EQ(stamps("sed -i '2i # A comment' scripts/plugins.sh scripts/plugins.txt"), now);
  EXPECT_EQ(stamps("sed -i 's/^nvidia-cudnn-cu13==9/nvidia-cudnn-cu13==8/' scripts/plugins.txt"), now);
  const std::string other = stamps("sed -i 's/^jax-rocm7-pjrt==0/jax-rocm7-pjrt==1/' scripts/plugins.txt");
  EXPECT_NE(other, now);
  EXPECT_EQ(other.substr(0, other.find('\n')), now.substr(0, now.find('\n'))) << "cuda stays as it is";
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
