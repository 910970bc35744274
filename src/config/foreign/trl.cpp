#include "config/foreign/trl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/axolotl_sets.h"
#include "config/foreign/handbook_sets.h"
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
  TrlReader(const YAML::Node& root, const YAML::Node& all, std::string file)
      : root_(root), all_(all), file_(std::move(file)), stage_(text("stage").empty() ? "sft" : text("stage")) {
    if (stage_ == "orpo" || has("gamma_beta_ratio")) stage_ = "dpo";
  }

  Dialect read() {
    read_method();
    usual("learning_rate", stage_ == "dpo" || stage_ == "kto" ? "1e-6" : stage_ == "rm" ? "1e-4" : "2e-5");
    read_rows();
    read_loss();
    read_simpo();
    read_smoothing();
    if (is_mixture(all_))
      read_mixture();
    else if (!read_handbook())
      read_dataset();
    handle({"dtype", "torch_dtype"});  // in TRL, only the dtype in which weights are loaded
    if (!is_on(all_["fp16"])) usual("bf16", "true");
    out_.without_dropout.insert("rm");
    if (has_balance()) usual("moe_aux_loss_default", "0.001");
    return std::move(out_);
  }

 private:
  bool has(const char* key) const { return is_given(all_, key); }
  bool has_any(std::initializer_list<const char*> keys) const {
    return std::ranges::any_of(keys, [&](const char* key) { return has(key); });
  }
  std::string text(const char* key) const { return has(key) && all_[key].IsScalar() ? all_[key].Scalar() : ""; }

  // Returns whether the stage's trainer has its own router_aux_loss_coef. Those of ORPO and CPO read config.json.
  bool has_balance() const {
    const std::string loss = text("stage") == "orpo"   ? "orpo"
                             : has("gamma_beta_ratio") ? "simpo"
                                                       : text("pref_loss") + text("loss_type");
    return stage_ == "sft" || stage_ == "kto" || (stage_ == "dpo" && loss != "orpo" && loss != "simpo");
  }

  void usual(const char* key, const std::string& value) { out_.usual.emplace_back(key, YAML::Node(value)); }
  // Sets a key of Fettle that the key `from` means.
  void mean(const char* from, const char* key, const YAML::Node& value) {
    const bool in_file = root_[from].IsDefined() && all_[from].is(root_[from]);
    (in_file ? out_.meant : out_.meant_words).emplace_back(key, value);
  }
  void handle(std::initializer_list<const char*> keys) {
    out_.handled.insert(keys.begin(), keys.end());
    out_.handled_words.insert(keys.begin(), keys.end());
  }

  void read_method() {
    if (!has("use_peft")) usual("finetuning_type", "full");
    if (!is_on(all_["use_peft"])) return;
    usual("lora_rank", "16");
    usual("lora_alpha", "32");
    usual("lora_dropout", "0.05");
    if (is_on(all_["load_in_4bit"])) usual("double_quantization", "false");
    if (!has_any({"lora_target_modules", "lora_target"}))
      warn(
          "lora_target_modules is not given: PEFT chooses layers by the model's family, but Fettle takes all linear "
          "layers; set lora_target_modules: q_proj,v_proj for PEFT's usual choice");
  }

  void read_rows() {
    usual("plain_text_rows", "true");
    if (all_["max_length"].IsDefined() && all_["max_length"].IsNull())
      warn("max_length is empty: TRL then cuts no row, but Fettle cuts rows at 2048 tokens; set max_length");
    else
      usual("cutoff_len", "1024");
    if (stage_ == "sft" && !has_any({"assistant_only_loss", "completion_only_loss", "train_on_prompt"}))
      warn(
          "assistant_only_loss is not given: TRL trains all tokens of `messages`, but Fettle trains the assistant's "
          "turns; set train_on_prompt: true to train all tokens");
  }

  // Reads the name of the loss. Each stage has its own: `kto` in stage kto is Fettle's only loss of that stage.
  void read_loss() {
    if (!has("loss_type")) return;
    const YAML::Node list = all_["loss_type"];
    if (stage_ == "dpo" && list.IsSequence() && list.size() > 1) return read_sum(list);
    const YAML::Node one = list.IsSequence() && list.size() == 1 ? list[0] : list;
    if (!one.IsScalar()) return;
    const std::string loss = one.Scalar();
    const bool sft = stage_ == "sft";
    const bool usual_loss = sft ? loss == "nll" || loss == "chunked_nll" : stage_ == "kto" && loss == "kto";
    if (!usual_loss && !(sft && loss == "dft") && stage_ != "dpo") return;
    handle({"loss_type"});
    if (!usual_loss) mean("loss_type", sft ? "sft_loss" : "pref_loss", one);
  }

  // Reads a sum of losses. Fettle has one such sum: a loss of pairs, and the loss of the chosen reply with a weight.
  void read_sum(const YAML::Node& list) {
    const YAML::Node weights = all_["loss_weights"];
    const bool weighted = has("loss_weights");
    const size_t sft = list[0].as<std::string>("") == "sft" ? 0 : 1;
    if (list.size() == 2 && list[sft].as<std::string>("") == "sft" &&
        (!weighted || (weights.IsSequence() && weights.size() == 2 && weights[1 - sft].as<double>(0) == 1))) {
      handle({"loss_type", "loss_weights"});
      mean("loss_type", "pref_loss", list[1 - sft]);
      return mean(weighted ? "loss_weights" : "loss_type", "pref_ftx", weighted ? weights[sft] : YAML::Node("1"));
    }
    throw UserError(
        "{}: loss_type: this sum of losses is not available; set loss_type to one loss of weight 1, and set pref_ftx "
        "to the weight of the chosen reply's loss (TRL's `sft`)",
        root_["loss_type"].IsDefined() ? fmt::format("{}:{}", file_, root_["loss_type"].Mark().line + 1) : file_);
  }

  // Reads gamma_beta_ratio, a key of SimPO's own trainer: the margin divided by beta.
  void read_simpo() {
    if (!has("gamma_beta_ratio")) return;
    handle({"gamma_beta_ratio"});
    const double beta = all_[has("pref_beta") ? "pref_beta" : "beta"].as<double>(2);
    usual("pref_beta", "2");
    mean("gamma_beta_ratio", "stage", YAML::Node("dpo"));
    mean("gamma_beta_ratio", "pref_loss", YAML::Node("simpo"));
    mean("gamma_beta_ratio", "simpo_gamma",
         YAML::Node(fmt::format("{:.9g}", beta * all_["gamma_beta_ratio"].as<double>(-1))));
  }

  // TRL 1 uses label_smoothing only with other losses.
  void read_smoothing() const {
    const YAML::Node list = all_["loss_type"];
    const bool listed = has("loss_type") && list.IsSequence() && list.size() == 1;
    const std::string smoothing = text("label_smoothing"),
                      loss = listed ? list[0].as<std::string>("") : text("loss_type") + text("pref_loss");
    if (stage_ != "dpo" || std::atof(smoothing.c_str()) == 0 || (!loss.empty() && loss != "sigmoid")) return;
    info("label_smoothing: {} is applied to the loss sigmoid, unlike in TRL 1, which ignores it there", smoothing);
  }

  // Reads `datasets`, a list of data sets. TRL then ignores dataset_name.
  void read_mixture() {
    AxolotlSets sets(file_, AxolotlSets::Rows::kReplies);  // both tools describe the place of rows in the same way
    YAML::Node list(YAML::NodeType::Sequence);
    for (const auto& item : all_["datasets"]) {
      YAML::Node place(YAML::NodeType::Map);
      if (item.IsMap())
        for (const auto& pair : item) {
          const std::string key = pair.first.Scalar();
          if ((key == "fraction" || key == "data_dir") && !pair.second.IsNull())
            throw UserError("{}:{}: {} of a data set is not available; list the data set's files without it", file_,
                            pair.first.Mark().line + 1, key);
          if (key != "columns") place[pair.first] = pair.second;  // `columns` are the columns to load
        }
      list.push_back(item.IsMap() ? sets.entry(place) : item.Scalar());
    }
    for (const char* key : {"datasets", "dataset_name", "dataset_config"}) out_.handled.insert(key);
    out_.handled_words.insert("datasets");
    mean("datasets", "dataset", list);
  }

  // Reads the data sets of a recipe of the alignment handbook. Returns false if it has none.
  bool read_handbook() {
    handle({"dataset_mixture", "dataset_mixer", "dataset_splits", "dataset_configs"});
    if (is_overridden(root_, all_, "dataset")) return has_any({"dataset_mixture", "dataset_mixer"});
    const auto sets = read_handbook_sets(all_, file_);
    if (!sets) return false;
    const char* key = sets->key.c_str();
    mean(key, "dataset", list_of(sets->trained));
    if (sets->val_size.IsDefined()) mean(key, "val_size", sets->val_size);
    if (!sets->held_out.empty() && evaluates()) mean(key, "eval_dataset", list_of(sets->held_out));
    return true;
  }

  static YAML::Node list_of(const std::vector<std::string>& items) {
    YAML::Node list(YAML::NodeType::Sequence);
    for (const std::string& item : items) list.push_back(item);
    return list;
  }

  std::string strategy() const { return text(has("eval_strategy") ? "eval_strategy" : "evaluation_strategy"); }
  // Returns whether the run evaluates. `false` is YAML's older `no`.
  bool evaluates() const {
    const std::string asked = strategy();
    return asked.empty() ? is_on(all_["do_eval"]) : asked != "no" && asked != "false";
  }

  // Reads dataset_name with the keys that belong to it. If the run evaluates, TRL does so on the split
  // dataset_test_split. Its default `test` counts only with a strategy, because TRL's commands ignore do_eval.
  void read_dataset() {
    const std::string name = text("dataset_name"), column = text("dataset_text_field");
    if (name.empty()) return;
    nlohmann::ordered_json entry = {{"hf_hub_url", name}};
    const std::string trained = text("dataset_train_split"), held_out = text("dataset_test_split");
    handle({"dataset_train_split", "dataset_test_split"});
    if (has("dataset_config")) entry["subset"] = text("dataset_config");
    if (!trained.empty() && trained != "train") entry["split"] = trained;
    if (!column.empty() && column != "text") entry["columns"] = {{"prompt", column}};
    const auto set = [&](const char* key, const nlohmann::ordered_json& value) {
      mean("dataset_name", key, list_of({value.dump()}));
    };
    if (entry.size() > 1 || is_short_hub_name(name)) {
      handle({"dataset_name", "dataset_config", "dataset_text_field"});
      set("dataset", entry);
    }
    std::error_code ignored;
    const bool unknown = held_out.empty() && (strategy().empty() || std::filesystem::exists(name, ignored));
    if (!evaluates() || unknown ||
        has_any({"eval_dataset", "val_size", "val_set_size", "split_dataset_ratio", "test_split_size"}))
      return;
    entry["split"] = held_out.empty() ? "test" : held_out;
    set("eval_dataset", entry);
    info("eval_dataset: the split `{}` of {}, as in TRL", entry["split"].get<std::string>(), name);
  }

  const YAML::Node& root_;
  const YAML::Node& all_;
  std::string file_, stage_;
  Dialect out_{.tool = "TRL"};
};

}  // namespace

bool is_trl(const YAML::Node& root, const YAML::Node& all) {
  for (const char* key :
       {"use_peft", "dataset_train_split", "dataset_test_split", "assistant_only_loss", "completion_only_loss"})
    if (is_given(root, key)) return true;
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
