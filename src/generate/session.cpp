#include "generate/session.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/batches/order.h"
#include "run/device_request.h"
#include "step/make_job.h"

namespace fettle {
namespace {

std::string config_file(const ModelRepository& repository) {
  return (repository.folder() / "config.json").string();
}

// generation_config.json has one id or a list of them.
std::vector<int32_t> generation_stops(const ModelRepository& repository) {
  if (!repository.generation_config()) return {};
  const nlohmann::json& config = *repository.generation_config();
  const auto at = config.find("eos_token_id");
  if (at == config.end() || at->is_null()) return {};
  const nlohmann::json list = at->is_array() ? *at : nlohmann::json::array({*at});
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer())
      throw UserError("{}: eos_token_id is {}, wanted a token id or a list of them",
                      (repository.folder() / "generation_config.json").string(), at->dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Recipe for_inference(Recipe recipe) {
  if (recipe.stage == "cls" || recipe.stage == "rm")
    throw UserError("{}: a model of stage: {} gives labels or scores and writes no text; `fettle eval` measures it",
                    recipe.where("stage"), recipe.stage);
  recipe.train_from_scratch = false;  // what answers is what was trained, never random weights
  return recipe;
}

}  // namespace

struct Session::Weights {
  Devices devices;
  Job job;
  TrainState state;
  Generator generator;

  Weights(const Recipe& recipe, const ModelRepository& repository)
      : devices(device_request(recipe)),
        job(make_job(recipe, repository.config(), config_file(repository), devices.count(), Purpose::kInference)),
        state(load_state(devices, job, repository, false)),
        generator(devices, job, state) {}
};

Session::Session(const Recipe& recipe, Template wanted)
    : recipe_(for_inference(recipe)),
      repository_(ModelRepository::open(recipe.model_name_or_path)),
      model_(make_model(repository_.config(), config_file(repository_))),
      tokenizer_(Tokenizer::open(recipe.model_name_or_path)) {
  const bool offered = !recipe.template_name.empty() || tokenizer_.chat_template().has_value();
  if (wanted == Template::kRequired || (recipe.stage != "pt" && offered))
    template_.emplace(recipe.template_name, tokenizer_);
  auto add = [this](const std::vector<int32_t>& ids) { stop_ids_.insert(stop_ids_.end(), ids.begin(), ids.end()); };
  if (template_) add(template_->stop_ids());
  add(model_.config.eos_token_id);
  add(generation_stops(repository_));
  if (tokenizer_.eos_id()) add({*tokenizer_.eos_id()});
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

Session::~Session() = default;

std::vector<int32_t> Session::prompt(std::vector<Message> messages, const std::string& tools_json) const {
  internal_check(template_.has_value(), "messages without a chat template");
  const bool has_system = !messages.empty() && messages[0].role == "system";
  if (!recipe_.default_system.empty() && !has_system)
    messages.insert(messages.begin(), Message{.role = "system", .content = recipe_.default_system, .extra_json = ""});
  return template_->prompt(messages, tools_json);
}

std::vector<int32_t> Session::prompt(const std::string& text) const {
  if (!template_) return tokenizer_.encode(text, true);
  return prompt(std::vector<Message>{{.role = "user", .content = text, .extra_json = ""}});
}

void Session::check_prompt(const std::vector<int32_t>& ids, const std::string& where) const {
  if (ids.empty()) throw UserError("{}: the prompt is empty; give some text to continue", where);
  if (static_cast<int64_t>(ids.size()) > max_length())
    throw UserError("{}: the prompt has {} tokens, but the model takes {} (max_position_embeddings of {}); shorten it",
                    where, ids.size(), max_length(), config_file(repository_));
}

void Session::load() {
  if (weights_) return;
  weights_ = std::make_unique<Weights>(recipe_, repository_);
  live_line("");
}

Reply Session::reply(const std::vector<int32_t>& prompt, uint64_t number, const OnText& on_text) {
  load();
  const ReplyOptions options{.max_new_tokens = recipe_.max_new_tokens,
                             .sampling = {.do_sample = recipe_.do_sample,
                                          .temperature = recipe_.temperature,
                                          .top_k = recipe_.top_k,
                                          .top_p = recipe_.top_p,
                                          .seed = mix_bits(static_cast<uint64_t>(recipe_.seed), number)},
                             .stop_ids = stop_ids_};
  return write_reply(weights_->generator, tokenizer_, prompt, options, on_text);
}

}  // namespace fettle
