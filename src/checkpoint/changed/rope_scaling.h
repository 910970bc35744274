// Defines scale_rope, which stretches a model's positions over longer rows by changing its config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fettle {

// How positions are stretched. The methods are those of LLaMA-Factory's rope_scaling.
struct RopeScaling {
  std::string type;               // linear, dynamic, yarn or llama3; empty: no scaling
  std::optional<int64_t> length;  // tokens of the longest row; none: twice the model's original length
  std::string at;                 // where the key was set, for messages

  bool asked() const { return !type.empty(); }
};

// Changes the rope settings and max_position_embeddings of `config` so that rows of `scaling.length` tokens fit. The
// factor is the length divided by the model's original length, rounded up. Returns false, and warns, when the rows fit
// already. `file` names the config in messages. Throws UserError when the model has no rope, or when its original
// length is unknown.
bool scale_rope(nlohmann::json& config, const RopeScaling& scaling, const std::string& file);

}  // namespace fettle
