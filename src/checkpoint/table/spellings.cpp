#include "checkpoint/table/spellings.h"

#include <utility>

namespace fettle {

std::vector<std::string> spellings(std::string_view name) {
  std::vector<std::string> out{std::string(name)};
  for (const auto& [now, then] :
       {std::pair{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}})
    if (name.ends_with(now))
      out.push_back(std::string(name.substr(0, name.size() - std::string_view(now).size())) + then);
  // Adds the names that Transformers 4 wrote for the text model of a checkpoint with images, and names that
  // Transformers changes when it loads a checkpoint.
  for (const auto& [now, then] :
       {std::pair<std::string_view, const char*>{"model.language_model.", "language_model.model."},
        {"lm_head.", "language_model.lm_head."},
        {"model.", "backbone."}})  // Nemotron-H's older name
    if (name.starts_with(now)) out.push_back(then + std::string(name.substr(now.size())));
  for (const char* base : {"model.", "transformer.", "bert.", "roberta."})
    if (name.starts_with(base))
      for (size_t i = 0, known = out.size(); i < known; ++i)
        out.push_back(out[i].substr(std::string_view(base).size()));
  return out;
}

}  // namespace fettle
