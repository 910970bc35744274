#include "models/module_rules.h"

#include <algorithm>

#include "models/param.h"
#include "tokenizer/text/regex.h"

namespace fettle {
namespace {

// Returns the module's name. If the module is in the text model of a model with images, also returns the module's name
// in Transformers 4.
std::vector<std::string> spellings_of(const std::string& module) {
  static const std::string kNow = "model.language_model.", kThen = "language_model.model.";
  if (!module.starts_with(kNow)) return {module};
  return {module, kThen + module.substr(kNow.size())};
}

}  // namespace

// Sources: compressed-tensors' utils/match.py (is_match); GPTQModel's dynamic_get; Transformers' should_convert_module.
bool ModuleRule::names(const std::string& module) const {
  if (match == Match::kName && text == "Linear") return true;
  return std::ranges::any_of(spellings_of(module), [&](const std::string& name) {
    if (pattern) {
      bool found = false;
      pattern->cover(name, [&](size_t start, size_t, bool is_match) { found = found || (is_match && start == 0); });
      if (found || match == Match::kName) return found;
    }
    if (match == Match::kName) return name == text;
    const bool begins = name.starts_with(text.ends_with('.') ? text : text + ".");
    return begins || name.ends_with(text) || name.find("." + text + ".") != std::string::npos;
  });
}

bool any_names(const std::vector<ModuleRule>& rules, const std::string& module) {
  return std::ranges::any_of(rules, [&](const ModuleRule& rule) { return rule.names(module); });
}

std::vector<std::string> expert_modules(const std::string& tensor, int64_t expert) {
  const size_t dot = tensor.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string module = tensor.substr(0, dot) + "." + std::to_string(expert) + ".", part = tensor.substr(dot + 1);
  if (part == "down_proj") return {module + "down_proj"};
  if (part == "gate_up_proj") return {module + "gate_proj", module + "up_proj"};
  return {};
}

ModuleRule module_rule(const std::string& text, ModuleRule::Match match, const std::string& file) {
  ModuleRule rule{match, text, nullptr};
  const bool marked = text.starts_with("re:");
  if (marked || (match == ModuleRule::Match::kPart && text.find_first_of("*[](){}|\\+?^$") != std::string::npos)) {
    std::string expression = text.substr(marked ? 3 : 0);
    // As in Transformers, a match ends at the end of a part of the name: ".*mlp.gate" does not match "mlp.gate_proj".
    if (match == ModuleRule::Match::kPart) expression = "(?:" + expression + ")(?:(?<=\\.)|(?=\\.|$))";
    rule.pattern = std::make_shared<const Regex>(expression, file + ": quantization_config");
  }
  return rule;
}

std::vector<int64_t> layers_of_modules(const Param& param, const std::function<bool(const std::string&)>& covers) {
  static const std::string kEnd = ".weight";
  const int64_t each = param.stored_count() / param.layer_count();  // number of tensors for one layer
  std::vector<int64_t> out;
  for (size_t i = 0; i < param.layers.numbers.size(); ++i) {
    bool all = true;
    for (int64_t tensor = 0; tensor < each; ++tensor) {
      const std::string name = param.stored_name(static_cast<int64_t>(i) * each + tensor);
      if (param.role != Role::kExpertsFused)
        all = all && name.ends_with(kEnd) && covers(name.substr(0, name.size() - kEnd.size()));
      else
        for (int64_t expert = 0; expert < param.dims[0]; ++expert) {
          const std::vector<std::string> modules = expert_modules(name, expert);
          all = all && !modules.empty() && std::ranges::all_of(modules, covers);
        }
    }
    if (all) out.push_back(param.layers.numbers[i]);
  }
  return out;
}

}  // namespace fettle
