// Tests the output of `fettle doctor` for scripts and for people. Every check has a line, and a failed check does not
// stop the others.
#include <gmock/gmock.h>

#include "end_to_end/stand_in_hip.h"
#include "environment.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Checks = std::map<std::string, nlohmann::json>;

// Returns the checks by name. If several checks have the same name, returns the last of them.
Checks checks_of(const Outcome& run) {
  Checks out;
  const nlohmann::json page = nlohmann::json::parse(run.out);
  for (const nlohmann::json& check : page["checks"]) out[check["check"]] = check;
  return out;
}

std::string verdict(const Checks& checks, const std::string& name) {
  const auto found = checks.find(name);
  return found == checks.end() ? "absent" : found->second["verdict"].get<std::string>();
}

double figure(const Checks& checks, const std::string& name, const char* key) {
  return checks.at(name)["figures"][key].get<double>();
}

TEST(Doctor, MeasuresTheDevicesOfTheHost) {
  const TempFolder folder;
  const Outcome run = run_fettle(folder, {"doctor", "plugin=cpu", "device_count=2", "--json",
                                          "output_dir=" + (folder / "not/there/yet").string()});
  ASSERT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["healthy"], true);
  const Checks checks = checks_of(run);
  for (const char* name : {"fettle",
                           "plugin",
                           "libraries",
                           "devices",
                           "memory",
                           "arithmetic",
                           "matmul f32",
                           "matmul bf16",
                           "memory rate",
                           "host copies",
                           "device copies",
                           "training step",
                           "composites",
                           "kernel cpu_attention",
                           "kernel cpu_cached_attention",
                           "kernel cpu_linear",
                           "kernel cpu_lora",
                           "kernel cpu_gated",
                           "kernel cpu_rms_norm",
                           "kernel cpu_cross_entropy",
                           "kernel cpu_adamw",
                           "kernel cpu_dequantise",
                           "cache disk",
                           "output disk"})
    EXPECT_EQ(verdict(checks, name), "ok") << name << run.out;
  EXPECT_EQ(checks.at("devices")["figures"]["count"], 2);
  for (const auto& [check, key] : {std::pair{"matmul f32", "flops_per_s"},
                                   {"matmul bf16", "flops_per_s"},
                                   {"memory rate", "bytes_per_s"},
                                   {"host copies", "from_device_bytes_per_s"},
                                   {"device copies", "bytes_per_s"},
                                   {"output disk", "write_bytes_per_s"},
                                   {"memory", "limit_bytes"}})
    EXPECT_GT(figure(checks, check, key), 1e6) << check;
  EXPECT_LT(figure(checks, "training step", "gradient_difference"), 1e-4) << "two devices against one";
  EXPECT_EQ(checks.at("output disk")["figures"]["folder"], folder.path().string());
}

TEST(Doctor, WithoutThePluginTheDisksAreStillMeasured) {
  const TempFolder folder;
  const Outcome run = run_fettle(folder, {"doctor", "plugin=" + (folder / "xla_rocm_plugin.so").string()});
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("bad      plugin"), HasSubstr("no such file\n"), HasSubstr("remedy: install ROCm"),
                    HasSubstr("skipped  devices"), HasSubstr("skipped  measurements"), HasSubstr("ok       cache disk"),
                    HasSubstr("1 check found a fault")));
}

TEST(Doctor, FoldersThatCannotBeWrittenHaveARemedy) {
  const TempFolder folder;
  const Environment cache("FETTLE_CACHE", "/dev/null/fettle");
  std::filesystem::create_symlink("loop", folder / "loop");  // the system refuses to follow it
  for (const std::string& output : {std::string("/dev/null/out"), (folder / "loop/out").string()}) {
    const Outcome run = run_fettle(
        folder, {"doctor", "plugin=" + (folder / "xla_rocm_plugin.so").string(), "output_dir=" + output, "--json"});
    EXPECT_EQ(run.code, 4) << run.err;
    const Checks checks = checks_of(run);
    for (const auto& [check, name] : {std::pair{"cache disk", "FETTLE_CACHE"}, {"output disk", "output_dir"}}) {
      EXPECT_EQ(verdict(checks, check), "bad");
      EXPECT_EQ(checks.at(check)["remedy"], fmt::format("set {} to a folder that you can write to", name));
    }
  }
}

// The fault may quote names and other programs' messages.
TEST(Doctor, TheRemedyIsTheLastPartOfAnError) {
  const TempFolder folder;
  const std::string plugin = folder / "a; b" / "xla_rocm_plugin.so";
  const Checks checks = checks_of(run_fettle(folder, {"doctor", "plugin=" + plugin, "--json"}));
  EXPECT_EQ(checks.at("plugin")["text"], "plugin " + plugin + ": no such file");
  EXPECT_THAT(checks.at("plugin")["remedy"].get<std::string>(), testing::StartsWith("install ROCm's libraries"));
}

