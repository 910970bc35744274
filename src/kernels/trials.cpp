#include "kernels/trial.h"

namespace fettle {

std::vector<Trial> trials_of(std::string_view composite, const MeshAxes& mesh, bool every_width) {
  if (composite == "attention") return attention_trials(mesh, every_width);
  if (composite == "linear") return linear_trials(mesh);
  return {};
}

}  // namespace fettle
