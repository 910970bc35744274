// Tests how much of a GPU's memory a run takes, given the driver's report and the recipe. Tests which options the
// plugin gets.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "environment.h"
#include "processes.h"
#include "programs/arithmetic.h"
#include "programs/devices.h"
#include "runtime/rendezvous/rendezvous.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kGB = 1'000'000'000;

// Returns what Fettle reads from a driver that reports devices of 24 GB. `free` has the free gigabytes of each device,
// such as "20,23".
std::vector<DriverMemory> reported(const char* library, const char* free) {
  setenv("MADE_DRIVER_FREE", free, 1);
  return driver_memory(library);
}

TEST(DeviceWithoutArithmetic, IsAllowedOnlyIfTheVariableIsOn) {
  const auto waived = [](const char* value) {
    const Environment set("FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC", value);
    return arithmetic_is_waived();
  };
  for (const char* on : {"1", "true", "YES", "on"}) EXPECT_TRUE(waived(on)) << on;
  for (const char* off : {"", "0", "false", "no", "off"}) EXPECT_FALSE(waived(off)) << off;
}

TEST(DriverMemory, IsReadForEachDevice) {
  for (const char* library : {FETTLE_MADE_CUDA, FETTLE_MADE_HIP}) {
    const std::vector<DriverMemory> found = reported(library, "20,23");
    ASSERT_EQ(found.size(), 2u) << library;
    EXPECT_EQ(found[0].total, 24 * kGB);
    EXPECT_EQ(found[0].free, 20 * kGB);
    EXPECT_EQ(found[1].free, 23 * kGB);
    EXPECT_TRUE(reported(library, "").empty()) << "no device";
  }
}

// Other processes may hold devices exclusively. Those are counted, and the memory of the others can be read.
TEST(DriverMemory, IsReadOnlyForTheWantedDevices) {
  setenv("MADE_DRIVER_HELD", "0", 1);
  for (const char* library : {FETTLE_MADE_CUDA, FETTLE_MADE_HIP}) {
    EXPECT_TRUE(reported(library, "20,23").empty());
    const std::vector<DriverMemory> found = driver_memory(library, {1});
    ASSERT_EQ(found.size(), 1u) << library;
    EXPECT_EQ(found[0].free, 23 * kGB);
    EXPECT_EQ(driver_devices(library).size(), 2u);
  }
  unsetenv("MADE_DRIVER_HELD");
}

TEST(DriverMemory, IsNotKnownWithoutADriver) {
  EXPECT_TRUE(driver_devices("").empty());
  EXPECT_TRUE(driver_memory("").empty());
  EXPECT_TRUE(driver_memory("libno_such_driver.so.1").empty());
}

MemoryShare shared(int64_t used, double utilization, int64_t devices) {
  Vendor vendor = unknown_vendor();
  vendor.library_bytes = kGB;
  vendor.communication_bytes = 2 * kGB;
  return share_memory(vendor, 100 * kGB, used, utilization, devices);
}

TEST(MemoryShare, IsTheSmallerOfRequestedAndFree) {
  EXPECT_EQ(shared(0, 0.95, 1).limit, 95 * kGB);
  EXPECT_EQ(shared(0, 1, 1).limit, 99 * kGB) << "libraries need some";
  EXPECT_EQ(shared(0, 1, 2).limit, 97 * kGB) << "several devices need more";
  EXPECT_EQ(shared(0, 0.5, 2).limit, 50 * kGB);
  // library_bytes includes the program's own context. So on an idle device, a run gets as much memory as the plan
  // assumes.
  EXPECT_EQ(shared(kGB / 2, 1, 2).limit, 97 * kGB);
  EXPECT_EQ(shared(11 * kGB, 1, 2).limit, 87 * kGB) << "other programs use 10 GB";
  EXPECT_EQ(shared(11 * kGB, 1, 2).others, 10 * kGB);
  EXPECT_EQ(shared(100 * kGB, 0.95, 1).limit, 0);
}

