#include "config/foreign/trl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/axolotl/sets.h"
#include "config/foreign/foreign_recipe.h"
#include "config/foreign/handbook_sets.h"
#include "config/foreign/nodes.h"
#include "config/keys.h"
#include "config/value.h"

namespace fettle {
namespace {

bool is_given(const YAML::Node& map, const char* key) {
  return map[key].IsDefined() && !map[key].IsNull();
}

bool is_mixture(const YAML::Node& root) {
  const YAML::Node sets = root["datasets"];
  return sets.IsDefined() && sets.IsSequence() && sets.size() > 0 && sets[0].IsMap();
}

// Returns whether the recipe has a key that TRL shares with Transformers, perhaps without a value, and no key that TRL
// refuses. LLaMA-Factory refuses the shared keys. Short recipes of Fettle have them, too, because their authors know
// them from Transformers.
bool is_like_trls(const YAML::Node& root) {
  static constexpr const char* kShared[] = {"attn_implementation", "torch_dtype", "dataset_num_proc"};
  static constexpr const char* kOthers[] = {"finetuning_type", "template", "flash_attn", "cutoff_len"};
  const auto has = [&](const char* key) { return root[key].IsDefined(); };
  return std::ranges::any_of(kShared, has) && std::ranges::none_of(kOthers, has);
}

// Returns whether a key of Fettle says how to train. TRL has no such keys.
bool names_method(const YAML::Node& root) {
  static constexpr const char* kNames[] = {"stage", "lora_rank", "lora_target", "quantization_bit",
                                           "adapter_name_or_path"};
  return std::ranges::any_of(kNames, [&](const char* key) { return is_given(root, key); });
}

// Source of the defaults: trl/trainer/*_config.py and *_trainer.py, model_config.py and scripts/utils.py of TRL 1.
class TrlReader {
 public:
  TrlReader(const YAML::Node& root, const YAML::Node& all, const std::string& file)
      : recipe_(root, all, file, "TRL"), stage_(recipe_.text("stage")) {
    if (stage_ == "orpo" || recipe_.has("gamma_beta_ratio")) stage_ = "dpo";
    if (stage_.empty()) infer_stage();
  }

  Dialect read() {
    read_method();
    recipe_.usual("learning_rate", stage_ == "dpo" || stage_ == "kto" ? "1e-6" : stage_ == "rm" ? "1e-4" : "2e-5");
    read_rows();
    read_loss();
    read_simpo();
    read_smoothing();
    if (is_mixture(recipe_.all()))
      read_mixture();
    else if (!read_handbook())
      read_dataset();
    recipe_.handle({"dtype", "torch_dtype"});  // in TRL, only the dtype in which weights are loaded
    if (!recipe_.is_on("fp16")) recipe_.usual("bf16", "true");
    recipe_.drop_dropout_in("rm");
    if (has_balance()) recipe_.usual("moe_aux_loss_default", "0.001");
    return recipe_.take();
  }

 private:
  // Sets the stage of a recipe that names none; TRL's command names the trainer. DPO's losses show the stage, except
  // with a key or loss that CPO has. Other keys that SFT does not have belong to several trainers.
  void infer_stage() {
    stage_ = "sft";
    const YAML::Node loss = recipe_.given("loss_type");
    if (is_of_pairs(loss)) {
      const std::string name = loss.IsSequence() && loss.size() == 1 ? text_of(loss[0]) : text_of(loss);
      if (recipe_.has("cpo_alpha") || name == "simpo")
        throw UserError(
            "{}: stage is not given, and TRL's CPO also has this loss_type; set stage: dpo and, for CPO, pref_ftx to "
            "the value of cpo_alpha (TRL's default is 1)",
            recipe_.place("loss_type"));
      stage_ = "dpo";
      recipe_.mean_from("loss_type", "stage", YAML::Node("dpo"));
      info("{}: stage is not given, and loss_type is one of DPO's, so the recipe is read with stage: dpo",
           recipe_.place("loss_type"));
      return;
    }
    for (const char* key : {"beta", "max_prompt_length", "max_completion_length", "precompute_ref_log_probs"}) {
      if (!recipe_.has(key)) continue;
      is_certain_ = false;
      return warn(
          "{}: stage is not given, so the recipe is read as supervised tuning, which has no {} in TRL; for another "
          "trainer, set stage to dpo, orpo or kto, as in `fettle train --stage dpo`",
          recipe_.place(key), key);
    }
  }

