// Tests which plugin runs when the user names none. Folders of a made machine replace /dev and /sys.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "environment.h"
#include "runtime/vendors/choice.h"
#include "runtime/vendors/libraries.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PluginChoiceTest : public testing::Test {
 protected:
  // Compiles a shared object. `options` are further words for gcc.
  void compile(const std::filesystem::path& file, const std::string& code, const std::string& options = "") {
    std::filesystem::create_directories(file.parent_path());
    write_text(folder / "source.c", code);
    const std::string command = "gcc -shared -fPIC " + (folder / "source.c").string() + " " + options + " -o ";
    ASSERT_EQ(std::system((command + file.string()).c_str()), 0);
  }
  // Makes plugins for the CPU and for both vendors of GPUs. AMD's is linked to a library in plugins/lib.
  void make_plugins(const std::string& library) {
    compile(plugins / "cpu/pjrt_cpu_plugin.so", "int none;");
    compile(plugins / "cuda/xla_cuda_plugin.so", "int none;");
    compile(plugins / "lib" / library, "int hip(void) { return 1; }", "-Wl,-soname," + library);
    compile(plugins / "rocm/xla_rocm_plugin.so", "int hip(void); int user(void) { return hip(); }",
            (plugins / "lib" / library).string() + " -Wl,-rpath,'$ORIGIN/../lib'");
  }
  void make(const std::string& file, const std::string& text = "") { write_text(machine / file, text); }
  std::string chosen() const { return choose_plugin(machine).plugin.parent_path().filename().string(); }

  TempFolder folder;
  const std::filesystem::path plugins = folder / "plugins", machine = folder / "machine";
  const Environment path{"FETTLE_PLUGIN_PATH", plugins.string()}, cache{"FETTLE_CACHE", (folder / "cache").string()};
};

TEST_F(PluginChoiceTest, IsThatOfAPresentDevice) {
  make_plugins("libmadehip1.so");
  EXPECT_EQ(chosen(), "cpu");
  make("dev/nvidiactl");
  EXPECT_EQ(chosen(), "cuda");
  make("dev/kfd");
  EXPECT_EQ(chosen(), "rocm");
  std::filesystem::remove_all(plugins / "rocm");
  EXPECT_EQ(chosen(), "cuda");
}

