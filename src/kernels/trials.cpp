#include "kernels/trial.h"

namespace fettle {

std::vector<Trial> trials_of(std::string_view composite, const MeshAxes& mesh, bool every_width) {
  if (composite == "attention") return attention_trials(mesh, every_width);
  if (composite == "linear") return linear_trials(mesh);
  if (composite == "lora") return lora_trials(mesh);
  if (composite == "gated") return gated_trials(mesh);
  if (composite == "rms_norm") return rms_norm_trials(mesh);
  if (composite == "rope") return rope_trials(mesh);
  if (composite == "cross_entropy") return cross_entropy_trials(mesh);
  return {};
}

}  // namespace fettle
