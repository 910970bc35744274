// Defines StoredForm, which quantization_config in config.json states: how a checkpoint stores its quantised weights.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "models/float8_storage.h"
#include "models/group_storage.h"
#include "models/module_rules.h"
#include "models/quantisation.h"

namespace fettle {

// bitsandbytes: the linear layers are in nf4, fp4 or int8.
struct BitsandbytesStorage {
  Quantisation format;
  std::vector<ModuleRule> in_floats;  // modules that stay in floats (llm_int8_skip_modules)
};
// GPT-OSS: the experts are in MXFP4.
struct Mxfp4Storage {};
// monostate: the weights are floats.
using StoredForm = std::variant<std::monostate, BitsandbytesStorage, GroupStorage, Float8Storage, Mxfp4Storage>;

// `config` is the content of `file`, a config.json. Throws UserError when quantization_config states a form that is not
// implemented.
StoredForm stored_form(const nlohmann::json& config, const std::string& file);

// Returns quantization_config, which config.json has at the top or in `text_config`; the one at the top takes
// precedence. Returns null if there is none, or if it is null. The result is a part of `config`.
const nlohmann::json* quantization_config(const nlohmann::json& config);
nlohmann::json* quantization_config(nlohmann::json& config);
// Removes quantization_config at both places. Returns whether there was one.
bool remove_quantization(nlohmann::json& config);

// Reads fields of quantization_config. A field that is null counts as missing. Throws UserError on a value of a wrong
// type. `json` and `file` must outlive the object.
class QuantizationSettings {
 public:
  QuantizationSettings(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  bool given(const char* key) const { return json_.contains(key); }  // also if it is null
  bool has(const char* key) const { return given(key) && !json_[key].is_null(); }
  nlohmann::json at(const char* key, const nlohmann::json& otherwise) const {
    return has(key) ? json_[key] : otherwise;
  }
  int64_t integer(const char* key, int64_t otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;  // in lower case
  // Returns the strings in a list or in the lists within it.
  std::vector<std::string> texts(const char* key) const;
  // Returns the rules for the modules that a list names.
  std::vector<ModuleRule> modules(const char* key, ModuleRule::Match match) const;
  [[noreturn]] void refuse(const char* key, const nlohmann::json& value, const std::string& wanted) const;

  const nlohmann::json& json() const { return json_; }
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json& json_;
  const std::string& file_;
};

}  // namespace fettle
