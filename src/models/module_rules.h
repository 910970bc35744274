// Defines ModuleRule, an entry of quantization_config (in config.json) that names modules. Also defines functions that
// find the layers in which a condition holds for all modules of a parameter.
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
    // The module's name is `text`, begins with it and a dot, ends with it, or contains it between two dots. If `text`
    // has one of *[](){}|\+?^$, it is also a regular expression, as in Transformers. A match of this expression ends
    // before a dot, after a dot, or at the end of the name.
    kPart,
  };
  Match match = Match::kName;
  std::string text;  // "re:...": a regular expression
  // The regular expression, which must match the beginning of the name; null: `text` is none.
  std::shared_ptr<const Regex> pattern;

  bool names(const std::string& module) const;
};
// `file` is the config.json, for messages. Throws UserError for a regular expression that is not valid.
ModuleRule module_rule(const std::string& text, ModuleRule::Match match, const std::string& file);

// `tensor` is the name of a tensor with the weights of all experts of a layer. Returns the modules whose weights form
// the tensor's slice for `expert`. If there are two modules, their weights are joined along the outputs. Examples, with
// {} for the expert's number: "experts.{}.down_proj" for "experts.down_proj"; "experts.{}.gate_proj" and
// "experts.{}.up_proj" for "experts.gate_up_proj". Returns an empty list for any other name.
std::vector<std::string> expert_modules(const std::string& tensor, int64_t expert);

// Returns whether one of the rules names the module.
bool any_names(const std::vector<ModuleRule>& rules, const std::string& module);

// Returns the layers in which covers(module) is true for all modules of the weight. If one tensor has the weights of
// all experts, its modules are those that expert_modules() returns for each expert.
std::vector<int64_t> layers_of_modules(const Param& param, const std::function<bool(const std::string&)>& covers);

}  // namespace fettle
