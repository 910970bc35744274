#include "config/foreign/torchtune.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "config/value.h"

namespace fettle {
namespace {

std::string component(const YAML::Node& root) {
  const YAML::Node model = root["model"];
  if (!model.IsDefined() || !model.IsMap()) return "";
  const YAML::Node name = model["_component_"];
  return name.IsDefined() && name.IsScalar() ? name.Scalar() : "";
}

// Returns the layers with an adapter, by their names in Hugging Face's layout.
// Source: torchtune/models/convert_weights.py.
YAML::Node lora_target(const YAML::Node& model, const std::string& file) {
  YAML::Node target(YAML::NodeType::Sequence);
  const YAML::Node layers = model["lora_attn_modules"];
  if (layers.IsDefined() && !layers.IsNull() && !layers.IsSequence())
    throw UserError("{}:{}: lora_attn_modules: found {}, wanted a list of layers", file, layers.Mark().line + 1,
                    describe_node(layers));
  if (layers.IsDefined() && layers.IsSequence())
    for (const auto& layer : layers) {
      const std::string name = layer.IsScalar() ? layer.Scalar() : "?";
      if (name != "q_proj" && name != "k_proj" && name != "v_proj" && name != "output_proj")
        throw UserError("{}:{}: lora_attn_modules: found '{}', wanted q_proj, k_proj, v_proj or output_proj", file,
                        layer.Mark().line + 1, name);
      target.push_back(name == "output_proj" ? "o_proj" : name);
    }
  if (is_on(model["apply_lora_to_mlp"]))
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) target.push_back(name);
  if (is_on(model["apply_lora_to_output"]))
    throw UserError(
        "{}:{}: apply_lora_to_output: Fettle has no LoRA for the head; set it to false, or train the head in full with "
        "additional_target: lm_head in a recipe of Fettle",
        file, model["apply_lora_to_output"].Mark().line + 1);
  return target;
}

YAML::Node inner(const YAML::Node& root, const char* section, const char* key) {
  const YAML::Node map = root[section];
  return map.IsDefined() && map.IsMap() ? map[key] : YAML::Node(YAML::NodeType::Undefined);
}

bool is_missing(const YAML::Node& node) {
  return !node.IsDefined() || node.IsNull();
}

// torchtune's recipes use only what the file names: without a schedule, the learning rate is constant; without
// clip_grad_norm, gradients are not clipped. The optimizers' own defaults are those of torch and bitsandbytes.
void read_usual(const YAML::Node& root, Dialect& out) {
  const auto usual = [&](const char* key, const char* value) { out.usual.emplace_back(key, YAML::Node(value)); };
  if (is_missing(root["lr_scheduler"])) usual("lr_scheduler_type", "constant");
  usual("max_grad_norm", "0");
  const YAML::Node optimizer = inner(root, "optimizer", "_component_");
  const std::string name = optimizer.IsDefined() && optimizer.IsScalar() ? optimizer.Scalar() : "";
  if (name.find("AdamW") != std::string::npos) usual("weight_decay", "0.01");
  if (is_missing(inner(root, "tokenizer", "max_seq_len")) && is_missing(root["cutoff_len"]))
    warn("tokenizer.max_seq_len is not given: torchtune then cuts no row, but Fettle cuts rows at 2048 tokens; set it");
}

// Reads `loss`. DPO makes the recipe one of preferences; losses of language models are all cross-entropy.
void read_loss(const YAML::Node& root, const std::string& file, Dialect& out) {
  const YAML::Node given = inner(root, "loss", "_component_");
  const std::string loss = given.IsDefined() && given.IsScalar() ? given.Scalar() : "";
  const bool distils = loss.find("KL") != std::string::npos || loss.find("KD") != std::string::npos;
  if (distils || (loss.starts_with("torchtune.rlhf.") && !loss.ends_with(".DPOLoss")))
    throw UserError("{}:{}: the loss {} is not available; use cross-entropy or torchtune.rlhf.loss.DPOLoss", file,
                    given.Mark().line + 1, loss);
  if (!loss.ends_with(".DPOLoss")) return;
  out.handled.insert("loss");
  out.meant.emplace_back("stage", YAML::Node("dpo"));
  out.usual.emplace_back("disable_dropout", YAML::Node("false"));
  for (const auto& [from, to] : {std::pair{"beta", "pref_beta"}, {"label_smoothing", "dpo_label_smoothing"}})
    if (const YAML::Node value = inner(root, "loss", from); !is_missing(value)) out.meant.emplace_back(to, value);
}

}  // namespace

bool is_torchtune(const YAML::Node& root) {
  return component(root).starts_with("torchtune.");
}

Dialect read_torchtune(const YAML::Node& root, const std::string& file) {
  static const std::map<std::string, std::string> kKeys = {{"lora_rank", "lora_rank"},
                                                           {"lora_alpha", "lora_alpha"},
                                                           {"lora_dropout", "lora_dropout"},
                                                           {"use_dora", "use_dora"}};
  Dialect out{.tool = "torchtune"};
  const YAML::Node model = root["model"];
  const std::string name = component(root);
  const bool four_bits = name.find(".qlora_") != std::string::npos || is_on(model["quantize_base"]);
  const bool lora = four_bits || name.find(".lora_") != std::string::npos;
  const auto mean = [&](const std::string& key, const YAML::Node& value) { out.meant.emplace_back(key, value); };
  mean("finetuning_type", YAML::Node(lora ? "lora" : "full"));
  if (four_bits) mean("quantization_bit", YAML::Node("4"));
  if (lora) {
    out.usual.emplace_back("lora_rank", YAML::Node("8"));
    out.usual.emplace_back("lora_alpha", YAML::Node("16"));
    if (const YAML::Node target = lora_target(model, file); target.size() > 0) mean("lora_target", target);
  }
  read_usual(root, out);
  read_loss(root, file, out);
  // torchtune validates only if run_val_every_n_steps is set, which is a row of not_available().
  for (const char* key : {"dataset_val", "batch_size_val"}) out.handled.insert(key);
  for (const auto& pair : model) {
    const std::string key = pair.first.Scalar();
    if (key == "_component_" || key == "lora_attn_modules" || key.starts_with("apply_lora_to_") ||
        key == "quantize_base" || pair.second.IsNull())
      continue;
    const auto known = kKeys.find(key);
    if (known == kKeys.end())
      throw UserError("{}:{}: model.{} is not available; remove the key, or set the field in the model's config.json",
                      file, pair.first.Mark().line + 1, key);
    mean(known->second, pair.second);
  }
  out.handled.insert("model");
  return out;
}

}  // namespace fettle
