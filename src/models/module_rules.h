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

// `tensor` has the weights of all experts of a layer. Returns the modules that make up the part of one expert. If there
// are two, their weights are joined along the outputs. Examples, with the expert's number for {}:
// "experts.{}.down_proj" for "experts.down_proj"; "experts.{}.gate_proj" and "experts.{}.up_proj" for
// "experts.gate_up_proj". Returns an empty list for other tensors.
std::vector<std::string> expert_modules(const std::string& tensor, int64_t expert);

// Returns the layers in which covers(module) is true for all modules of the weight. If the weight has all experts, asks
// for the modules that expert_modules() returns.
std::vector<int64_t> layers_of_modules(const Param& param, const std::function<bool(const std::string&)>& covers);

}  // namespace fettle
