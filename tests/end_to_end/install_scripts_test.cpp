// Tests the scripts that set up, install and pack the program: what they refuse, what they keep, and folders with
// unusual names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "end_to_end/run_shell.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class InstallScripts : public testing::Test {
 protected:
  InstallScripts() { fs::create_directories(cache); }

  // Makes a program that the scripts find before the system's.
  void replace_program(const std::string& name, const std::string& script) {
    write_text(folder / "bin" / name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(folder / "bin" / name, fs::perms::owner_all);
  }
  // Runs a command of bash in the checkout, with the cache and the programs of this test.
  Printed run(const std::string& command) const {
    write_text(folder / "command",
               "export PATH=" + (folder / "bin").string() + ":$PATH FETTLE_CACHE=" + cache.string() + "\n" + command);
    return run_shell("bash " + (folder / "command").string());
  }

  const TempFolder folder_;
  const fs::path folder = folder_.path(), cache = folder / "cache";
};

TEST_F(InstallScripts, OtherProcessorsAreRefusedFirst) {
  replace_program("uname", "echo aarch64");
  replace_program("dpkg-query", "exit 0");
  for (const char* program : {"apt-get", "sudo"}) replace_program(program, "echo used >" + (folder / "used").string());
  const Printed said = run("scripts/setup.sh");
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.text, "setup: Fettle runs on x86_64 only, this is aarch64\n");
  EXPECT_FALSE(fs::exists(folder / "used"));
}

TEST_F(InstallScripts, ARelativeCacheIsRefused) {
  for (const char* script : {"scripts/setup.sh", "scripts/plugins.sh cuda"}) {
    const Printed said = run(std::string("FETTLE_CACHE=some/cache ") + script);
    EXPECT_EQ(said.code, 1);
    EXPECT_THAT(said.text, HasSubstr("the cache is 'some/cache', wanted an absolute path"));
  }
  EXPECT_FALSE(fs::exists(source_folder() / "some"));
}

TEST_F(InstallScripts, WithoutSudoTheCommandIsPrinted) {
  replace_program("id", "echo 1000");
  replace_program("dpkg-query", "exit 0");
  replace_program("apt-get", "echo \"$@\" >>" + (folder / "used").string());
  replace_program("sudo", "echo you may not >&2; exit 1");
  const std::string install = in_script("scripts/setup.sh", "missing=", "install_packages");
  const Printed refused = run(install);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text, HasSubstr("apt-get update && apt-get install --no-install-recommends"));
  EXPECT_THAT(refused.text, Not(HasSubstr("network")));
  EXPECT_FALSE(fs::exists(folder / "used"));
  replace_program("sudo", "[ \"$1\" != -n ] || shift; exec \"$@\"");
  const Printed allowed = run(install);
  EXPECT_EQ(allowed.code, 0) << allowed.text;
  EXPECT_THAT(read_text(folder / "used"), HasSubstr("install -y --no-install-recommends"));
}

TEST_F(InstallScripts, PluginsSayWhyPipFailed) {
  replace_program("python3", "[ \"$3\" != --version ] || exit 0\necho \"$@\" >" + (folder / "used").string() +
                                 "\necho NewConnectionError\nexit 1");
  const Printed said = run(in_script("scripts/plugins.sh", "complete=", "mkdir -p \"$staging\" && fetch nvidia-nvvm"));
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.text, HasSubstr("cannot download: the network cannot be reached; check the network"));
  EXPECT_THAT(read_text(folder / "used"), HasSubstr("--retries 2"));
}

// A virtual environment may have no pip.
TEST_F(InstallScripts, APythonWithoutPipIsPassedOver) {
  replace_program("python3", "exit 1");
  EXPECT_EQ(run("scripts/python_with_pip.sh").text, "/usr/bin/python3\n");
}

TEST_F(InstallScripts, AMissingPipIsTheOnlyError) {
  replace_program("python3", "exit 0");
  replace_program("python_with_pip.sh", "echo no python3 has pip >&2; exit 1");
  const std::string script = (folder / "bin/python_with.sh").string();
  const Printed said =
      run("cp scripts/python_with.sh " + script + " && " + script + " benchmarks/requirements-jax.txt");
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.text, testing::EndsWith("\nno python3 has pip\n"));
}

