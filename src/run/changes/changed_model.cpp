#include "run/changes/changed_model.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "checkpoint/changed/changed_folder.h"
#include "config/recipe.h"
#include "config/yaml_text.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

// Reads a yaml file of special tokens with their descriptions. The tokens of the file replace tokens.special.
void read_descriptions(NewTokens& tokens, const std::string& file, const std::string& where) {
  auto refuse = [&](const std::string& what) {
    throw UserError("{}: new_special_tokens_config: {}: {}; wanted lines such as '<token>': its description", where,
                    file, what);
  };
  YAML::Node node;
  try {
    node = parse_yaml(read_file(file));
  } catch (const YAML::Exception& error) {
    refuse(error.what());
  }
  if (!node.IsMap()) refuse("it is not a map");
  tokens.special.clear();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar())
      refuse(fmt::format("line {} is not a token with a description", entry.first.Mark().line + 1));
    tokens.special.push_back(entry.first.Scalar());
    tokens.descriptions[entry.first.Scalar()] = entry.second.Scalar();
  }
}

std::string first_key(const Recipe& recipe) {
  for (const char* key : {"add_tokens", "add_special_tokens", "new_special_tokens_config", "resize_vocab", "eos_token"})
    if (recipe.places.has(key)) return recipe.where(key);
  return recipe.where("add_tokens");
}

NewTokens new_tokens(const Recipe& recipe) {
  NewTokens tokens{.plain = recipe.add_tokens,
                   .special = recipe.add_special_tokens,
                   .from_descriptions = recipe.init_special_tokens != "noise_init",
                   .with_noise = recipe.init_special_tokens != "desc_init",
                   .eos = recipe.eos_token,
                   .resize = recipe.resize_vocab,
                   .seed = static_cast<uint64_t>(recipe.seed),
                   .at = first_key(recipe)};
  const std::string& file = recipe.new_special_tokens_config;
  const std::string at = recipe.where("new_special_tokens_config");
  if (!file.empty() && !tokens.special.empty())
    warn("{}: add_special_tokens has no effect: new_special_tokens_config names the special tokens",
         recipe.where("add_special_tokens"));
  if (!file.empty()) read_descriptions(tokens, file, at);
  if (file.empty() && tokens.from_descriptions)
    throw UserError("{}: init_special_tokens: {} needs new_special_tokens_config, a yaml file of descriptions",
                    recipe.where("init_special_tokens"), recipe.init_special_tokens);
  return tokens;
}

// Returns whether the changes add rows to the embedding, or may add some.
bool adds_rows(const NewTokens& tokens, const std::string& model) {
  if (tokens.resize || !tokens.plain.empty() || !tokens.special.empty()) return true;
  return !tokens.eos.empty() && !Tokenizer::open(model).token_id(tokens.eos);
}

// If a new LoRA adapter is trained and the recipe does not set additional_target, adds the embedding and the head to
// added_targets, so that the rows of new tokens are trained. With freeze-tuning, only warns, and only if
// freeze_extra_modules is empty.
void train_tables(const Recipe& recipe, const Stage& stage, ModelFolders& models, const std::string& at) {
  const bool freezes = recipe.finetuning_type == "freeze" && recipe.freeze_extra_modules.empty();
  if (freezes) warn("{}: the rows of new tokens are not trained; add the embedding to freeze_extra_modules", at);
  const bool fresh = models.adapters.empty() || recipe.create_new_adapter;
  if (recipe.finetuning_type != "lora" || recipe.places.has("additional_target") || !fresh) return;
  const std::filesystem::path file = std::filesystem::path(models.model) / "config.json";
  const nlohmann::json config = read_json_file(file);
  const Family* family = find_family(config);
  if (family == nullptr) return;  // make_model refuses the model later
  const bool writes = stage.head == Head::kTokens;
  for (const Param& param : family->params(family->read(ConfigReader(config, file.string()))))
    if (param.role == Role::kTokenEmbedding || (param.role == Role::kHead && writes))
      models.added_targets.push_back(last_part(module_of(param.hf_name)));
  info("additional_target is set to {}, because the rows of new tokens ({}) must be trained",
       fmt::join(models.added_targets, ","), at);
}

}  // namespace

ModelFolders change_model(const Recipe& recipe, const Stage& stage, ModelFolders models, bool trains,
                          ModelRepository::Weights weights) {
  ModelChanges changes;
  changes.rope = {.type = recipe.rope_scaling, .length = {}, .at = recipe.where("rope_scaling")};
  if (trains || recipe.places.has("cutoff_len")) changes.rope.length = recipe.cutoff_len;
  changes.tokens = new_tokens(recipe);
  if (!changes.any()) return models;
  const bool adds = trains && adds_rows(changes.tokens, models.model);
  const std::string folder = changed_folder(models.model, changes, weights).string();
  if (folder != models.model) {
    models.names[folder] = models.name_of(models.model);
    models.model = folder;
  }
  if (adds) train_tables(recipe, stage, models, changes.tokens.at);
  return models;
}

}  // namespace fettle
