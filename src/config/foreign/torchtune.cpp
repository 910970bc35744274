#include "config/foreign/torchtune.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/foreign/references.h"
#include "config/foreign/tables.h"
#include "config/foreign/torchtune_sets.h"
#include "config/keys.h"
#include "config/known_keys.h"
#include "config/value.h"

namespace fettle {
namespace {

std::string component(const YAML::Node& root) {
  const YAML::Node model = root["model"];
  return model.IsDefined() && model.IsMap() ? text_of(model["_component_"]) : "";
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

// Phi-3 and Phi-4 have one layer for q, k and v, and one for gate and up. torchtune splits these layers, so its
// adapters can be on some of the parts; Fettle's are on the whole layer. Returns the layers under the names of these
// models.
YAML::Node fused_target(const YAML::Node& target, const YAML::Node& model, const std::string& file) {
  YAML::Node out(YAML::NodeType::Sequence);
  const auto add = [&](const std::vector<std::string_view>& parts, const std::string& layer) {
    const auto is_named = [&](std::string_view part) {
      return std::any_of(target.begin(), target.end(), [&](const auto& name) { return name.Scalar() == part; });
    };
    const auto count = std::ranges::count_if(parts, is_named);
    if (count == 0) return;
    out.push_back(layer);
    if (count < std::ssize(parts))
      info("{}: lora_attn_modules: the model has one layer {} for {}, so all of them are adapted",
           place_of(file, model["lora_attn_modules"]), layer, fmt::join(parts, ", "));
  };
  add({"q_proj", "k_proj", "v_proj"}, "qkv_proj");
  add({"o_proj"}, "o_proj");
  add({"gate_proj", "up_proj"}, "gate_up_proj");
  add({"down_proj"}, "down_proj");
  return out;
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
  if (text_of(inner(root, "optimizer", "_component_")).find("AdamW") != std::string::npos)
    usual("weight_decay", "0.01");
  if (is_missing(inner(root, "tokenizer", "max_seq_len")) && is_missing(root["cutoff_len"]))
    warn("tokenizer.max_seq_len is not given: torchtune then cuts no row, but Fettle cuts rows at 2048 tokens; set it");
}

// Reads `loss`. DPO makes the recipe one of preferences; losses of language models are all cross-entropy.
void read_loss(const YAML::Node& root, const std::string& file, Dialect& out) {
  const YAML::Node given = inner(root, "loss", "_component_");
  const std::string loss = text_of(given);
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

// Returns the model that the run trains: the override under any of its names, else the model of the file.
std::string trained_model(const YAML::Node& root, const YAML::Node& all) {
  std::string model = text_of(inner(root, "checkpointer", "checkpoint_dir"));
  for (const auto& pair : all) {
    const Key* key = find_key(text_of(pair.first));
    const std::string value = text_of(pair.second);
    if (key != nullptr && key->name == "model_name_or_path" && !value.empty()) model = value;
  }
  return model;
}

// Returns whether DPO's reference model is the value of the trained model's key, whatever that is.
bool refers_to_trained(const YAML::Node& root) {
  return text_of(inner(root, "ref_checkpointer", "checkpoint_dir")) == "${checkpointer.checkpoint_dir}";
}

// Reads the folder of DPO's reference model. The model at the start of the run needs no key.
void read_reference(const YAML::Node& root, const YAML::Node& all, Dialect& out) {
  const YAML::Node reference = inner(root, "ref_checkpointer", "checkpoint_dir");
  out.handled.insert("ref_checkpointer");
  if (!text_of(reference).empty() && text_of(reference) != trained_model(root, all))
    out.meant.emplace_back("ref_model", reference);
}

// Returns whether the key, or a key inside of it, has a meaning of its own.
bool is_known(const std::string& key) {
  const std::vector<std::string_view> names = known_names();
  return std::ranges::find(names, key) != names.end() || find_without_effect(key) != nullptr ||
         find_not_available(key) != nullptr || begins_known_key(key);
}

// Resolves the references to other keys. Keys that only references name need no meaning of their own.
void read_references(const YAML::Node& root, const YAML::Node& all, const std::string& file, Dialect& out) {
  for (const std::string& key : resolve_references(root, all, file)) {
    if (is_known(key)) continue;
    out.handled.insert(key);
    out.handled_words.insert(key);
  }
}

}  // namespace

bool is_torchtune(const YAML::Node& root) {
  return component(root).starts_with("torchtune.");
}

Dialect read_torchtune(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  static const std::map<std::string, std::string> kKeys = {{"lora_rank", "lora_rank"},
                                                           {"lora_alpha", "lora_alpha"},
                                                           {"lora_dropout", "lora_dropout"},
                                                           {"use_dora", "use_dora"}};
  Dialect out{.tool = "torchtune"};
  const bool same_reference = refers_to_trained(root);  // to be asked before the references are resolved
  read_references(root, all, file, out);
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
    const bool fused = name.starts_with("torchtune.models.phi3.") || name.starts_with("torchtune.models.phi4.");
    const YAML::Node layers = lora_target(model, file), target = fused ? fused_target(layers, model, file) : layers;
    if (target.size() > 0) mean("lora_target", target);
  }
  if (!lora && (text_of(all["dtype"]) == "bf16" || text_of(all["dtype"]) == "bfloat16") && !is_on(all["pure_bf16"]))
    info(
        "{}: dtype: torchtune keeps the trained weights in bfloat16, but Fettle keeps them in float32 and computes in "
        "bfloat16; pure_bf16: true keeps them in bfloat16",
        place_of(file, all["dtype"]));
  read_usual(root, out);
  read_loss(root, file, out);
  if (same_reference)
    out.handled.insert("ref_checkpointer");
  else
    read_reference(root, all, out);
  read_torchtune_sets(root, all, file, out);
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