// Opens the devices of `plugin`, with a driver that reports these free gigabytes. Returns the fake plugin's error,
// which lists the options that it got.
std::string opened_with(const char* plugin, const char* driver, const char* free, DeviceRequest request) {
  setenv("MADE_DRIVER_FREE", free, 1);
  EXPECT_NE(dlopen(driver, RTLD_NOW), nullptr) << "it has the name of the vendor's driver, so Fettle finds it loaded";
  request.plugin = plugin;
  try {
    const Devices devices(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "opened";
}

TEST(Devices, TakeTheRequestedShare) {
  for (const auto& [plugin, driver] :
       {std::pair{FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA}, {FETTLE_MADE_ROCM_PLUGIN, FETTLE_MADE_HIP}}) {
    EXPECT_THAT(opened_with(plugin, driver, "24", {.memory_utilization = 0.95}),
                HasSubstr("memory_fraction=float 0.95 preallocate=bool 1"));
    EXPECT_THAT(opened_with(plugin, driver, "24", {.memory_utilization = 0.5}),
                HasSubstr("memory_fraction=float 0.5 "));
  }
}

TEST(Devices, TakeWhatOtherProgramsLeaveAndReportIt) {
  testing::internal::CaptureStderr();
  // Of 24 GB, 14 GB are free. Of the 10 GB in use, 0.8 GB may be this program's own context, so other programs use 9.2
  // GB. The context, libraries and communication of two devices need 2 GB, so 24 - 9.2 - 2 = 12.8 GB are left.
  const std::string error =
      opened_with(FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA, "24,14", {.memory_utilization = 0.95});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(error, HasSubstr("memory_fraction=float 0.533333 "));
  EXPECT_THAT(said, HasSubstr("gpu_memory_utilization asks for 0.95 of a device's 24.00 GB, but other programs use "
                              "9.20 GB of it; this program takes 12.80 GB, a share of 0.53"));
}

TEST(Devices, NothingIsReportedWhenEnoughIsFree) {
  testing::internal::CaptureStderr();
  EXPECT_THAT(opened_with(FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA, "20", {.memory_utilization = 0.5}),
              HasSubstr("memory_fraction=float 0.5 "));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("gpu_memory_utilization")));
}

TEST(Devices, AreRefusedWhenOtherProgramsHoldThem) {
  EXPECT_THAT(opened_with(FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA, "0", {.memory_utilization = 0.95}),
              HasSubstr("other programs use 23.20 GB"));
}

// Opens devices in `count` processes on this host. `prepare` sets the variables of a process with this rank. Returns
// what the fake plugin of each process got, or the error of the process.
std::vector<std::string> opened_by(int count, const char* plugin, const char* driver, const char* free,
                                   const std::function<void(int rank)>& prepare) {
  TempFolder folder;
  wait_for(start_processes(count, [&](const ProcessPlace& place) {
    Rendezvous run(place, open_redis_store(place), Rendezvous::Seconds(20));
    prepare(place.rank);
    write_text(folder / std::to_string(place.rank),
               opened_with(plugin, driver, free, {.memory_utilization = 0.5, .run = &run}));
    run.barrier("end");
    run.leave();
    return 0;
  }));
  std::vector<std::string> all;
  for (int rank = 0; rank < count; ++rank) all.push_back(read_text(folder / std::to_string(rank)));
  return all;
}

void set_first(int device) {
  setenv("MADE_DRIVER_FIRST", std::to_string(device).c_str(), 1);
}

constexpr std::pair<const char*, const char*> kGpus[] = {{FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA},
                                                         {FETTLE_MADE_ROCM_PLUGIN, FETTLE_MADE_HIP}};

