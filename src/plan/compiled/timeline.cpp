#include "plan/compiled/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "plan/compiled/cost.h"
#include "plan/compiled/host_copies.h"

namespace fettle {
namespace {

constexpr size_t kLargest = 12;

// Returns the part of the model that an instruction comes from: its op_name, else the last op_name in its fusion, else
// its own name.
std::string origin(const HloModule& module, const HloInstruction& instruction) {
  if (!instruction.op_name.empty()) return instruction.op_name;
  if (instruction.opcode == "fusion" && !instruction.called.empty()) {
    const HloComputation& inner = module.computations[instruction.called[0]];
    for (auto part = inner.instructions.rbegin(); part != inner.instructions.rend(); ++part) {
      if (!part->op_name.empty()) return part->op_name;
    }
  }
  return instruction.name;
}

// Returns the name of the kernel that a custom call runs.
std::string kernel_of(const HloInstruction& call) {
  const auto at = call.frontend_attributes.find("fettle_kernel");
  return at == call.frontend_attributes.end() ? call.custom_call_target : at->second;
}

using WorkPlace = std::pair<std::string, std::string>;  // op_name, work

struct Queued {
  double begin, end;  // seconds since the start of the step
  WorkPlace place;
};

// The resources that carry transfers. Each resource runs its transfers one after the other.
enum Carrier { kLinks, kFromHost, kToHost, kCarriers };

struct End {
  double moment = 0;
  Carrier carrier = kLinks;
};

class Walk {
 public:
  Walk(const HloModule& module, const MeshAxes& mesh, const Target& target, int64_t devices_per_host,
       const Assumptions& assumptions)
      : module_(&module),
        mesh_(&mesh),
        target_(&target),
        devices_per_host_(devices_per_host),
        assumptions_(&assumptions) {}

  // Advances the clock over one execution of the computation. Multiplies the seconds and bytes of its instructions by
  // `times`, and adds them to the sums.
  void run(int computation, double times) {
    const HloComputation& here = module_->computations[computation];
    std::map<int, End> ends;  // ends of started transfers, keyed by the position of their start
    for (int i = 0; i < static_cast<int>(here.instructions.size()); ++i) {
      const HloInstruction& instruction = here.instructions[i];
      if (instruction.opcode == "while") {
        run_loop(instruction, times);
      } else if (instruction.opcode == "conditional") {
        run_longest(instruction, times);
      } else if (instruction.opcode == "call") {
        for (int called : instruction.called) run(called, times);
      } else if (instruction.opcode.ends_with("-start")) {
        ends[i] = start(here, instruction, times);
      } else if (instruction.opcode.ends_with("-done")) {
        const int begun = instruction.operands.empty() ? -1 : start_of(here, instruction.operands[0]);
        if (const auto end = ends.find(begun); end != ends.end()) wait_until(end->second, times);
      } else if (const auto transfer = transfer_at(here, instruction)) {
        wait_until(begin(*transfer, times, instruction), times);
      } else if (const HostCopy copy = host_copy_of(*module_, here, instruction); copy.any()) {
        wait_until(begin(copy, times, instruction), times);
      } else {
        compute(here, instruction, times);
      }
    }
  }

  Timeline take() {
    out_.host_bound = std::max(host_bounds_[kFromHost], host_bounds_[kToHost]);
    out_.hidden_seconds = std::max(0.0, out_.transfer_seconds - out_.exposed_seconds);
    out_.seconds = out_.arithmetic_seconds + out_.memory_seconds + out_.exposed_seconds;
    for (auto& [key, contributor] : contributors_) out_.largest.push_back(std::move(contributor));
    std::stable_sort(out_.largest.begin(), out_.largest.end(),
                     [](const Contributor& a, const Contributor& b) { return a.exposed_seconds > b.exposed_seconds; });
    if (out_.largest.size() > kLargest) out_.largest.resize(kLargest);
    out_.unknown_loops.assign(loops_.begin(), loops_.end());
    out_.unknown_kernels.assign(kernels_.begin(), kernels_.end());
    return std::move(out_);
  }

 private:
  std::optional<Transfer> transfer_at(const HloComputation& computation, const HloInstruction& instruction) const {
    return transfer_of(computation, instruction, module_->devices, *mesh_, devices_per_host_);
  }

  double f32_tflops() const { return assumptions_->tf32 ? target_->tf32_tflops() : target_->f32_tflops; }

  Contributor& contributor(const HloInstruction& instruction, const std::string& work) {
    const std::string from = origin(*module_, instruction);
    Contributor& found = contributors_[{from, work}];
    found.op_name = from;
    found.work = work;
    return found;
  }

