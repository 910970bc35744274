// Tests that an installed program finds the plugins that pip installed under the same prefix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Copies the program to PREFIX/lib/fettle/fettle, where a wheel installs it. Returns what it prints for the devices of
// `plugin`.
std::string devices_of(const fs::path& prefix, const std::string& plugin) {
  fs::create_directories(prefix / "lib/fettle");
  const fs::path program = prefix / "lib/fettle/fettle";
  if (!fs::exists(program)) fs::copy_file(program_file(), program);
  FILE* pipe = popen((program.string() + " devices plugin=" + plugin + " 2>&1").c_str(), "r");
  std::string said;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) said += static_cast<char>(c);
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 4);
  return said;
}

TEST(InstalledProgram, FindsTheVendorsWheels) {
  const TempFolder folder;
  const Environment cache("FETTLE_CACHE", (folder.path() / "cache").string());
  const fs::path packages = folder.path() / "lib/python3.11/site-packages";
  for (const char* version : {"12", "13"}) {
    const fs::path place = packages / ("jax_plugins/xla_abacus" + std::string(version));
    fs::create_directories(place);
    write_text(place / "xla_abacus_plugin.so", "beads");
  }
  write_text(packages / "abacus.so", "a module of Python");
  EXPECT_THAT(
      devices_of(folder.path(), "abacus"),
      HasSubstr((packages / "jax_plugins/xla_abacus13/xla_abacus_plugin.so").string() + ": not a shared object"));
  fs::remove_all(packages / "jax_plugins");
  EXPECT_THAT(devices_of(folder.path(), "abacus"), HasSubstr("no PJRT plugin \"abacus\" found in"));
}

TEST(InstalledProgram, AFolderOfPluginsMayBeOneThatPipInstalledInto) {
  const TempFolder folder;
  const fs::path place = folder.path() / "vendors/jax_plugins/xla_abacus7";
  fs::create_directories(place);
  write_text(place / "xla_abacus_plugin.so", "beads");
  const Environment path("FETTLE_PLUGIN_PATH", (folder.path() / "vendors").string());
  EXPECT_THAT(devices_of(folder.path(), "abacus"), HasSubstr(place.string()));
}

// If the libraries of ROCm's wheel are missing, the doctor names the package that has them.
TEST(InstalledProgram, TheDoctorNamesRocmsPackage) {
  const TempFolder folder;
  const fs::path place = folder.path() / "jax_plugins/xla_rocm7";
  fs::create_directories(place);
  const std::string plugin = (place / "xla_rocm_plugin.so").string();
  ASSERT_EQ(std::system(("cd " + folder.path().string() +
                         " && echo 'int hip(void) { return 1; }' > hip.c && gcc -shared -fPIC hip.c"
                         " -Wl,-soname,libmadehip.so.7 -o libmadehip.so && echo 'int hip(void); int f(void) { return "
                         "hip(); }' > f.c && gcc -shared -fPIC f.c libmadehip.so -o " +
                         plugin)
                            .c_str()),
            0);
  const Environment path("FETTLE_PLUGIN_PATH", folder.path().string());
  const Outcome run = run_fettle(folder, {"doctor", "plugin=rocm"});
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.out, HasSubstr("libmadehip.so.7 is missing"));
  EXPECT_THAT(run.out, HasSubstr("amdrocm-core-sdk7.14-gfx942"));
}

}  // namespace
}  // namespace fettle
