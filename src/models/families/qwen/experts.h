// Reads the config fields of Qwen's mixtures of experts.
#pragma once

#include "models/config.h"

namespace fettle {

// The values that a family uses for fields that its config lacks.
struct QwenExperts {
  int64_t size, count, per_token;
  bool normalised;
};

// Reads the experts' sizes, the router and the layers that have experts.
void read_qwen_experts(const ConfigReader& reader, ModelConfig& config, const ExpertNames& names,
                       const QwenExperts& usual);
// Reads the shared expert, which has a gate. `usual_size` is the shared expert's size if the config gives none.
void read_shared_expert(const ConfigReader& reader, ModelConfig& config, int64_t usual_size);

}  // namespace fettle