  // Returns whether `loss_type` has a loss that TRL has only for pairs of replies.
  static bool is_of_pairs(const YAML::Node& loss) {
    if (loss.IsDefined() && loss.IsSequence()) return std::any_of(loss.begin(), loss.end(), is_of_pairs);
    if (!loss.IsDefined() || !loss.IsScalar()) return false;
    const std::vector<std::string_view>& pair_losses = find_key("pref_loss")->values;
    return std::ranges::find(pair_losses, loss.Scalar()) != pair_losses.end();
  }

  // Returns whether the stage's trainer has its own router_aux_loss_coef. Those of ORPO and CPO read config.json.
  bool has_balance() const {
    const std::string loss = recipe_.text("stage") == "orpo"   ? "orpo"
                             : recipe_.has("gamma_beta_ratio") ? "simpo"
                                                               : recipe_.text("pref_loss") + recipe_.text("loss_type");
    return stage_ == "sft" || stage_ == "kto" || (stage_ == "dpo" && loss != "orpo" && loss != "simpo");
  }

  void read_method() {
    if (!recipe_.has("use_peft")) recipe_.usual("finetuning_type", "full");
    if (!recipe_.is_on("use_peft")) return;
    recipe_.usual("lora_rank", "16");
    recipe_.usual("lora_alpha", "32");
    recipe_.usual("lora_dropout", "0.05");
    if (recipe_.is_on("load_in_4bit")) recipe_.usual("double_quantization", "false");
    if (!recipe_.has_any({"lora_target_modules", "lora_target"}))
      warn(
          "lora_target_modules is not given: PEFT chooses layers by the model's family, but Fettle takes all linear "
          "layers; set lora_target_modules: q_proj,v_proj for PEFT's usual choice");
  }

  void read_rows() {
    recipe_.usual("plain_text_rows", "true");
    if (recipe_.all()["max_length"].IsDefined() && recipe_.all()["max_length"].IsNull())
      warn("max_length is empty: TRL then cuts no row, but Fettle cuts rows at 2048 tokens; set max_length");
    else
      recipe_.usual("cutoff_len", "1024");
    if (stage_ == "sft" && is_certain_ &&
        !recipe_.has_any({"assistant_only_loss", "completion_only_loss", "train_on_prompt"}))
      warn(
          "assistant_only_loss is not given: TRL trains all tokens of `messages`, but Fettle trains the assistant's "
          "turns; set train_on_prompt: true to train all tokens");
  }

  // Reads the name of the loss. Each stage has its own: `kto` in stage kto is Fettle's only loss of that stage.
  void read_loss() {
    if (!recipe_.has("loss_type")) return;
    const YAML::Node list = recipe_.all()["loss_type"];
    if (stage_ == "dpo" && list.IsSequence() && list.size() > 1) return read_sum(list);
    const YAML::Node one = list.IsSequence() && list.size() == 1 ? list[0] : list;
    if (!one.IsScalar()) return;
    const std::string loss = one.Scalar();
    const bool sft = stage_ == "sft";
    const bool usual_loss = sft ? loss == "nll" || loss == "chunked_nll" : stage_ == "kto" && loss == "kto";
    if (!usual_loss && !(sft && loss == "dft") && stage_ != "dpo") return;
    recipe_.handle({"loss_type"});
    if (!usual_loss) recipe_.mean_from("loss_type", sft ? "sft_loss" : "pref_loss", one);
  }

