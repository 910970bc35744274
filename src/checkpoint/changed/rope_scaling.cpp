#include "checkpoint/changed/rope_scaling.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "models/model.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr const char* kLongest = "max_position_embeddings";
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kGrowth = "llama_4_scaling_beta";  // ministral3: queries grow with the position

bool names(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && !object[key].is_null();
}

Json& text_of(Json& config) {
  return names(config, "text_config") && config["text_config"].is_object() ? config["text_config"] : config;
}

// Returns the rope settings. If the config has separate settings for layers with and without a window, returns those
// for the layers without a window.
Json& settings_of(Json& text) {
  Json& settings = text[names(text, "rope_parameters") ? "rope_parameters" : "rope_scaling"];
  return names(settings, "full_attention") ? settings["full_attention"] : settings;
}

int64_t original_length(const Json& text, const Json& settings, const std::string& file, const RopeScaling& scaling) {
  for (const auto& [object, key] : {std::pair{&text, kOriginal}, {&settings, kOriginal}, {&text, kLongest}})
    if (names(*object, key) && (*object)[key].is_number_integer() && (*object)[key] > 0)
      return (*object)[key].get<int64_t>();
  throw UserError("{}: rope_scaling: {} lacks {}; add this key to the file", scaling.at, file, kLongest);
}

// Throws UserError when the model has no rope that can be scaled. Writes a trial value into the copy `config` and reads
// it back as the family does: only a family with rope returns the value.
void check_family(Json config, const RopeScaling& scaling, const std::string& file) {
  const Family* family = find_family(config);
  if (family == nullptr) return;  // a later check reports an unknown family
  if (family->model_type == "phi3")
    throw UserError(
        "{}: rope_scaling: Transformers scales the positions of phi3 only with factors from config.json (longrope); "
        "use a variant of the model with longer positions, or remove the key",
        scaling.at);
  Json& text = text_of(config);
  settings_of(text) = {{"rope_type", "linear"}, {"factor", 2.0}};
  const ModelConfig read = family->read(ConfigReader(config, file));
  if (read.rope.rope_type != "linear" || read.alibi)
    throw UserError("{}: rope_scaling: {} has no rotary positions that can be scaled; remove the key", scaling.at,
                    family->model_type);
}

}  // namespace

bool scale_rope(Json& config, const RopeScaling& scaling, const std::string& file) {
  check_family(config, scaling, file);
  Json& text = text_of(config);
  Json& settings = settings_of(text);
  const int64_t original = original_length(text, settings, file, scaling);
  const int64_t length = scaling.length.value_or(2 * original);
  if (length <= original) {
    warn("{}: rope_scaling has no effect: cutoff_len {} is within the {} positions of the model", scaling.at, length,
         original);
    return false;
  }
  const int64_t factor = (length + original - 1) / original;
  const Json old = settings.is_object() ? settings : Json::object();
  const std::string old_type = old.value("rope_type", old.value("type", "default"));
  const bool grows = names(old, kGrowth) && old[kGrowth] != 0;
  if (grows && scaling.type == "dynamic")
    throw UserError(
        "{}: rope_scaling: dynamic is not implemented for a model whose queries grow with the position ({}); use yarn",
        scaling.at, kGrowth);
  if (old_type != "default")
    warn("{}: rope_scaling replaces the model's own scaling ({}){}; remove the key to keep the model's", scaling.at,
         old_type, names(old, "mscale_all_dim") ? " and its factor on the scores of attention (mscale_all_dim)" : "");
  Json changed{{"rope_type", scaling.type}, {"factor", static_cast<double>(factor)}};
  for (const char* kept : {"rope_theta", "partial_rotary_factor", kGrowth})
    if (names(old, kept)) changed[kept] = old[kept];
  // The queries grow in units of this length.
  if (scaling.type != "linear" || grows) changed[kOriginal] = original;
  if (scaling.type == "llama3") changed["low_freq_factor"] = 1.0, changed["high_freq_factor"] = 4.0;
  settings = changed;
  if (names(text, kOriginal)) text[kOriginal] = original;
  text[kLongest] = original * factor;
  info("rope_scaling: {} with factor {}: the model takes {} positions instead of {}", scaling.type, factor,
       original * factor, original);
  return true;
}

}  // namespace fettle
