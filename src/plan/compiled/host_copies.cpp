#include "plan/compiled/host_copies.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "plan/compiled/cost.h"

namespace fettle {
namespace {

bool on_host(const HloInstruction& instruction) {
  return std::ranges::any_of(instruction.results, &HloArray::host);
}

}  // namespace

HostCopy host_copy_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction) {
  static const std::set<std::string_view> moving = {"copy",  "copy-start",           "dynamic-slice",
                                                    "slice", "dynamic-update-slice", "fusion"};
  if (!moving.contains(instruction.opcode) || instruction.operands.empty() || instruction.results.empty()) return {};
  HostCopy out;
  const bool to_host = instruction.results[0].host;
  const auto operand = [&](size_t i) -> const HloInstruction& {
    return computation.instructions[instruction.operands[i]];
  };
  for (size_t i = 0; i < instruction.operands.size(); ++i)
    if (on_host(operand(i))) out.to_device += bytes_read(module, computation, instruction, i);
  // The results of a copy-start include its operand.
  if (to_host)
    out.to_host = instruction.opcode == "copy-start" ? static_cast<double>(instruction.results[0].bytes())
                                                     : bytes_written(module, computation, instruction);
  return out;
}

HostTraffic host_traffic_of(const HloModule& module) {
  const std::vector<Executions> executions = executions_of(module, false);
  HostTraffic out;
  for (int c = static_cast<int>(module.computations.size()) - 1; c >= 0; --c) {
    const HloComputation& computation = module.computations[c];
    const auto [all, asynchronous] = executions[c];
    if (all == 0) continue;
    for (const HloInstruction& instruction : computation.instructions) {
      const HostCopy copy = host_copy_of(module, computation, instruction);
      if (!copy.any()) continue;
      out.to_device += all * copy.to_device;
      out.to_host += all * copy.to_host;
      out.executions += all;
      out.asynchronous += instruction.opcode == "copy-start" ? all : asynchronous;
    }
  }
  return out;
}

}  // namespace fettle
