#include "kernels/check.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/arrays/trial_numbers.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/files/private_files.h"
#include "base/log.h"
#include "programs/arithmetic.h"
#include "programs/layouts.h"
#include "runtime/compile_cache.h"

namespace fettle {
namespace {

using Results = std::vector<std::vector<double>>;

// Returns the largest relative distance of all results. The relative distance of a result is its distance from the
// expected result, divided by the norm of the expected result.
double distance(const Results& got, const Results& wanted) {
  internal_check(got.size() == wanted.size(), "a trial gave {} results, wanted {}", got.size(), wanted.size());
  double out = 0;
  for (size_t r = 0; r < wanted.size(); ++r) {
    const double relative = relative_distance(got[r], wanted[r]);
    if (!(relative <= out)) out = std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
  }
  return out;
}

// Removes all results but the first `count`, and returns the removed ones.
Results split_off(Results& results, size_t count) {
  internal_check(results.size() >= count, "a trial gave {} results, wanted at least {}", results.size(), count);
  const auto at = results.begin() + static_cast<std::ptrdiff_t>(count);
  Results out(at, results.end());
  results.erase(at, results.end());
  return out;
}

bool all_zero(const Results& results) {
  for (const std::vector<double>& result : results)
    for (const double x : result)
      if (x != 0) return false;
  return true;
}

std::set<std::string_view> composites() {
  std::set<std::string_view> out;
  for (const KernelRow& row : kernel_rows()) out.insert(row.composite);
  return out;
}

// Returns the subject under which Findings stores the verdict that all bodies agree with the host. The subject contains
// the names of all composites that have kernels. So the stored verdict no longer applies after a kernel for another
// composite is added.
std::string bodies_subject() {
  std::string out = "bodies";
  for (const std::string_view composite : composites()) out.append(" ").append(composite);
  return out;
}

// Stores verdicts for later runs, one file for each verdict. The file's name is a hash of the subject (a kernel's id,
// or bodies_subject()) and the devices. The file has the text "agrees", or the fault.
class Findings {
 public:
  explicit Findings(const Devices& devices) : devices_(devices) {
    if (const auto cache = find_cache()) folder_ = *cache / "kernels";
  }

  std::optional<std::string> read(std::string_view subject) const {
    const std::filesystem::path path = file(subject);
    std::error_code error;
    const bool here = !folder_.empty() && std::filesystem::exists(path, error) && distrust(path).empty();
    // The check must run in all processes or in none, because its programs run on the devices of all processes.
    if (!devices_.all_have(here)) return std::nullopt;
    return read_file(path);
  }
  void write(std::string_view subject, const std::string& text) const {
    if (folder_.empty() || !make_private_folder(folder_)) return;
    try {
      write_file(file(subject), text);
    } catch (const UserError& error) {
      debug("kernels: the result of the check of {} cannot be stored, so the next start checks again: {}", subject,
            error.what());
    }
  }

 private:
  std::filesystem::path file(std::string_view subject) const {
    ContentKey key;
    constexpr std::string_view kCheck = "7";  // change it when trials are added, so that older verdicts are not used
    key.add(kCheck).add(subject).add(devices_identity(devices_.client())).add(std::to_string(devices_.count()));
    key.add(environment("FETTLE_MAX_CPU_ISA"));
    return folder_ / (key.text() + ".txt");
  }