TEST(Devices, AreSharedByTheProcessesThatSeeTheSameOnes) {
  for (const auto& [plugin, driver] : kGpus) {
    // The launcher gives each process its own four devices. Both processes number them from 0.
    for (const std::string& one :
         opened_by(2, plugin, driver, "20,20,20,20", [](int rank) { set_first(rank == 0 ? 0 : 4); }))
      EXPECT_THAT(one, AllOf(HasSubstr("memory_fraction=float 0.5 "), Not(HasSubstr("visible_devices"))));
    // Both see the same four, of which the other process already holds its half.
    const std::vector<std::string> shared = opened_by(
        2, plugin, driver, "20,20,20,20", [](int rank) { setenv("MADE_DRIVER_HELD", rank == 0 ? "2,3" : "0,1", 1); });
    EXPECT_THAT(shared[0], AllOf(HasSubstr("memory_fraction=float 0.5 "), HasSubstr("visible_devices=0,1")));
    EXPECT_THAT(shared[1], AllOf(HasSubstr("memory_fraction=float 0.5 "), HasSubstr("visible_devices=2,3")));
  }
}

// `srun --gpu-bind=closest` gives the processes of each socket the devices of that socket.
TEST(Devices, OfASocketAreSharedByItsProcesses) {
  for (const auto& [plugin, driver] : kGpus) {
    const auto all = opened_by(4, plugin, driver, "20,20", [](int rank) { set_first(rank < 2 ? 0 : 2); });
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_THAT(all[static_cast<size_t>(rank)],
                  HasSubstr(rank % 2 == 0 ? "visible_devices=0;" : "visible_devices=1;"));
  }
}

// Other programs hold all memory of the second device, which `device_count: 1` does not use.
TEST(Devices, ThatAreNotAskedForStayClosed) {
  for (const auto& [plugin, driver] : kGpus) {
    EXPECT_THAT(opened_with(plugin, driver, "20,0,20", {.count = 1, .memory_utilization = 0.5}),
                AllOf(HasSubstr("memory_fraction=float 0.5 "), HasSubstr("visible_devices=0;")));
    for (const int64_t count : {0, 2, 3})
      EXPECT_THAT(opened_with(plugin, driver, "20,20", {.count = count, .memory_utilization = 0.5}),
                  Not(HasSubstr("visible_devices")));
  }
}

TEST(Devices, MustBeEnoughForTheProcesses) {
  for (const auto& [plugin, driver] : kGpus)
    for (const std::string& one : opened_by(3, plugin, driver, "20,20", [](int) {}))
      EXPECT_THAT(one, HasSubstr("has 2 devices for 3 processes; start one process for each device"));
}

TEST(Devices, ThatProcessesShareOnlyInPartAreRefused) {
  for (const std::string& one :
       opened_by(2, FETTLE_MADE_CUDA_PLUGIN, FETTLE_MADE_CUDA, "20,20", [](int rank) { set_first(rank); }))
    EXPECT_THAT(one, HasSubstr("see some of the same devices, but not the same list"));
}

// The parts of an AMD GPU have the PCI id of the GPU. The launcher may number them from 0 in each process.
TEST(Devices, WithOneNameMayBePartsOfAGpu) {
  for (const bool numbered : {false, true})
    for (const std::string& one : opened_by(2, FETTLE_MADE_ROCM_PLUGIN, FETTLE_MADE_HIP, "20", [&](int rank) {
           setenv("ROCR_VISIBLE_DEVICES", numbered ? "0" : std::to_string(rank).c_str(), 1);
         }))
      EXPECT_THAT(one, AllOf(HasSubstr("memory_fraction=float 0.5 "), Not(HasSubstr("visible_devices"))));
}

TEST(Devices, OnTheCpuTheShareHasNoEffect) {
  DeviceRequest request{.plugin = "cpu", .memory_utilization = 0.5};
  request.places.set("gpu_memory_utilization", "recipe.yaml:7");
  testing::internal::CaptureStderr();
  const Devices devices(request);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("recipe.yaml:7: gpu_memory_utilization has no effect: plugin cpu"));
  EXPECT_GT(devices.memory().limit, 0);
  EXPECT_EQ(devices.memory().total, 0);
}

}  // namespace
}  // namespace fettle
