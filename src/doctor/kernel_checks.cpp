#include "doctor/kernel_checks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/check.h"

namespace fettle {

void check_composites(Findings& findings, const Devices& devices) {
  const MeshAxes mesh = devices.flat_mesh();
  const RunTrial run = run_on(devices);
  findings.attempt("composites", [&]() -> Finding {
    check_bodies(devices.title(), mesh, run);
    return {"composites", Verdict::kGood,
            "computed without kernels, attention and the other parts that kernels can replace agree with the host", ""};
  });
  const KernelSet named = select_kernels(devices.vendor(), devices.wanted_kernels());
  KernelSet kernels;
  for (const KernelRow& row : kernel_rows())
    if (row.platform == devices.vendor()) kernels.push_back(&row);
  if (kernels.empty())
    findings.add(
        {"kernels", Verdict::kSkipped, fmt::format("there are no kernels for plugin {}", devices.vendor()), ""});
  for (const KernelRow* kernel : kernels) {
    const std::string name = fmt::format("kernel {}", kernel->name());
    if (!kernel->automatic(devices.capability()) && std::find(named.begin(), named.end(), kernel) == named.end()) {
      findings.add({name,
                    Verdict::kSkipped,
                    fmt::format("the kernel is off unless the recipe names it; to try it: fettle doctor kernels={}",
                                kernel->name()),
                    "",
                    {{"id", kernel->id}}});
      continue;
    }
    findings.attempt(name, [&]() -> Finding {
      register_handlers({kernel}, devices.client().plugin());
      const KernelVerdict verdict = check_kernels({kernel}, mesh, run).front();
      nlohmann::json figures = {{"id", kernel->id}, {"bound", verdict.bound}};
      if (std::isfinite(verdict.distance)) figures["distance"] = verdict.distance;
      return {name, verdict.agrees ? Verdict::kGood : Verdict::kNote,
              verdict.failed
                  ? "failed trial: " + verdict.trial
                  : fmt::format("worst trial: {}; its result differs from the result without the kernel by {:.1e} "
                                "of that result's norm (largest allowed: {:.0e})",
                                verdict.trial, verdict.distance, verdict.bound),
              verdict.agrees ? "" : "none needed: runs do not use this kernel, and are slower without it",
              std::move(figures)};
    });
  }
}

}  // namespace fettle