  const Devices& devices_;
  std::filesystem::path folder_;  // empty: nothing is kept
};

constexpr const char* kAgrees = "agrees";

}  // namespace

RunTrial run_on(const Devices& devices) {
  // The results of trials without kernels. Both check_bodies and check_kernels ask for them, so they are computed only
  // once.
  const auto plain = std::make_shared<std::map<std::string, Results>>();
  return [&devices, plain](const Trial& trial, const ChooseKernel& choose) {
    Program program(devices.flat_mesh(), choose);
    {
      BuildScope scope(program.block());
      std::vector<Tensor> inputs;
      for (const TrialInput& input : trial.inputs)
        inputs.push_back(program.input("input" + std::to_string(inputs.size()), input.value.shape(), input.partition));
      const std::vector<Tensor> results = trial.build(inputs);
      for (size_t r = 0; r < results.size(); ++r) program.output("result" + std::to_string(r), results[r]);
    }
    const std::string text = program.text();
    ContentKey key;
    key.add(text);
    for (const TrialInput& input : trial.inputs)
      key.add({reinterpret_cast<const char*>(input.value.data()), static_cast<size_t>(input.value.bytes())});
    if (const auto known = plain->find(key.text()); !choose && known != plain->end()) return known->second;
    CompileOptions options{.num_partitions = static_cast<int>(program.mesh().size())};
    // A trial's program runs once, so quick compiling matters more than quick code.
    const std::string effort(devices.client().plugin().vendor().effort_flag);
    if (!effort.empty()) options.env[effort] = int64_t{0};
    const Executable executable = devices.client().compile(text, signature_of(program), options);
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceBuffer*> arguments;
    buffers.reserve(trial.inputs.size());
    for (size_t i = 0; i < trial.inputs.size(); ++i) {
      buffers.push_back(
          DeviceBuffer::upload(devices.client(), trial.inputs[i].value, executable.signature().inputs[i].layout));
      arguments.push_back(&buffers.back());
    }
    Results out;
    for (DeviceBuffer& result : executable.run(arguments)) {
      out.push_back(doubles(result.download()));
    }
    if (!choose) plain->emplace(key.text(), out);
    return out;
  };
}

void check_bodies(const std::string& device, const MeshAxes& mesh, const RunTrial& run) {
  for (const std::string_view composite : composites())
    for (const Trial& trial : trials_of(composite, mesh)) {
      const Results got = run(trial, {});
      const double off = distance(got, trial.wanted);
      if (off <= trial.bound) continue;
      throw DeviceError(
          "{} {}: {} differs from the value computed on the host by {:.1e} of that value's norm (rounding gives "
          "at most {:.0e}); check the driver and the plugin, and try another device",
          device, all_zero(got) ? "computes nothing" : "computes wrongly", trial.title, off, trial.bound);
    }
}

std::vector<KernelVerdict> check_kernels(const KernelSet& kernels, const MeshAxes& mesh, const RunTrial& run) {
  std::vector<KernelVerdict> out;
  for (const KernelRow* kernel : kernels) {
    KernelRow anywhere = *kernel;
    anywhere.pays = nullptr;  // trials are small, so run the kernel even where it is not faster
    // Only Fettle's own handlers read slices. One trial on slices is enough, because all trials would read them in the
    // same way.
    const bool takes_slices = mesh.size() == 1 && kernel->register_handlers != nullptr;
    KernelVerdict verdict{kernel, true, "", 0, 1};
    std::vector<Trial> trials = trials_of(kernel->composite, mesh, kernel->every_width);
    for (Trial& trial : trials) {
      const bool slices = takes_slices && &trial == &trials.back();
      const std::string title = trial.title;
      Results body, got;
      auto fail = [&](const Error& error) {
        verdict = {
            kernel,      false, fmt::format("{} ({})", title, error.what()), std::numeric_limits<double>::infinity(),
            trial.bound, true};
      };
      try {
        body = run(trial, {});
        if (slices) trial = also_on_slices(std::move(trial));
        got = run(trial, choose_among({&anywhere}));
      } catch (const DeviceError& error) {
        fail(error);
        break;
      } catch (const DoesNotFit& error) {
        // The kernel needs more shared memory than the device has. If the body does not fit either, no kernel is to
        // blame.
        if (body.empty()) throw;
        fail(error);
        break;
      }
      auto compare = [&](const Results& results, const std::string& what) {
        const double off = distance(results, body);
        if (off / trial.bound >= verdict.distance / verdict.bound)
          verdict = {kernel, verdict.agrees && off <= trial.bound, what, off, trial.bound};
      };
      if (slices) compare(split_off(got, body.size()), title + ", on slices");
      compare(got, title);
    }
    out.push_back(verdict);
  }
  return out;
}

namespace {

// Prints each text only once per process. A process may resolve several runs.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) warn("{}", text);
}

}  // namespace

KernelSet checked_kernels(const Devices& devices, const KernelSet& kernels) {
  const Findings findings(devices);
  const MeshAxes mesh = devices.flat_mesh();
  const RunTrial run = run_on(devices);
  if (!arithmetic_is_waived() && !findings.read(bodies_subject())) {
    check_bodies(devices.title(), mesh, run);
    findings.write(bodies_subject(), kAgrees);
  }
  const std::string elsewhere = "it does not work in another process";
  auto verdict_of = [&](const KernelRow* kernel) {
    std::string fault;
    try {
      register_handlers({kernel}, devices.client().plugin());
    } catch (const DeviceError& error) {
      fault = error.what();
    }
    if (!devices.all_have(fault.empty())) return fault.empty() ? elsewhere : fault;
    if (const std::optional<std::string> known = findings.read(kernel->id)) return *known;
    const KernelVerdict verdict = check_kernels({kernel}, mesh, run).front();
    if (verdict.failed) return verdict.trial;
    const std::string said =
        verdict.agrees ? std::string(kAgrees)
                       : fmt::format(
                             "{} differs from the result without the kernel by {:.1e} of that result's norm (rounding "
                             "gives at most {:.0e})",
                             verdict.trial, verdict.distance, verdict.bound);
    findings.write(kernel->id, said);
    return said;
  };
  KernelSet out;
  for (const KernelRow* kernel : kernels) {
    std::string said = verdict_of(kernel);
    // All processes must run the same programs, so they all use the kernel or none does.
    if (!devices.all_have(said == kAgrees) && said == kAgrees) said = elsewhere;
    if (said == kAgrees)
      out.push_back(kernel);
    else
      warn_once(fmt::format("kernel {} is switched off on {}: {}; the run is slower without it", kernel->name(),
                            devices.title(), said));
  }
  return out;
}

}  // namespace fettle
