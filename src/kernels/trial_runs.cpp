#include "kernels/trial_runs.h"

#include "base/arrays/trial_numbers.h"
#include "programs/signature.h"
#include "runtime/compile_cache.h"

namespace fettle {
namespace {

// Returns a program with the inputs and the results of all the trials, one trial after the other.
Program program_of(const Devices& devices, const std::vector<const Trial*>& trials, const ChooseKernel& choose) {
  Program program(devices.flat_mesh(), choose);
  BuildScope scope(program.block());
  for (size_t t = 0; t < trials.size(); ++t) {
    std::vector<Tensor> inputs;
    for (const TrialInput& input : trials[t]->inputs)
      inputs.push_back(
          program.input(fmt::format("trial{}/input{}", t, inputs.size()), input.value.shape(), input.partition));
    const std::vector<Tensor> results = trials[t]->build(inputs);
    for (size_t r = 0; r < results.size(); ++r) program.output(fmt::format("trial{}/result{}", t, r), results[r]);
  }
  return program;
}

std::vector<TrialResults> run(const Devices& devices, const std::vector<const Trial*>& trials,
                              const ChooseKernel& choose) {
  const Program program = program_of(devices, trials, choose);
  const Executable executable = devices.client().compile(program.text(), signature_of(program),
                                                         {.num_partitions = static_cast<int>(program.mesh().size())});
  std::vector<DeviceBuffer> buffers;
  for (const Trial* trial : trials)
    for (const TrialInput& input : trial->inputs)
      buffers.push_back(
          DeviceBuffer::upload(devices.client(), input.value, executable.signature().inputs[buffers.size()].layout));
  std::vector<DeviceBuffer*> arguments;
  for (DeviceBuffer& buffer : buffers) arguments.push_back(&buffer);
  std::vector<DeviceBuffer> results = executable.run(arguments);
  std::vector<TrialResults> out;
  auto next = results.begin();
  for (const Trial* trial : trials) {
    TrialResults& of_trial = out.emplace_back();
    for (size_t r = 0; r < trial->wanted.size(); ++r) of_trial.push_back(doubles((next++)->download()));
  }
  return out;
}

}  // namespace

std::string TrialRuns::key_of(const Trial& trial, const ChooseKernel& choose) const {
  ContentKey key;
  key.add(program_of(*devices_, {&trial}, choose).text());
  for (const TrialInput& input : trial.inputs)
    key.add({reinterpret_cast<const char*>(input.value.data()), static_cast<size_t>(input.value.bytes())});
  return key.text();
}

TrialResults TrialRuns::operator()(const Trial& trial, const ChooseKernel& choose) const {
  const std::string key = key_of(trial, choose);
  if (const auto known = known_->find(key); known != known_->end()) return known->second;
  return (*known_)[key] = run(*devices_, {&trial}, choose).front();
}

void TrialRuns::together(const std::vector<Trial>& trials, const ChooseKernel& choose) const {
  std::vector<const Trial*> missing;
  std::vector<std::string> keys;
  for (const Trial& trial : trials) {
    const std::string key = key_of(trial, choose);
    if (known_->contains(key)) continue;
    missing.push_back(&trial);
    keys.push_back(key);
  }
  if (missing.empty()) return;
  const std::vector<TrialResults> results = run(*devices_, missing, choose);
  for (size_t i = 0; i < keys.size(); ++i) (*known_)[keys[i]] = results[i];
}

}  // namespace fettle