  void compute(const HloComputation& computation, const HloInstruction& instruction, double times) {
    const Cost cost = cost_of(*module_, computation, instruction);
    const bool rated = cost.share != 0.0;
    if (!cost.counted || !rated) kernels_.insert(kernel_of(instruction));
    if (cost.flops() == 0 && cost.memory_bytes == 0) return;
    const double ideal = cost.flops_f8 / (target_->f8_tflops() * 1e12) +
                         cost.flops_bf16 / (target_->bf16_tflops * 1e12) + cost.flops_f32 / (f32_tflops() * 1e12);
    const double loads = cost.memory_bytes / (target_->memory_gb_per_s * 1e9);
    const double arithmetic = rated ? ideal / cost.share.value_or(assumptions_->arithmetic_share) : 0;
    const double memory = std::max(loads / assumptions_->memory_share, assumptions_->kernel_seconds);
    const bool limited_by_arithmetic = arithmetic >= memory;
    const double seconds = std::max(arithmetic, memory);
    now_ += seconds;
    (limited_by_arithmetic ? out_.arithmetic_seconds : out_.memory_seconds) += times * seconds;
    out_.arithmetic_bound += times * ideal;
    out_.memory_bound += times * loads;
    out_.flops += times * cost.flops();
    out_.memory_bytes += times * cost.memory_bytes;
    Contributor& place = contributor(instruction, limited_by_arithmetic ? "arithmetic" : "memory");
    place.seconds += times * seconds;
    place.exposed_seconds += times * seconds;
  }

  // Queues the transfer and returns its end.
  End begin(const Transfer& transfer, double times, const HloInstruction& instruction) {
    out_.link_bound += times * seconds_of(transfer, *target_, {.link_share = 1, .transfer_seconds = 0});
    out_.link_bytes += times * transfer.link_bytes;
    out_.network_bytes += times * transfer.network_bytes;
    out_.network_bound += times * transfer.network_bytes / (target_->network_gb_per_s * 1e9);
    return enqueue(kLinks, seconds_of(transfer, *target_, *assumptions_), times,
                   contributor(instruction, transfer.collective + " over " +
                                                (transfer.axes.empty() ? "all devices" : transfer.axes)));
  }

  // A copy within host memory goes over the link twice; the device waits for the second transfer.
  End begin(const HostCopy& copy, double times, const HloInstruction& instruction) {
    const double rate = target_->host_gb_per_s * 1e9;
    End end{now_, kFromHost};
    for (const auto& [carrier, bytes, work] : {std::tuple(kFromHost, copy.to_device, "copy from the host"),
                                               std::tuple(kToHost, copy.to_host, "copy to the host")}) {
      if (bytes == 0) continue;
      host_bounds_[carrier] += times * bytes / rate;
      const double seconds = bytes / rate / assumptions_->link_share + assumptions_->kernel_seconds;
      end = enqueue(carrier, seconds, times, contributor(instruction, work));
    }
    return end;
  }

  End enqueue(Carrier carrier, double seconds, double times, Contributor& place) {
    out_.transfer_seconds += times * seconds;
    place.seconds += times * seconds;
    std::deque<Queued>& queue = queues_[carrier];
    const double from = queue.empty() ? now_ : std::max(now_, queue.back().end);
    queue.push_back({from, from + seconds, {place.op_name, place.work}});
    return {queue.back().end, carrier};
  }

  // Returns the end of the work that an instruction starts. Work that is not a transfer ends immediately.
  End start(const HloComputation& computation, const HloInstruction& instruction, double times) {
    if (const auto transfer = transfer_at(computation, instruction)) return begin(*transfer, times, instruction);
    if (const HostCopy copy = host_copy_of(*module_, computation, instruction); copy.any())
      return begin(copy, times, instruction);
    End end{now_};
    for (int called : instruction.called) {
      const HloComputation& inner = module_->computations[called];
      for (const HloInstruction& part : inner.instructions) {
        if (const auto transfer = transfer_at(inner, part)) {
          end = begin(*transfer, times, instruction);
        } else if (const HostCopy copy = host_copy_of(*module_, inner, part); copy.any()) {
          end = begin(copy, times, instruction);
        } else {
          compute(inner, part, times);
        }
      }
    }
    if (instruction.called.empty()) compute(computation, instruction, times);
    return end;
  }

  // Returns the position of the start instruction that belongs to a done or update instruction.
  static int start_of(const HloComputation& computation, int position) {
    while (computation.instructions[position].opcode == "async-update" &&
           !computation.instructions[position].operands.empty())
      position = computation.instructions[position].operands[0];
    return position;
  }

