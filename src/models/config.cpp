#include "models/config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fettle {

std::optional<int64_t> ModelConfig::uniform_window() const {
  if (window.empty()) return 0;
  for (int64_t w : window)
    if (w != window[0]) return std::nullopt;
  return window[0];
}

const nlohmann::json* ConfigReader::find(const std::string& key) const {
  const auto at = json_.find(key);
  return at == json_.end() || at->is_null() ? nullptr : &*at;
}

bool ConfigReader::has(const std::string& key) const {
  return find(key) != nullptr;
}

int64_t ConfigReader::integer(const std::string& key) const {
  if (!has(key)) throw UserError("{}: '{}' is missing; is this a complete Hugging Face config.json?", file_, key);
  return integer(key, 0);
}

int64_t ConfigReader::integer(const std::string& key, int64_t otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer() || value->get<int64_t>() <= 0 || value->get<int64_t>() > (int64_t{1} << 40))
    throw UserError("{}: '{}' is {}, wanted a positive integer", file_, key, value->dump());
  return value->get<int64_t>();
}

double ConfigReader::number(const std::string& key, double otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) throw UserError("{}: '{}' is {}, wanted a number", file_, key, value->dump());
  return value->get<double>();
}

bool ConfigReader::flag(const std::string& key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) throw UserError("{}: '{}' is {}, wanted true or false", file_, key, value->dump());
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) throw UserError("{}: '{}' is {}, wanted a string", file_, key, value->dump());
  return value->get<std::string>();
}

void ConfigReader::refuse_unless(const std::string& key, const nlohmann::json& value) const {
  const nlohmann::json* found = find(key);
  if (found != nullptr && *found != value)
    throw UserError("{}: '{}' is {}; only {} is implemented for this family", file_, key, found->dump(), value.dump());
}

void ConfigReader::read_common(ModelConfig& config, bool tied_by_default) const {
  config.model_type = text("model_type", "");
  config.vocab_size = integer("vocab_size");
  config.tie_word_embeddings = flag("tie_word_embeddings", tied_by_default);
  config.initializer_range = number("initializer_range", 0.02);
  config.dtype = dtype_from_hf(text("dtype", text("torch_dtype", "float32")));
  if (const nlohmann::json* eos = find("eos_token_id")) {
    for (const nlohmann::json& id : eos->is_array() ? *eos : nlohmann::json::array({*eos}))
      if (id.is_number_integer()) config.eos_token_id.push_back(id.get<int32_t>());
  }
  auto id = [this](const char* key) -> std::optional<int32_t> {
    const nlohmann::json* value = find(key);
    if (value == nullptr || !value->is_number_integer()) return std::nullopt;
    return value->get<int32_t>();
  };
  config.bos_token_id = id("bos_token_id");
  config.pad_token_id = id("pad_token_id");
  if (has("quantization_config"))
    throw UserError(
        "{}: the checkpoint is quantised ('quantization_config'), which is not supported; use the original "
        "weights",
        file_);
}

RopeParameters ConfigReader::rope() const {
  RopeParameters out;
  out.rope_theta = number("rope_theta", out.rope_theta);
  const nlohmann::json* scaling = find("rope_parameters");
  if (scaling == nullptr) scaling = find("rope_scaling");
  if (scaling == nullptr) return out;
  if (!scaling->is_object()) throw UserError("{}: rope settings are {}, wanted an object", file_, scaling->dump());
  const ConfigReader inner(*scaling, file_ + " (rope settings)");
  out.rope_theta = inner.number("rope_theta", out.rope_theta);
  out.rope_type = inner.text("rope_type", inner.text("type", "default"));
  out.factor = inner.number("factor", 1);
  out.low_freq_factor = inner.number("low_freq_factor", 1);
  out.high_freq_factor = inner.number("high_freq_factor", 4);
  out.original_max_position_embeddings = inner.integer("original_max_position_embeddings", 0);
  if (out.rope_type != "default" && out.rope_type != "linear" && out.rope_type != "llama3")
    throw UserError("{}: rope_type '{}' is not implemented; default, linear and llama3 are", file_, out.rope_type);
  if (out.rope_type == "llama3" && out.original_max_position_embeddings == 0)
    throw UserError("{}: rope_type llama3 needs original_max_position_embeddings", file_);
  return out;
}

}  // namespace fettle