// The file /dev/kfd exists if the kernel's module is loaded, also without a GPU.
TEST_F(PluginChoiceTest, KnowsTheProcessorsThatTheKernelLists) {
  make_plugins("libmadehip2.so");
  make("dev/kfd");
  make("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
  EXPECT_EQ(chosen(), "cpu");
  EXPECT_THAT(device_state(*vendor_named("rocm"), machine), "/dev/kfd exists, but the kernel lists no GPU");
  make("dev/nvidiactl");
  EXPECT_EQ(chosen(), "cuda");
  EXPECT_THAT(choose_plugin(machine).skipped, IsEmpty());
  // The kernel refuses to read the number of a GPU that the container may not use.
  make("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "");
  EXPECT_EQ(chosen(), "rocm");
  EXPECT_THAT(device_state(*vendor_named("rocm"), machine), HasSubstr("--device /dev/dri"));
  make("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51234\n");
  EXPECT_EQ(chosen(), "rocm");
  EXPECT_THAT(device_state(*vendor_named("rocm"), machine), "/dev/kfd exists, so there is a device");
}

// A PC with a GPU of NVIDIA and a processor of AMD, after `make plugins`.
TEST_F(PluginChoiceTest, SkipsAPluginWithoutItsLibraries) {
  make_plugins("libmadehip3.so");
  make("dev/kfd");
  std::filesystem::create_directories(plugins / "rocm/stand-ins");
  const std::filesystem::path stand_in = plugins / "rocm/stand-ins/libmadehip3.so";
  std::filesystem::rename(plugins / "lib/libmadehip3.so", stand_in);
  make("dev/nvidiactl");
  EXPECT_EQ(chosen(), "cuda");
  EXPECT_THAT(choose_plugin(machine).skipped, ElementsAre("rocm"));
  // `fettle plan` loads stand-ins. The library's name then leads to them.
  ASSERT_NE(dlopen(stand_in.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  EXPECT_EQ(chosen(), "cuda");
}

TEST_F(PluginChoiceTest, TheCpuDoesNotReplaceAGpu) {
  make_plugins("libmadehip4.so");
  std::filesystem::remove_all(plugins / "lib");
  make("dev/kfd");
  EXPECT_EQ(chosen(), "rocm");
  EXPECT_THAT(choose_plugin(machine).skipped, IsEmpty());
}

TEST_F(PluginChoiceTest, NamesThePluginThatIsMissingForAGpu) {
  make_plugins("libmadehip7.so");
  std::filesystem::remove_all(plugins / "cuda");
  EXPECT_THAT(choose_plugin(machine).absent, IsEmpty());
  make("dev/nvidiactl");
  EXPECT_EQ(chosen(), "cpu");
  EXPECT_THAT(choose_plugin(machine).absent, ElementsAre("cuda"));
  make("dev/kfd");
  EXPECT_EQ(chosen(), "rocm");
  EXPECT_THAT(choose_plugin(machine).absent, IsEmpty()) << "a GPU is used";
}

// A container sees the version of the host's kernel driver, also if it has no access to the driver.
TEST_F(PluginChoiceTest, ADriverMustAnswer) {
  make("sys/module/nvidia/version", "580.95.05\n");
  const std::string library = folder / "libmadedriver.so";
  Vendor vendor = *vendor_named("cuda");
  vendor.driver.library = library;
  EXPECT_EQ(driver_version(vendor, machine), "");
  compile(library, "int cuDriverGetVersion(int* version) { *version = 13000; return 0; }");
  EXPECT_EQ(driver_version(vendor, machine), "CUDA 13.0, driver 580.95.05");
  EXPECT_EQ(lack_of_driver(vendor), "");
}

TEST_F(PluginChoiceTest, ADriverMayBeTooOld) {
  const std::string library = folder / "libmadedriver.so";
  Vendor vendor = *vendor_named("cuda");
  vendor.driver.library = library;
  EXPECT_EQ(lack_of_driver(vendor), "") << "no driver";
  compile(library, "int cuDriverGetVersion(int* version) { *version = 12080; return 0; }");
  EXPECT_EQ(driver_version(vendor, machine), "CUDA 12.8");
  EXPECT_EQ(lack_of_driver(vendor), "the plugin needs CUDA 13.0, which driver 580 and later ones have");
}

// The loader of the system searches LD_LIBRARY_PATH before a plugin's RUNPATH.
TEST_F(PluginChoiceTest, LoadsTheLibrariesThatTheLoaderWouldTake) {
  make_plugins("libmadehip6.so");
  compile(folder / "other/libmadehip6.so", "int hip(void) { return 2; }", "-Wl,-soname,libmadehip6.so");
  make("dev/kfd");
  const Environment first{"LD_LIBRARY_PATH", (folder / "other").string()};
  EXPECT_EQ(chosen(), "rocm");
  void* const library = dlopen("libmadehip6.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(library, "hip"))(), 2);
}

// Under WSL 2, there is a file for the GPUs of all vendors. NVIDIA's driver of Windows brings libcuda.so.1.
TEST_F(PluginChoiceTest, KnowsNvidiasDriverUnderWsl) {
  make_plugins("libmadehip5.so");
  make("dev/dxg");
  void* const real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (real != nullptr) GTEST_SKIP() << "this machine has NVIDIA's driver";
  EXPECT_EQ(chosen(), "cpu");
  EXPECT_THAT(device_state(*vendor_named("cuda"), machine), HasSubstr("/dev/dxg exists, so this is WSL 2"));
  EXPECT_THAT(device_state(*vendor_named("rocm"), machine), HasSubstr("/dev/kfd is missing"));
  compile(folder / "driver.so", "int none;", "-Wl,-soname,libcuda.so.1");
  void* const driver = dlopen((folder / "driver.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  EXPECT_EQ(chosen(), "cuda");
  EXPECT_EQ(dlclose(driver), 0);
}

}  // namespace
}  // namespace fettle