  // Makes the device wait until `end`. The transfers that the awaited carrier runs during this time count as exposed.
  // Transfers of other carriers stay hidden.
  void wait_until(const End& end, double times) {
    for (const Queued& transfer : queues_[end.carrier]) {
      const double exposed = std::min(end.moment, transfer.end) - std::max(now_, transfer.begin);
      if (exposed <= 0) continue;
      out_.exposed_seconds += times * exposed;
      contributors_[transfer.place].exposed_seconds += times * exposed;
    }
    now_ = std::max(now_, end.moment);
    for (std::deque<Queued>& queue : queues_)
      while (!queue.empty() && queue.front().end <= now_) queue.pop_front();
  }

  // Simulates two iterations. In the first one, transfers from before the loop may still be running. All later
  // iterations count like the second one.
  void run_loop(const HloInstruction& loop, double times) {
    const bool experts = loop.op_name.ends_with("experts") && assumptions_->expert_blocks > 0;
    int64_t trips = loop.trip_count;
    if (trips < 0) trips = experts ? assumptions_->expert_blocks : 1;
    if (loop.trip_count < 0 && !experts) loops_.insert(loop.name);
    const auto iterations = static_cast<double>(trips);
    if (iterations == 0) return;
    for (int called : loop.called) run(called, times);
    if (iterations == 1) return;
    const double before = now_;
    for (int called : loop.called) run(called, times * (iterations - 1));
    const double rest = (now_ - before) * (iterations - 2);
    now_ += rest;
    for (std::deque<Queued>& queue : queues_)
      for (Queued& transfer : queue) transfer.begin += rest, transfer.end += rest;
  }

  void run_longest(const HloInstruction& conditional, double times) {
    const Walk start = *this;
    for (int called : conditional.called) {
      Walk branch = start;
      branch.run(called, times);
      if (branch.now_ >= now_) *this = branch;
    }
  }

  const HloModule* module_;
  const MeshAxes* mesh_;
  const Target* target_;
  int64_t devices_per_host_;
  const Assumptions* assumptions_;
  Timeline out_;
  double now_ = 0;                                      // the device's clock
  std::array<std::deque<Queued>, kCarriers> queues_{};  // transfers that may still be running
  std::array<double, kCarriers> host_bounds_{};
  std::map<WorkPlace, Contributor> contributors_;
  std::set<std::string> loops_, kernels_;
};

}  // namespace

std::vector<std::string> describe(const Assumptions& assumptions) {
  std::vector<std::string> out{
      fmt::format("matrix products reach {:.0f}% of the data sheet's rate", 100 * assumptions.arithmetic_share),
      fmt::format("memory reaches {:.0f}% of its bandwidth; links, network and the link to the host reach {:.0f}%",
                  100 * assumptions.memory_share, 100 * assumptions.link_share),
      fmt::format("a kernel takes at least {:.0f} us; a collective takes {:.0f} us plus the time for its bytes",
                  1e6 * assumptions.kernel_seconds, 1e6 * assumptions.transfer_seconds)};
  if (assumptions.tf32) out.emplace_back("products of float32 reach the rate of TF32");
  if (assumptions.expert_blocks > 0)
    out.push_back(fmt::format("tokens are spread evenly over the experts: {} blocks of tokens per layer and device",
                              assumptions.expert_blocks));
  return out;
}

double share_of_links(int link_peers, double members) {
  return link_peers > 0 && members > 1 ? std::min(1.0, (members - 1) / link_peers) : 1;
}

double seconds_of(const Transfer& transfer, const Target& target, const Assumptions& assumptions) {
  const double links = target.link_gb_per_s * 1e9 * assumptions.link_share *
                       share_of_links(target.link_peers, static_cast<double>(transfer.on_host));
  const double network = target.network_gb_per_s * 1e9 * assumptions.link_share;
  const double on_links = transfer.link_bytes > 0 ? transfer.link_bytes / links : 0;
  const double on_network = transfer.network_bytes > 0 ? transfer.network_bytes / network : 0;
  return std::max(on_links, on_network) + assumptions.transfer_seconds;
}

Timeline estimate(const HloModule& module, const MeshAxes& mesh, const Target& target, int64_t devices_per_host,
                  const Assumptions& assumptions) {
  Walk walk(module, mesh, target, devices_per_host, assumptions);
  walk.run(module.entry, 1);
  Timeline out = walk.take();
  out.assumptions = assumptions;
  return out;
}

}  // namespace fettle