  // Reads a sum of losses. Fettle has one such sum: a loss of pairs, and the loss of the chosen reply with a weight.
  void read_sum(const YAML::Node& list) {
    const YAML::Node weights = recipe_.all()["loss_weights"];
    const bool weighted = recipe_.has("loss_weights");
    const size_t sft = list[0].as<std::string>("") == "sft" ? 0 : 1;
    if (list.size() == 2 && list[sft].as<std::string>("") == "sft" &&
        (!weighted || (weights.IsSequence() && weights.size() == 2 && weights[1 - sft].as<double>(0) == 1))) {
      recipe_.handle({"loss_type", "loss_weights"});
      recipe_.mean_from("loss_type", "pref_loss", list[1 - sft]);
      return recipe_.mean_from(weighted ? "loss_weights" : "loss_type", "pref_ftx",
                               weighted ? weights[sft] : YAML::Node("1"));
    }
    throw UserError(
        "{}: loss_type: this sum of losses is not available; set loss_type to one loss of weight 1, and set pref_ftx "
        "to the weight of the chosen reply's loss (TRL's `sft`)",
        recipe_.place("loss_type"));
  }

  // Reads gamma_beta_ratio, a key of SimPO's own trainer: the margin divided by beta.
  void read_simpo() {
    if (!recipe_.has("gamma_beta_ratio")) return;
    recipe_.handle({"gamma_beta_ratio"});
    const double beta = recipe_.all()[recipe_.has("pref_beta") ? "pref_beta" : "beta"].as<double>(2);
    recipe_.usual("pref_beta", "2");
    recipe_.mean_from("gamma_beta_ratio", "stage", YAML::Node("dpo"));
    recipe_.mean_from("gamma_beta_ratio", "pref_loss", YAML::Node("simpo"));
    recipe_.mean_from("gamma_beta_ratio", "simpo_gamma",
                      YAML::Node(fmt::format("{:.9g}", beta * recipe_.all()["gamma_beta_ratio"].as<double>(-1))));
  }

  // TRL 1 uses label_smoothing only with other losses.
  void read_smoothing() const {
    const YAML::Node list = recipe_.all()["loss_type"];
    const bool listed = recipe_.has("loss_type") && list.IsSequence() && list.size() == 1;
    const std::string smoothing = recipe_.text("label_smoothing"),
                      loss =
                          listed ? list[0].as<std::string>("") : recipe_.text("loss_type") + recipe_.text("pref_loss");
    if (stage_ != "dpo" || std::atof(smoothing.c_str()) == 0 || (!loss.empty() && loss != "sigmoid")) return;
    info("label_smoothing: {} is applied to the loss sigmoid, unlike in TRL 1, which ignores it there", smoothing);
  }

  // Reads `datasets`, a list of data sets. TRL then ignores dataset_name.
  void read_mixture() {
    AxolotlSets sets(recipe_.file(),
                     AxolotlSets::Rows::kReplies);  // both tools describe the place of rows in the same way
    YAML::Node list(YAML::NodeType::Sequence);
    for (const auto& item : recipe_.all()["datasets"]) {
      YAML::Node place(YAML::NodeType::Map);
      if (item.IsMap())
        for (const auto& pair : item) {
          const std::string key = pair.first.Scalar();
          if ((key == "fraction" || key == "data_dir") && !pair.second.IsNull())
            throw UserError("{}:{}: {} of a data set is not available; list the data set's files without it",
                            recipe_.file(), pair.first.Mark().line + 1, key);
          if (key != "columns") place[pair.first] = pair.second;  // `columns` are the columns to load
        }
      list.push_back(item.IsMap() ? sets.entry(place) : item.Scalar());
    }
    recipe_.handle({"datasets"});
    for (const char* key : {"dataset_name", "dataset_config"}) recipe_.handle_in_file(key);
    recipe_.mean_from("datasets", "dataset", list);
  }

  // Reads the data sets of a recipe of the alignment handbook. Returns false if it has none.
  bool read_handbook() {
    recipe_.handle({"dataset_mixture", "dataset_mixer", "dataset_splits", "dataset_configs"});
    if (recipe_.overrides("dataset")) return recipe_.has_any({"dataset_mixture", "dataset_mixer"});
    const auto sets = read_handbook_sets(recipe_.all(), recipe_.file());
    if (!sets) return false;
    const char* key = sets->key.c_str();
    recipe_.mean_from(key, "dataset", list_of(sets->trained));
    if (sets->val_size.IsDefined()) recipe_.mean_from(key, "val_size", sets->val_size);
    if (!sets->held_out.empty() && evaluates()) recipe_.mean_from(key, "eval_dataset", list_of(sets->held_out));
    return true;
  }

