#include "config/foreign/axolotl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/axolotl_sets.h"
#include "config/foreign/nodes.h"
#include "config/keys.h"
#include "config/value.h"

namespace fettle {
namespace {

// Returns whether the chat template is named after a family of models. Model folders of such a family contain the
// template.
bool is_of_a_family(std::string_view name) {
  static constexpr std::string_view kNames[] = {"gemma3",
                                                "gemma3n",
                                                "gemma4",
                                                "gemma4_unified",
                                                "gemma4n",
                                                "llama4",
                                                "qwen_25",
                                                "qwen3",
                                                "qwen3_5",
                                                "qwen2_vl",
                                                "falcon_h1",
                                                "jamba",
                                                "cohere",
                                                "command_a",
                                                "command_a_tool_use",
                                                "command_a_rag",
                                                "nemotron",
                                                "nemotron_h",
                                                "aya",
                                                "deepseek_v2",
                                                "deepseek_v3",
                                                "exaone",
                                                "exaone4",
                                                "phi_4",
                                                "granite",
                                                "granitemoe",
                                                "mistral_v1",
                                                "mistral_v2v3",
                                                "mistral_v3_tekken",
                                                "mistral_v7_tekken",
                                                "pixtral",
                                                "llama3_2_vision",
                                                "voxtral"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Returns whether Fettle has no built-in template that equals Axolotl's template of this name, which belongs to no
// family.
bool is_missing(std::string_view name) {
  return name == "metharme" || name == "llava" || name == "alpaca";
}

// Returns Fettle's name of Axolotl's template `name`.
std::string fettles_name(const std::string& name) {
  return name == "phi_3" || name == "phi_35" ? "phi3" : name;
}

constexpr const char* kRatio = "cosine_min_lr_ratio";
constexpr std::string_view kFallback = "tokenizer_default_fallback_";

// Returns "" if `name` means the model's own template; otherwise returns `name`.
std::string own_or_named(const std::string& name) {
  return name == "tokenizer_default" || name.starts_with(kFallback) || is_of_a_family(name) ? "" : name;
}

class AxolotlReader {
 public:
  AxolotlReader(const YAML::Node& root, const YAML::Node& all, std::string file)
      : root_(root),
        all_(all),
        file_(std::move(file)),
        rl_(text_of(all_["rl"])),
        sets_(file_, rl_ == "kto"                            ? AxolotlSets::Rows::kRated
                     : is_on("reward_model") || !rl_.empty() ? AxolotlSets::Rows::kPairs
                                                             : AxolotlSets::Rows::kReplies) {}

  Dialect read() {
    out_.tool = "Axolotl";
    read_sets("datasets", "dataset");
    read_sets("test_datasets", "eval_dataset");
    read_texts();
    read_intervals();
    read_method();
    read_schedule();
    read_scaled_rate();
    read_order();
    read_template();
    read_plugins();
    read_tokens();
    read_model();
    read_usual();
    return std::move(out_);
  }

 private:
  YAML::Node at(const char* key) const {
    const YAML::Node node = root_[key];
    return node.IsDefined() && !node.IsNull() ? node : YAML::Node(YAML::NodeType::Undefined);
  }
  bool has(const char* key) const { return at(key).IsDefined(); }
  std::string text(const char* key) const { return has(key) && at(key).IsScalar() ? at(key).Scalar() : ""; }
  bool is_on(const char* key) const { return bool_from_text(text(key)).value_or(false); }
  double number(const char* key, double otherwise) const { return number_of(root_[key], otherwise); }
  // Returns the value of Fettle's key `key`: that of an override under any of its names, else that of `own` in the
  // file.
  YAML::Node current(std::string_view key, const char* own) const {
    const YAML::Node given = override_of(root_, all_, key);
    return given.IsDefined() ? given : root_[own];
  }
  static double number_of(const YAML::Node& node, double otherwise) {
    const std::string value = node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
    char* end = nullptr;
    const double read = std::strtod(value.c_str(), &end);
    return value.empty() || *end != '\0' || !std::isfinite(read) ? otherwise : read;
  }
  std::string where(const YAML::Node& node) const { return fmt::format("{}:{}", file_, node.Mark().line + 1); }

  // Returns where a key of the file or an override is given.
  std::string place(const char* key) const { return is_word(key) ? "the command line" : where(at(key)); }

  void mean(const char* key, const std::string& value) { out_.meant.emplace_back(key, YAML::Node(value)); }
  void handle(const char* key) { out_.handled.insert(key); }
  void handle_words(const char* key) { out_.handled_words.insert(key); }
  void usual(const char* key, const std::string& value) { out_.usual.emplace_back(key, YAML::Node(value)); }

  void read_sets(const char* from, const char* to) {
    const YAML::Node list = at(from);
    if (!list.IsDefined() || !list.IsSequence()) return;
    YAML::Node entries(YAML::NodeType::Sequence);
    for (const auto& item : list) entries.push_back(item.IsMap() ? sets_.entry(item) : item.Scalar());
    handle(from);
    out_.meant.emplace_back(to, entries);
  }

  // Reads pretraining_dataset: one data set of texts, or a list of them.
  void read_texts() {
    const YAML::Node given = at("pretraining_dataset");
    if (!given.IsDefined()) return;
    if (has("datasets"))
      throw UserError("{}: pretraining_dataset and datasets cannot be used together; keep one of them", where(given));
    YAML::Node entries(YAML::NodeType::Sequence);
    const auto add = [&](const YAML::Node& one) {
      if (!one.IsScalar() && !one.IsMap())
        throw UserError("{}: pretraining_dataset: found {}, wanted a name or a map with path", where(given),
                        describe_node(one));
      entries.push_back(one.IsMap() ? sets_.texts(one) : one.Scalar());
    };
    if (given.IsSequence())
      for (const auto& item : given) add(item);
    else
      add(given);
    handle("pretraining_dataset");
    out_.meant.emplace_back("dataset", entries);
    mean("stage", "pt");
  }

  // Translates saves_per_epoch and evals_per_epoch. Once per epoch becomes the strategy `epoch`. Other numbers become
  // save_steps and eval_steps, which are shares of the run's steps. Also sets Axolotl's default strategies. In Axolotl,
  // steps of 0 count as not given. The command line counts, too: its steps replace the file's numbers per epoch, and
  // its numbers per epoch replace the file's steps.
  void read_intervals() {
    const double epochs = number_of(current("num_train_epochs", "num_epochs"), 1);
    std::string replacing;
    for (const auto& [from, strategy, steps] : {std::tuple{"saves_per_epoch", "save_strategy", "save_steps"},
                                                {"evals_per_epoch", "eval_strategy", "eval_steps"}}) {
      handle(from);
      handle_words(from);
      const double times = times_per_epoch(from);
      const bool replaces = times > 0 && is_word(from) && !is_overridden(root_, all_, steps);
      if (replaces && gives(steps)) replacing = from;
      if (replaces || !gives(steps) || !is_given(root_[steps])) handle(steps);  // the file may lack its value
      if ((gives(steps) && !replaces) || times <= 0) continue;
      if (std::string_view(from) == "evals_per_epoch" && !evaluates()) continue;
      handle(strategy);
      mean(strategy, times == 1 ? "epoch" : "steps");
      if (times != 1 && epochs > 0) mean(steps, fmt::format("{:.9g}", 1 / (times * epochs)));
    }
    if (evaluates() && times_per_epoch("evals_per_epoch") <= 0 && !gives("eval_steps")) usual("eval_strategy", "epoch");
    if (evaluates() && gives("eval_steps")) usual("eval_strategy", "steps");
    if (!evaluates()) {
      handle("eval_strategy");
      handle("evaluation_strategy");
      handle("eval_steps");
    }
    if (times_per_epoch("saves_per_epoch") <= 0 && !gives("save_steps")) usual("save_strategy", "epoch");
    read_patience(replacing);
  }
  // Returns the number that saves_per_epoch or evals_per_epoch gives; 0 if it is not given.
  double times_per_epoch(const char* key) const {
    const YAML::Node given = all_[key];
    if (!given.IsDefined() || given.IsNull()) return 0;
    const double times = number_of(given, -1);
    if (times < 0)
      throw UserError("{}: {}: found {}, wanted a number, 0 or more", place(key), key, describe_node(given));
    return times;
  }
  // With early_stopping_patience, Axolotl's result is the best model. It then demands save_steps and eval_steps. Its
  // trainers of preferences ignore the patience. `replacing` is the override that replaces such steps; "": none.
  void read_patience(const std::string& replacing) {
    const auto given = [&](const char* key) { return number_of(current(key, key), 0); };
    const bool stops = given("early_stopping_patience") > 0 && evaluates() && rl_.empty();
    if (!stops || !gives("save_steps") || !gives("eval_steps")) return;
    const std::string strategy = text_of(all_["save_strategy"]);  // a key without a value counts as not given
    if (!strategy.empty() && strategy != "steps") return;
    const double save = given("save_steps"), evaluate = given("eval_steps");  // below 1, these are shares of the run
    const double times = std::round(save / evaluate);                         // evaluations between two checkpoints
    const bool whole = (save < 1) == (evaluate < 1) && times >= 1 && std::abs(save / evaluate - times) < 1e-6;
    const bool only_model = fettle::is_on(all_["save_only_model"]);
    if (whole && !only_model && replacing.empty()) return usual("load_best_model_at_end", "true");
    warn("early_stopping_patience: Axolotl's result is the best model, but Fettle's is the last one, because {}",
         !replacing.empty() ? replacing + " replaces the steps in the file; set save_steps and eval_steps instead"
         : whole            ? "save_only_model is on; remove that key"
                            : "save_steps is no multiple of eval_steps; change one of them");
  }
  static bool is_given(const YAML::Node& node) { return node.IsDefined() && !node.IsNull() && number_of(node, 1) != 0; }
  bool gives(const char* key) const { return is_given(all_[key]) || is_given(override_of(root_, all_, key)); }
  bool is_word(const char* key) const {
    return all_[key].IsDefined() && !(root_[key].IsDefined() && all_[key].is(root_[key]));
  }
  bool evaluates() const {
    return gives("val_set_size") || gives("val_size") || gives("test_datasets") || gives("eval_dataset");
  }

  void read_method() {
    usual("finetuning_type", "full");
    if (fettle::is_on(all_["lora_target_linear"])) handle("lora_target_modules");
    read_batch();
    if (is_on("reward_model")) {
      handle("reward_model");
      mean("stage", "rm");
      if (text("num_labels") == "1") handle("num_labels");  // a reward model has one score
    }
    if (is_on("float16") && has("fp16") && !is_on("fp16")) handle("fp16");  // with float16, Axolotl sets fp16 itself
    if (is_on("auto_resume_from_checkpoints") && !has("resume_from_checkpoint")) handle("resume_from_checkpoint");
    const std::string checkpointing = text("gradient_checkpointing");
    if (checkpointing == "offload" || checkpointing == "offload_disk") {
      handle("gradient_checkpointing");
      mean("gradient_checkpointing", "true");
    }
    if (const std::string length = text("excess_length_strategy"); !length.empty()) {
      handle("excess_length_strategy");
      mean("overlength", length == "truncate" ? "cut" : length == "raise" ? "error" : length);
    }
    if (!text_of(all_["wandb_project"]).empty()) usual("report_to", "wandb");
    if (const YAML::Node list = at("dpo_loss_type"); list.IsDefined() && list.IsSequence() && list.size() == 1) {
      handle("dpo_loss_type");
      mean("pref_loss", list[0].as<std::string>(""));
    }
    if (text_of(all_["eval_sequence_len"]) == text_of(current("cutoff_len", "sequence_len"))) {
      handle("eval_sequence_len");
      handle_words("eval_sequence_len");
    }
    if (rl_ == "simpo") usual("pref_ftx", "1");  // the default of Axolotl's cpo_alpha
    out_.without_dropout.insert("rm");
    if (has_balance()) usual("moe_aux_loss_default", "0.001");
  }
  // Reads batch_size: the rows of a step. As a key of Fettle, this name means the rows of a micro-batch.
  void read_batch() {
    const double rows = number_of(micro_batch(), 0), total = number_of(all_["batch_size"], 0);
    if (rows <= 0) return;
    const bool by_word = is_word("batch_size");
    if (total > 0 || by_word) handle("batch_size");
    if (total > 0 || (by_word && all_["batch_size"].IsNull())) handle_words("batch_size");
    if (total <= 0) return;
    constexpr const char* kSteps = "gradient_accumulation_steps";
    if (is_overridden(root_, all_, kSteps) || (has(kSteps) && !by_word)) return;
    handle(kSteps);
    mean(kSteps, fmt::format("{:.0f}", std::max(1.0, std::floor(total / rows))));
  }
  YAML::Node micro_batch() const {
    for (const char* key : {"micro_batch_size", "per_device_train_batch_size", "per_device_batch_size"})
      if (is_word(key)) return all_[key];
    return root_["micro_batch_size"];
  }
  // Returns whether TRL's trainer for `rl` has its own router_aux_loss_coef, which Axolotl cannot set.
  bool has_balance() const { return rl_ == "dpo" || rl_ == "ipo" || rl_ == "kto"; }

  // Reads cosine_min_lr_ratio: the last learning rate of `lr_scheduler: cosine`, divided by the highest one. Other
  // schedules ignore this key, but Fettle reads it for cosine_with_min_lr if no other key sets the last rate.
  void read_schedule() {
    const std::string schedule = text_of(current("lr_scheduler_type", "lr_scheduler"));
    if (!all_[kRatio].IsDefined() || all_[kRatio].IsNull()) return;
    if (schedule == "cosine_with_min_lr" && !other_sets_last_rate()) return;
    const bool cosine = schedule.empty() || schedule == "cosine";
    const double least = number_of(all_[kRatio], 0.5);
    if (cosine && least > 0) {
      handle("lr_scheduler");
      for (const char* key : {"lr_scheduler", "lr_scheduler_type"}) handle_words(key);
      mean("lr_scheduler_type", least == 1 ? "constant_with_warmup" : "cosine_with_min_lr");
      if (least != 1) return;
    }
    handle(kRatio);
    handle_words(kRatio);
    if (!cosine || least <= 0)
      warn("{}: {} has no effect here: {}", place(kRatio), kRatio,
           cosine ? "the cosine falls to 0" : "it belongs to lr_scheduler: cosine");
  }

  bool other_sets_last_rate() const {
    const auto sets = [](const std::string& name, const YAML::Node& value) {
      const Key* key = name == kRatio || value.IsNull() ? nullptr : find_key(name);
      return key != nullptr && (key->name == "min_lr" || key->name == "min_lr_rate");
    };
    constexpr const char* kInner = "lr_scheduler_kwargs";
    if (all_[kInner].IsDefined() && all_[kInner].IsMap())
      for (const auto& pair : all_[kInner])
        if (sets(fmt::format("{}.{}", kInner, text_of(pair.first)), pair.second)) return true;
    return std::ranges::any_of(all_, [&](const auto& pair) { return sets(text_of(pair.first), pair.second); });
  }

  // Reads embedding_lr_scale: the learning rate of the embedding, divided by that of the other weights.
  void read_scaled_rate() {
    const double scale = number_of(all_["embedding_lr_scale"], 0);
    const double rate = number_of(current("learning_rate", "learning_rate"), 0);
    if (scale <= 0 || rate <= 0) return;
    handle("embedding_lr_scale");
    handle_words("embedding_lr_scale");
    mean("embedding_lr", fmt::format("{:.9g}", scale * rate));
  }

  // Reads curriculum_sampling, which keeps the order of the rows. Axolotl shuffles several data sets while it
  // merges them, unless shuffle_merged_datasets is false. If they are shuffled, curriculum_sampling has no effect, and
  // this function warns.
  void read_order() {
    constexpr const char *kKeeps = "curriculum_sampling", *kMerge = "shuffle_merged_datasets";
    handle(kKeeps);
    handle_words(kKeeps);
    const YAML::Node keeps = all_[kKeeps], merge = all_[kMerge], sets = at("datasets");
    if (!keeps.IsDefined() || keeps.IsNull()) return;
    const auto on = bool_from_text(text_of(keeps));
    if (!on) throw UserError("{}: {}: found {}, wanted true or false", place(kKeeps), kKeeps, describe_node(keeps));
    if (!*on) return;
    const bool several = sets.IsDefined() && sets.IsSequence() && sets.size() > 1;
    const bool unshuffled = bool_from_text(text_of(merge)) == false;
    if (several && !unshuffled)
      return warn(
          "{}: curriculum_sampling has no effect here: several data sets are shuffled when they are merged; set "
          "shuffle_merged_datasets: false to keep the order of the files",
          place(kKeeps));
    if (unshuffled) {
      handle(kMerge);
      handle_words(kMerge);
    }
    mean("disable_shuffling", "true");
  }

  // Reads the chat template: chat_template of the recipe, or the template that the recipe's data sets name. Throws when
  // data sets name different templates. An override chat_template is for all data sets.
  void read_template() {
    const bool by_word = is_word("chat_template"), given = by_word || has("chat_template");
    std::string name = text_of(all_["chat_template"]), at_name = given ? place("chat_template") : file_;
    const std::string of_recipe = name;
    bool first = true;
    for (const auto& [of_set, at_set] : sets_.templates()) {
      if (by_word) break;
      const std::string here = of_set.empty() ? of_recipe : of_set;
      if (!std::exchange(first, false) && own_or_named(here) != own_or_named(name))
        throw UserError(
            "{}: chat_template: found {} after {}, but all data sets of a run need the same template; use only one",
            at_set, here.empty() ? "the model's own" : here, name.empty() ? "the model's own" : name);
      if (!of_set.empty()) at_name = at_set;
      name = here;
    }
    if (name.empty()) return;
    handle("chat_template");
    if (is_missing(name))
      throw UserError(
          "{}: chat_template: {} is not available; save it as chat_template.jinja in the model folder, and set "
          "chat_template: tokenizer_default",
          at_name, name);
    mean_template(fettles_name(own_or_named(name)));
    if (is_of_a_family(name))
      info(
          "{}: chat_template: {} names a family of models; Fettle uses the template in the model folder, which is the "
          "same if the model belongs to this family",
          at_name, name);
    if (!name.starts_with(kFallback)) return;
    const std::string fallback = name.substr(kFallback.size());
    info("{}: chat_template: {}: Fettle uses the template in the model folder; if it has none, {}", at_name, name,
         is_missing(fallback) || is_of_a_family(fallback)
             ? fmt::format("save {} as chat_template.jinja in that folder", fallback)
             : "set template: " + fettles_name(fallback));
  }
  // Sets the template; "" means the model's own. An override that means the same in Fettle is read as it is. The
  // override `template` wins over chat_template.
  void mean_template(const std::string& name) {
    if (!is_word("chat_template")) {
      if (!name.empty()) mean("template", name);
    } else if (name != text_of(all_["chat_template"])) {
      handle_words("chat_template");
      if (is_word("template")) return;
      out_.meant_words.emplace_back("template", name.empty() ? YAML::Node() : YAML::Node(name));
    }
  }

  void read_plugins() {
    handle("plugins");
    const YAML::Node list = at("plugins");
    if (!list.IsDefined() || !list.IsSequence()) return;
    for (const auto& item : list) {
      const std::string name = item.IsScalar() ? item.Scalar() : "?";
      const auto is = [&](const char* word) { return name.find(word) != std::string::npos; };
      if (is("cut_cross_entropy") || is("liger") || is("kernels") || is("expert_parallel"))
        continue;  // these plugins change how results are computed, not the results
      if (is("swanlab") || is("otel") || is("opentelemetry")) {
        warn("{}: the plugin '{}' has no effect here: trainer_log.jsonl has all figures; report_to can add a tracker",
             where(item), name);
        continue;
      }
      throw UserError("{}: the plugin '{}' is not available; remove it if the run does not need its feature",
                      where(item), name);
    }
  }

  // Reads the special tokens. eos_token becomes Fettle's key eos_token, since it changes what is trained. bos_token,
  // unk_token and pad_token change nothing that is trained, so the tokenizer's own are used.
  void read_tokens() {
    for (const char* key : {"special_tokens", "tokens"}) {
      const YAML::Node map = at(key);
      const bool is_map = map.IsDefined() && map.IsMap();
      if (is_map || std::string_view(key) == "special_tokens") handle(key);  // a list `tokens` means add_tokens
      if (is_map && map["eos_token"].IsDefined() && map["eos_token"].IsScalar())
        mean("eos_token", map["eos_token"].Scalar());
      if (is_map && map["additional_special_tokens"].IsDefined() && !map["additional_special_tokens"].IsNull())
        out_.meant.emplace_back("add_special_tokens", map["additional_special_tokens"]);
    }
    handle("eot_tokens");  // Fettle finds the end-of-turn tokens of the chat template
  }

  // Reads the keys about the base model. base_model_config and tokenizer_config change nothing if they name this model.
  void read_model() {
    const std::string model = text_of(current("model_name_or_path", "base_model"));
    for (const char* key : {"base_model_config", "tokenizer_config"}) {
      if (text_of(all_[key]) != model) continue;
      handle(key);
      handle_words(key);
    }
    if (const YAML::Node map = at("bnb_config_kwargs"); map.IsDefined() && map.IsMap()) {
      handle("bnb_config_kwargs");
      for (const auto& pair : map) {
        const std::string key = pair.first.Scalar();
        if (key == "bnb_4bit_compute_dtype") continue;  // Fettle uses the dtype of the run
        if ((key != "bnb_4bit_use_double_quant" && key != "bnb_4bit_quant_type") || !pair.second.IsScalar())
          throw UserError("{}: bnb_config_kwargs.{} is not available; remove the key", where(pair.first), key);
        mean(key == "bnb_4bit_quant_type" ? "quantization_type" : "double_quantization", pair.second.Scalar());
      }
    }
    if (const YAML::Node map = at("model_config"); map.IsDefined() && map.IsMap()) {
      handle("model_config");
      for (const auto& pair : map) {
        const std::string key = pair.first.Scalar();
        if ((key != "output_router_logits" && key != "router_aux_loss_coef") || !pair.second.IsScalar())
          throw UserError("{}: model_config.{} is not available; set the field in the model folder's config.json",
                          where(pair.first), key);
        if (key == "router_aux_loss_coef" && has_balance())
          warn(
              "{}: model_config.{} has no effect here: with rl: {}, TRL's own weight of this loss counts, 0.001; "
              "moe_aux_loss_coef sets another",
              where(pair.first), key, rl_);
        else
          mean(key == "router_aux_loss_coef" ? "moe_aux_loss_coef" : "output_router_logits", pair.second.Scalar());
      }
    }
    // Accepts `dequantize: true` for MXFP4: Fettle decodes MXFP4 weights when it trains them or computes with them.
    const YAML::Node kwargs = at("model_quantization_config_kwargs");
    if (text("model_quantization_config") == "Mxfp4Config" && kwargs.IsDefined() && kwargs.IsMap() &&
        kwargs["dequantize"].IsDefined() && bool_from_text(kwargs["dequantize"].as<std::string>("")) == true) {
      handle("model_quantization_config");
      handle("model_quantization_config_kwargs");
    }
    read_unfrozen();
  }

  // Accepts `unfrozen_parameters` if it covers the whole text model. Such a value freezes only the vision part of an
  // image model. Throws for other values.
  void read_unfrozen() {
    const YAML::Node list = at("unfrozen_parameters");
    if (!list.IsDefined()) return;
    bool whole = false;
    if (list.IsSequence())
      for (const auto& item : list) {
        std::string name = item.IsScalar() ? item.Scalar() : "";
        if (name.starts_with('^')) name.erase(0, 1);
        while (name.ends_with('*') || name.ends_with('.')) name.pop_back();
        whole = whole || name == "model.language_model" || name == "language_model" || name == "model";
      }
    if (!whole)
      throw UserError(
          "{}: unfrozen_parameters is not available, because Fettle does not choose parameters by name; set "
          "finetuning_type: freeze to train whole layers",
          where(list));
    handle("unfrozen_parameters");
  }

  void read_usual() {
    usual("num_train_epochs", "1");
    usual("per_device_train_batch_size", "1");
    usual("gradient_accumulation_steps", "1");
    usual("lr_scheduler_type", "cosine");
    usual("overlength", "drop");
    if (number("save_total_limit", 1) == 0) handle("save_total_limit");
    usual("save_total_limit", "4");
    usual("cutoff_len", "512");
    const auto on = [&](const char* key) { return fettle::is_on(all_[key]); };
    if (!on("fp16") && !on("float16") && !on("bfloat16")) usual("bf16", "true");
    const auto sets = [&](const char* key) { return has(key) || is_overridden(root_, all_, key); };
    if (!sets("warmup_steps") && !sets("warmup_ratio")) {
      usual("warmup_ratio", "0.03");
      usual("max_warmup_steps", "100");
    }
  }

  const YAML::Node& root_;
  const YAML::Node& all_;
  std::string file_;
  std::string rl_;  // the method of preference tuning; empty: none
  AxolotlSets sets_;
  Dialect out_;
};

}  // namespace

bool is_axolotl(const YAML::Node& root) {
  auto has = [&](const char* key) { return root[key].IsDefined(); };
  if (has("model_name_or_path") && !has("base_model")) return false;  // TRL has `datasets`, too
  const YAML::Node sets = root["datasets"];
  if (sets.IsDefined() && sets.IsSequence() && sets.size() > 0 && sets[0].IsMap() && sets[0]["path"].IsDefined())
    return true;
  return has("base_model") && (has("micro_batch_size") || has("sequence_len"));
}

Dialect read_axolotl(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  return AxolotlReader(root, all, file).read();
}

}  // namespace fettle
