#include "kernels/trial.h"

namespace fettle {

std::vector<Trial> trials_of(std::string_view composite, const MeshAxes& mesh) {
  if (composite == "attention") return attention_trials(mesh);
  if (composite == "linear") return linear_trials(mesh);
  return {};
}

}  // namespace fettle