// `make test` renews the plugin, not the libraries that GPUs need.
TEST_F(InstallScripts, ANewPluginKeepsTheLibrariesOfGpus) {
  const fs::path nvidia = cache / "plugins/nvidia";
  write_text(nvidia / "cu13/lib/libcublas.so.13", "");
  write_text(nvidia / "cudnn/lib/libcudnn.so.9", "");
  write_text(nvidia / "cu13/nvvm/libdevice/old", "");
  write_text(cache / "plugins/cuda/ready-old", "");
  const Printed said = run(in_script("scripts/plugins.sh", "complete=", R"(
fetch() { :; }
extract() {
  mkdir -p "$2/nvidia/cu13/bin" "$2/nvidia/cu13/nvvm/libdevice" "$2/jax_plugins/xla_cuda13"
  touch "$2/nvidia/cu13/bin/ptxas" "$2/nvidia/cu13/nvvm/libdevice/new" "$2/jax_plugins/xla_cuda13/xla_cuda_plugin.so"
}
mkdir -p "$staging"
install_cuda)"));
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(
      list_tree(cache / "plugins"),
      testing::ElementsAre("cuda/xla_cuda_plugin.so", "nvidia/cu13/bin/ptxas", "nvidia/cu13/lib/libcublas.so.13",
                           "nvidia/cu13/nvvm/libdevice/new", "nvidia/cudnn/lib/libcudnn.so.9"));
}

// Old wheels stay in the cache after an update. Each made wheel has its version as licence.
TEST_F(InstallScripts, LicencesAreThoseOfTheUsedWheels) {
  const Printed made = run(R"(
set -e
for name in lammps-jax-pjrt-cpu pyarrow; do
  for version in 0.0.1 $(sed -n "s/^$name==\([^ ]*\) .*/\1/p" scripts/wheels.txt) 99.0.0; do
    wheel=$FETTLE_CACHE/wheels/${name//-/_}-$version-py3-none-any.whl
    mkdir -p "$FETTLE_CACHE/wheels" "$FETTLE_CACHE/made.dist-info/licenses"
    echo "$name==$version" >"$FETTLE_CACHE/made.dist-info/licenses/LICENSE"
    (cd "$FETTLE_CACHE" && python3 -m zipfile -c "$wheel" made.dist-info)
  done
done)");
  ASSERT_EQ(made.code, 0) << made.text;
  const std::string copy = "packaging/licences.sh " + cache.string() + " " + (folder / "doc").string();
  const Printed said = run(copy);
  EXPECT_EQ(said.code, 0) << said.text;
  const std::string wheels = read_text(source_folder() / "scripts/wheels.txt");
  for (const char* name : {"lammps_jax_pjrt_cpu", "pyarrow"}) {
    const std::string licence = read_text(folder / "doc/licences" / name / "LICENSE");
    EXPECT_THAT(wheels, HasSubstr("\n" + licence.substr(0, licence.find('\n')) + " --hash"));
  }
  // On other distributions, scripts/setup.sh asks for a program of this kind.
  replace_program("dpkg-query", "echo 'cmake install ok installed'");
  const Printed without = run(copy);
  EXPECT_EQ(without.code, 0) << without.text;
  EXPECT_THAT(without.text, HasSubstr("no Debian package has /usr/include/CLI/CLI.hpp"));
  EXPECT_EQ(run(copy + " /lib/x86_64-linux-gnu/libz.so.1").code, 1) << "a package needs all licences";
}

TEST_F(InstallScripts, MakeTakesFoldersWithSpaces) {
  EXPECT_THAT(run("make -n install PREFIX='/opt/my tools'").text, HasSubstr(" --prefix \"/opt/my tools\" --strip"));
  EXPECT_THAT(run("HOME=/home/me make -n install PREFIX='~/tools'").text, HasSubstr(" --prefix \"/home/me/tools\""));
  EXPECT_THAT(run("make -n dist BUILD='my build'").text, HasSubstr("packaging/dist.sh \"my build\""));
}

// Installs a made program by the real cmake/install.cmake.
TEST_F(InstallScripts, CMakeInstallsInFoldersWithSpaces) {
  const fs::path place = folder / "my folder", source = place / "source", installed = place / "installed";
  write_text(source / "main.c", "int main(void) { return 0; }\n");
  write_text(source / "CMakeLists.txt",
             "cmake_minimum_required(VERSION 3.22)\nproject(made LANGUAGES C)\nadd_executable(fettle main.c)\n"
             "add_library(fettle_columns MODULE main.c)\nadd_library(fettle_pmix MODULE main.c)\n"
             "include(cmake/install.cmake)\n");
  write_text(source / "packaging/man.py", "#!/bin/sh\necho \"page of $1\"\n");
  write_text(source / "packaging/licences.sh",
             "#!/bin/sh\nmkdir -p \"$2\"\necho \"licences of $1\" >\"$2/copyright\"\n");
  for (const char* script : {"man.py", "licences.sh"})
    fs::permissions(source / "packaging" / script, fs::perms::owner_all);
  fs::copy(source_folder() / "packaging/completions", source / "packaging/completions");
  fs::create_directories(source / "cmake");
  fs::copy(source_folder() / "cmake/install.cmake", source / "cmake/install.cmake");
  for (const char* file : {"lib/libarrow.so.2600", "lib/libparquet.so.2600", "plugins/cpu/pjrt_c_api_cpu_plugin.so"})
    write_text(place / "cache" / file, "");
  const Printed said = run("cd '" + place.string() +
                           "' && cmake -S source -B build -G Ninja -DFETTLE_CACHE=\"$PWD/cache\" && "
                           "cmake --build build && cmake --install build --prefix \"$PWD/installed\"");
  ASSERT_EQ(said.code, 0) << said.text;
  EXPECT_EQ(read_text(installed / "share/man/man1/fettle.1"), "page of " + (installed / "bin/fettle").string() + "\n");
  EXPECT_EQ(read_text(installed / "share/doc/fettle/copyright"), "licences of " + (place / "cache").string() + "\n");
}

}  // namespace
}  // namespace fettle
