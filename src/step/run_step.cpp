#include "step/run_step.h"

#include <cmath>

#include "base/random.h"
#include "optim/loss_scale.h"
#include "programs/layouts.h"
#include "step/state/batch_arrays.h"

namespace fettle {

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

StepOutcome run_step(const Devices& devices, const Run& run, const Executable& step, TrainState& state,
                     const Batch& batch, double learning_rate) {
  if (state.disk) state.disk->read_ahead();
  std::map<std::string, DeviceBuffer> inputs = upload_batch(devices, run, batch), scalars;
  for (const auto& [name, value] : run.optimizer.scalars(state.step + 1, learning_rate))
    scalars.emplace(name, replicate(devices, static_cast<float>(value)));
  const auto seed = static_cast<uint32_t>(mix_bits(run.seed, static_cast<uint64_t>(state.step)));
  inputs.emplace("seed", replicate(devices, HostArray::from<uint32_t>({DType::kU32, {}}, {seed})));

  Bindings bindings = state.bindings();
  for (auto* given : {&inputs, &scalars})
    for (auto& [name, buffer] : *given) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run_program(step, bindings);
  StepOutcome outcome{outputs.at("loss").download().as<float>()[0], outputs.at("grad_norm").download().as<float>()[0]};
  if (const auto sums = outputs.find("metrics"); sums != outputs.end())
    outcome.metrics = run.stage->metrics(run.keys, sums->second.download().as<float>());
  for (auto& [name, buffer] : outputs)
    if (const auto changed = state.buffers.find(name); changed != state.buffers.end())
      changed->second = std::move(buffer);
  if (state.disk && outcome.finite()) state.disk->update(devices, state.buffers, outputs, scalars);
  if (outcome.finite()) ++state.step;
  if (run.scales_loss()) {
    outcome.loss_scale = state.buffers.at(kLossScale).download().as<float>()[0];
    outcome.overflowed = !outcome.finite() && std::isfinite(outcome.loss) && outcome.loss_scale >= kSmallestLossScale;
  }
  return outcome;
}

}  // namespace fettle