  static YAML::Node list_of(const std::vector<std::string>& items) {
    YAML::Node list(YAML::NodeType::Sequence);
    for (const std::string& item : items) list.push_back(item);
    return list;
  }

  std::string strategy() const {
    return recipe_.text(recipe_.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy");
  }
  // Returns whether the run evaluates. `false` is YAML's older `no`.
  bool evaluates() const {
    const std::string asked = strategy();
    return asked.empty() ? recipe_.is_on("do_eval") : asked != "no" && asked != "false";
  }

  // Reads dataset_name with the keys that belong to it. If the run evaluates, TRL does so on the split
  // dataset_test_split. Its default `test` counts only with a strategy, because TRL's commands ignore do_eval.
  void read_dataset() {
    const std::string name = recipe_.text("dataset_name"), column = recipe_.text("dataset_text_field");
    if (name.empty()) return;
    nlohmann::ordered_json entry = {{"hf_hub_url", name}};
    const std::string trained = recipe_.text("dataset_train_split"), held_out = recipe_.text("dataset_test_split");
    recipe_.handle({"dataset_train_split", "dataset_test_split"});
    if (recipe_.has("dataset_config")) entry["subset"] = recipe_.text("dataset_config");
    if (!trained.empty() && trained != "train") entry["split"] = trained;
    if (!column.empty() && column != "text") entry["columns"] = {{"prompt", column}};
    const auto set = [&](const char* key, const nlohmann::ordered_json& value) {
      recipe_.mean_from("dataset_name", key, list_of({value.dump()}));
    };
    if (entry.size() > 1 || is_short_hub_name(name)) {
      recipe_.handle({"dataset_name", "dataset_config", "dataset_text_field"});
      set("dataset", entry);
    }
    std::error_code ignored;
    const bool unknown = held_out.empty() && (strategy().empty() || std::filesystem::exists(name, ignored));
    if (!evaluates() || unknown ||
        recipe_.has_any({"eval_dataset", "val_size", "val_set_size", "split_dataset_ratio", "test_split_size"}))
      return;
    entry["split"] = held_out.empty() ? "test" : held_out;
    set("eval_dataset", entry);
    info("eval_dataset: the split `{}` of {}, as in TRL", entry["split"].get<std::string>(), name);
  }

  ForeignRecipe recipe_;
  std::string stage_;
  bool is_certain_ = true;  // false: the recipe names no stage, and has keys of other stages than stage_
};

}  // namespace

bool has_key_of_trl(const YAML::Node& root) {
  for (const char* key :
       {"use_peft", "dataset_train_split", "dataset_test_split", "assistant_only_loss", "completion_only_loss"})
    if (is_given(root, key)) return true;
  return is_mixture(root) && is_given(root, "test_split_size");
}

bool is_trl(const YAML::Node& root, const YAML::Node& all) {
  if (has_key_of_trl(root)) return true;
  if (!is_given(root, "model_name_or_path")) return false;
  if (is_given(root, "dataset_name") || is_mixture(root)) return true;
  for (const char* key : {"dataset_mixture", "dataset_mixer", "gamma_beta_ratio"})
    if (root[key].IsDefined()) return true;
  return is_like_trls(root) && !is_given(all, "dataset") && !names_method(all);
}

void warn_of_unset_method(const YAML::Node& all) {
  const bool adapts = std::any_of(all.begin(), all.end(), [](const auto& pair) {
    const Key* key = pair.first.IsScalar() ? find_key(pair.first.Scalar()) : nullptr;
    return key != nullptr && key->name.starts_with("lora_");
  });
  if (adapts || !is_given(all, "dataset") || names_method(all) || !is_like_trls(all)) return;
  warn(
      "finetuning_type is not set, so the run trains a LoRA adapter of rank 8; set finetuning_type: full to train all "
      "weights, as TRL does without use_peft");
}

Dialect read_trl(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  return TrlReader(root, all, file).read();
}

}  // namespace fettle
