#include "models/quantization_config.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "models/config.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr const char* kQuantization = "quantization_config";

// Returns the dtype of the weights that config.json states, or else `otherwise`.
DType dtype_of_values(const Json& config, DType otherwise) {
  for (const Json* level : {&text_level(config), &config})
    for (const char* key : {"torch_dtype", "dtype"})
      if (const auto stated = level->find(key); stated != level->end() && stated->is_string())
        otherwise = dtype_from_hf(stated->get<std::string>());
  return otherwise;
}

BitsandbytesStorage read_bitsandbytes(const QuantizationSettings& settings) {
  const bool four = settings.flag("load_in_4bit", false) || settings.flag("_load_in_4bit", false);
  const bool eight = settings.flag("load_in_8bit", false) || settings.flag("_load_in_8bit", false);
  const std::string method = settings.text("quant_method", four || eight ? "bitsandbytes" : "");
  if (method != "bitsandbytes" || four == eight)
    throw UserError(
        "{}: the checkpoint is quantised by '{}' (quantization_config), which is not supported. Supported are "
        "bitsandbytes' 4-bit and 8-bit formats, gptq, awq, GPT-OSS's mxfp4, fp8, and compressed-tensors in packed "
        "integers or 8-bit floats. Use the original weights, with quantization_bit: 4 in the recipe if they are too "
        "large",
        settings.file(), method.empty() ? settings.json().dump() : method);
  BitsandbytesStorage out{.in_floats = settings.modules("llm_int8_skip_modules", ModuleRule::Match::kPart)};
  if (eight) {
    out.format = {Quantisation::Type::kInt8, false};
    return out;
  }
  const std::string type = settings.text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4" && type != "fp4") settings.refuse("bnb_4bit_quant_type", type, "nf4 or fp4");
  const std::string storage = settings.text("bnb_4bit_quant_storage", "uint8");
  if (storage != "uint8") settings.refuse("bnb_4bit_quant_storage", storage, "uint8");
  out.format = {type == "nf4" ? Quantisation::Type::kNf4 : Quantisation::Type::kFp4,
                settings.flag("bnb_4bit_use_double_quant", false)};
  return out;
}

// compressed-tensors: the first group of modules says whether the weights are integers or 8-bit floats.
StoredForm read_compressed_tensors(const QuantizationSettings& settings) {
  if (const Json transforms = settings.at("transform_config", Json()); !transforms.empty())
    settings.refuse("transform_config", transforms, "none, because Fettle does not rotate activations");
  const Json groups = settings.at("config_groups", nullptr);
  if (!groups.is_object() || groups.empty()) settings.refuse("config_groups", groups, "an object with a group");
  const Json& first = *groups.begin();
  const Json weights = first.is_object() ? first.value("weights", Json()) : Json();
  if (weights.is_object() && weights.value("type", Json("int")) == "int") return read_packed(settings);
  return read_compressed_floats(settings);
}

}  // namespace

const Json* quantization_config(const Json& config) {
  for (const Json* level : {&config, &text_level(config)})
    if (const auto stated = level->find(kQuantization); stated != level->end() && !stated->is_null()) return &*stated;
  return nullptr;
}

Json* quantization_config(Json& config) {
  return const_cast<Json*>(quantization_config(std::as_const(config)));
}

bool remove_quantization(Json& config) {
  bool removed = config.erase(kQuantization) > 0;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object())
    removed |= text->erase(kQuantization) > 0;
  return removed;
}

StoredForm stored_form(const Json& config, const std::string& file) {
  const Json* stated = quantization_config(config);
  if (stated == nullptr) return {};
  const QuantizationSettings settings(*stated, file);
  const Json method = settings.at("quant_method", nullptr);
  StoredForm form;
  if (method == "mxfp4")
    form = Mxfp4Storage{};
  else if (method == "fp8")
    form = read_fp8(settings);
  else if (method == "gptq")
    form = read_gptq(settings);
  else if (method == "awq")
    form = read_awq(settings);
  else if (method == "compressed-tensors")
    form = read_compressed_tensors(settings);
  else
    form = read_bitsandbytes(settings);
  if (auto* groups = std::get_if<GroupStorage>(&form)) groups->dtype = dtype_of_values(config, groups->dtype);
  return form;
}

int64_t QuantizationSettings::integer(const char* key, int64_t otherwise) const {
  const Json value = at(key, otherwise);
  if (!value.is_number_integer()) refuse(key, value, "an integer");
  return value;
}

bool QuantizationSettings::flag(const char* key, bool otherwise) const {
  const Json value = at(key, otherwise);
  if (!value.is_boolean()) refuse(key, value, "true or false");
  return value;
}

std::string QuantizationSettings::text(const char* key, const std::string& otherwise) const {
  const Json value = at(key, otherwise);
  if (!value.is_string()) refuse(key, value, "a string");
  return lower_case(value);
}

std::vector<std::string> QuantizationSettings::texts(const char* key) const {
  std::vector<std::string> out;
  const Json list = at(key, Json::array());
  if (!list.is_array()) refuse(key, list, "a list of names");
  for (const Json& item : list)
    for (const Json& name : item.is_array() ? item : Json::array({item}))
      if (name.is_string())
        out.push_back(name);
      else
        refuse(key, list, "a list of names");
  return out;
}

std::vector<ModuleRule> QuantizationSettings::modules(const char* key, ModuleRule::Match match) const {
  std::vector<ModuleRule> out;
  for (const std::string& name : texts(key)) out.push_back(module_rule(name, match, file_));
  return out;
}

void QuantizationSettings::refuse(const char* key, const Json& value, const std::string& wanted) const {
  throw UserError(
      "{}: {} is {} in quantization_config, wanted {}. Use another checkpoint of the model, or its original weights. "
      "If the original weights are too large, set quantization_bit: 4",
      file_, key, value.dump(), wanted);
}

}  // namespace fettle