// Makes a plugin that is linked to two libraries of ROCm. Only one of them exists.
TEST(Doctor, NamesEachLibraryThatIsMissing) {
  const TempFolder folder;
  const std::string made =
      "cd " + folder.path().string() +
      " && echo 'int here(void) { return 1; }' > here.c && gcc -shared -fPIC -Wl,-soname,libmadehere.so.1 here.c -o "
      "libmadehere.so.1 && echo 'int gone(void) { return 1; }' > gone.c && gcc -shared -fPIC "
      "-Wl,-soname,libmadegone.so.7 gone.c -o libmadegone.so.7 && echo 'int here(void), gone(void); int user(void) { "
      "return here() + gone(); }' > user.c && gcc -shared -fPIC user.c libmadehere.so.1 libmadegone.so.7 "
      "-Wl,-rpath,'$ORIGIN' -o xla_rocm_plugin.so && rm libmadegone.so.7";
  ASSERT_EQ(std::system(made.c_str()), 0);
  const Outcome run = run_fettle(folder, {"doctor", "plugin=" + (folder / "xla_rocm_plugin.so").string(), "--json"});
  EXPECT_EQ(run.code, 4) << run.err;
  const Checks checks = checks_of(run);
  for (const auto& [name, check] : checks)
    if (check["verdict"] == "bad") EXPECT_NE(check["remedy"], "") << name << run.out;
  EXPECT_EQ(checks.at("library")["figures"]["name"], "libmadegone.so.7");
  EXPECT_THAT(checks.at("library")["remedy"].get<std::string>(), HasSubstr("docs/gpus.md"));
  EXPECT_THAT(run.out, Not(HasSubstr("libmadehere.so.1 is missing")));
  EXPECT_EQ(verdict(checks, "devices"), "bad");
  EXPECT_EQ(verdict(checks, "cache disk"), "ok");
}

// Makes a plugin whose driver's library is in a folder that only the plugin names, as ROCm's is.
TEST(Doctor, AsksTheDriverThatThePluginLoads) {
  const TempFolder folder;
  const std::string made =
      "cd " + folder.path().string() +
      " && echo 'int hipDriverGetVersion(int* version) { *version = 71400000; return 0; }' > hip.c && gcc -shared "
      "-fPIC -Wl,-soname,libamdhip64.so.7 hip.c -o libamdhip64.so.7 && echo 'int hipDriverGetVersion(int*); int "
      "user(int* version) { return hipDriverGetVersion(version); }' > user.c && gcc -shared -fPIC user.c "
      "libamdhip64.so.7 -Wl,-rpath,'$ORIGIN' -o xla_rocm_plugin.so";
  ASSERT_EQ(std::system(made.c_str()), 0);
  const std::vector<std::string> words{"doctor", "plugin=" + (folder / "xla_rocm_plugin.so").string(), "--json"};
  const Checks checks = checks_of(run_fettle(folder, words));
  EXPECT_EQ(verdict(checks, "driver"), "ok");
  EXPECT_THAT(checks.at("driver")["text"].get<std::string>(), HasSubstr("ROCM 7.14"));
  std::filesystem::remove(folder / "libamdhip64.so.7");
  const Checks without = checks_of(run_fettle(folder, words));
  EXPECT_EQ(without.at("library")["figures"]["name"], "libamdhip64.so.7");
  EXPECT_EQ(verdict(without, "driver"), "skipped") << "the kernel's driver may be there";
}

using DoctorOnStandIn = StandInHip;

TEST_F(DoctorOnStandIn, RefusesADeviceThatComputesNothing) {
  set("STAND_IN_DEVICES", 2);
  const Outcome run =
      this->run({"doctor", "plugin=rocm", "--json", "compile_cache=" + (folder_ / "compiled").string()});
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["healthy"], false);
  const Checks checks = checks_of(run);
  EXPECT_EQ(verdict(checks, "driver"), "ok");
  EXPECT_THAT(checks.at("driver")["text"].get<std::string>(), HasSubstr("ROCM 7.14"));
  EXPECT_EQ(verdict(checks, "libraries"), "ok");
  EXPECT_EQ(verdict(checks, "devices"), "ok");
  EXPECT_EQ(verdict(checks, "arithmetic"), "bad");
  EXPECT_EQ(verdict(checks, "measurements"), "skipped");
  EXPECT_EQ(figure(checks, "memory", "total_bytes"), 4e9);
}

}  // namespace
}  // namespace fettle
