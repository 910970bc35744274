// Defines how quantization_config of config.json names modules, and which layers of a parameter it names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fettle {

struct Param;
class Regex;

// An entry of quantization_config that names modules.
struct ModuleRule {
  enum class Match {
    kName,  // `text` is the module's whole name; "Linear" stands for all linear layers
    kPart,  // the module's name begins or ends with `text`, or contains `text` between two dots
  };
  Match match = Match::kName;
  std::string text;                      // "re:...": a regular expression that must match from the name's start on
  std::shared_ptr<const Regex> pattern;  // the regular expression of "re:..."; else null

  bool names(const std::string& module) const;
};
// `file` is the config.json, for messages. Throws UserError for a regular expression that is not valid.
ModuleRule module_rule(const std::string& text, ModuleRule::Match match, const std::string& file);

// Returns the modules of one expert whose weights, joined along the outputs, are this expert's part of `tensor`, which
// has the weights of all experts of a layer: "experts.{}.down_proj" for "experts.down_proj", and "experts.{}.gate_proj"
// and "experts.{}.up_proj" for "experts.gate_up_proj", with the expert's number for {}. Returns {} for other tensors.
std::vector<std::string> expert_modules(const std::string& tensor, int64_t expert);

// Returns the layers in which covers(module) is true for all modules of the weight. A parameter with the weights of all
// experts stands for the experts' own modules (expert_modules).
std::vector<int64_t> layers_of_modules(const Param& param, const std::function<bool(const std::string&)>& covers);

}  // namespace fettle
