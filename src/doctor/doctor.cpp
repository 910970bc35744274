#include "doctor/doctor.h"

#include <optional>

#include "base/error.h"
#include "base/files/cache.h"
#include "base/log.h"
#include "base/size_text.h"
#include "doctor/finding.h"
#include "doctor/kernel_checks.h"
#include "doctor/machine_checks.h"
#include "doctor/rates.h"
#include "doctor/step_check.h"
#include "programs/arithmetic.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

Finding describe(const Devices& devices) {
  const Client& client = devices.client();
  return {"devices",
          Verdict::kGood,
          fmt::format("{}; plugin {} of PJRT API {}.{}, {}", devices.title(), client.plugin().name(),
                      client.plugin().api_major(), client.plugin().api_minor(), client.platform_version()),
          "",
          {{"title", devices.title()},
           {"count", devices.count()},
           {"capability", devices.capability()},
           {"plugin", client.plugin().name()},
           {"plugin_hash", client.plugin().content_hash()},
           {"platform_version", client.platform_version()}}};
}

Finding describe_memory(const Devices& devices) {
  const MemoryShare& share = devices.memory();
  const bool gpu = share.total > 0;
  std::string text = share.known() ? fmt::format("{} of each device may be used", size_text(share.limit))
                                   : "the plugin does not report how much memory a device has";
  if (gpu)
    text += fmt::format(" (of {}, gpu_memory_utilization: {:g}; other programs hold {})", size_text(share.total),
                        share.utilization, size_text(share.others));
  return {"memory",
          Verdict::kGood,
          text,
          "",
          {{"limit_bytes", share.limit}, {"total_bytes", share.total}, {"others_bytes", share.others}}};
}

Finding check_arithmetic(Devices& devices) {
  const std::string fault = find_arithmetic_fault(devices);
  if (fault.empty()) return {"arithmetic", Verdict::kGood, "each device multiplies matrices as the host does", ""};
  return {"arithmetic", Verdict::kBad, fault,
          "check the driver, its libraries and the plugin (docs/gpus.md), and try another device"};
}

// Runs the checks and measurements for which the devices must compute correctly.
void measure(Findings& findings, Devices& devices) {
  findings.attempt("matmul f32", [&] { return measure_products(devices, DType::kF32); });
  findings.attempt("matmul bf16", [&] { return measure_products(devices, DType::kBF16); });
  findings.attempt("memory rate", [&] { return measure_memory(devices); });
  findings.attempt("host copies", [&] { return measure_host_copies(devices); });
  findings.attempt("device copies", [&] { return measure_device_copies(devices); });
  check_composites(findings, devices);
  findings.attempt("training step", [&] { return check_step(devices); });
}

}  // namespace

int run_doctor(const DeviceRequest& request, const DoctorOptions& options, std::ostream& out) {
  Findings findings;
  findings.add({"fettle", Verdict::kGood, options.version, "", {{"version", options.version}}});
  const bool found = check_plugin(findings, request.plugin);

  std::optional<Devices> devices;
  const bool opened = found && findings.attempt("devices", [&] {
    DeviceRequest asked = request;
    asked.require_arithmetic = false;
    devices.emplace(asked);
    return describe(*devices);
  });
  if (!found) findings.add({"devices", Verdict::kSkipped, "only a plugin can open them", ""});
  if (opened) findings.attempt("memory", [&] { return describe_memory(*devices); });
  if (opened && findings.attempt("arithmetic", [&] { return check_arithmetic(*devices); }))
    measure(findings, *devices);
  else
    findings.add(
        {"measurements", Verdict::kSkipped, "rates and a training step need devices that compute correctly", ""});

  findings.attempt("cache disk", [] { return check_disk("cache disk", cache_folder("compiled"), "FETTLE_CACHE"); });
  if (!options.output_dir.empty())
    findings.attempt("output disk", [&] { return check_disk("output disk", options.output_dir, "output_dir"); });
  out << (options.json ? to_json(findings).dump(2) + "\n" : format_findings(findings));
  return static_cast<int>(findings.bad() ? ExitCode::kDevice : ExitCode::kOk);
}

}  // namespace fettle
