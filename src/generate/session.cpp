#include "generate/session.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/seconds_since.h"
#include "checkpoint/chat_files.h"
#include "checkpoint/peft/adapter_options.h"
#include "data/chat/system_message.h"
#include "models/config.h"
#include "step/open_model.h"

namespace fettle {
namespace {

void require_text(const Request& request) {
  if (request.stage().head != Head::kTokens)
    throw UserError(
        "{}: a model of stage: {} gives labels or scores and cannot generate text; evaluate it with `fettle eval`",
        request.config_file(), request.stage().name);
}

// Reads the options of adapter folders. Throws UserError, which names the folder, when an adapter belongs to another
// model, or cannot be applied beside other adapters.
std::vector<SideAdapter> side_adapters(const Model& model, const std::vector<std::string>& folders) {
  std::vector<SideAdapter> out;
  for (const std::string& folder : folders) {
    SideAdapter one{folder, adapter_options(open_adapter(folder), model)};
    if (const std::string obstacle = side_obstacle(one.options); !obstacle.empty())
      throw UserError(
          "{}: this adapter cannot be served beside the base or other adapters: {}; serve it alone "
          "(adapter_name_or_path), or export a merged model and serve that folder",
          folder, obstacle);
    out.push_back(std::move(one));
  }
  return out;
}

// Loads the model. If `side_by_side` is given, these adapters replace those of the request.
OpenModel opened(Devices& devices, const Request& request, const std::optional<std::vector<SideAdapter>>& side_by_side,
                 Phases& phases) {
  phases.done("opened the devices");
  OpenModel model = side_by_side ? open_model(devices, request.without_adapters(), Purpose::kInference,
                                              {.side_by_side = *side_by_side})
                                 : open_model(devices, request);
  phases.done("loaded the weights");
  return model;
}

}  // namespace

struct Session::Weights {
  Phases phases;
  Devices devices;
  OpenModel model;
  Generator generator;

  Weights(const Request& request, const std::optional<std::vector<SideAdapter>>& side_by_side)
      : devices(request.devices()),
        model(opened(devices, request, side_by_side, phases)),
        generator(devices, model.run, model.state) {}
};

Session::Session(const Request& request, Template wanted, SystemMessage system, Adapters adapters)
    : request_(request),
      spec_(request.generation()),
      model_(make_model(request.repository().config(), request.config_file())),
      tokenizer_(Tokenizer::open(request.model_folder())) {
  require_text(request);
  if (adapters == Adapters::kSideBySide) side_by_side_ = side_adapters(model_, request.adapters());
  const DataSpec data = request.data();
  template_name_ = data.template_name;
  if (system == SystemMessage::kDefault) default_system_ = data.default_system;
  const bool talks = wanted == Template::kRequired || row_reader(request.stage().rows).conversations;
  // Adapters side by side share one template.
  if (talks && data.template_name.empty() && (adapters == Adapters::kTogether || request.adapters().size() == 1)) {
    const int64_t end = use_chat_of_adapters(tokenizer_, request.repository(), request.adapters());
    if (end >= 0) stop_ids_.push_back(static_cast<int32_t>(end));
  }
  const bool offered = !data.template_name.empty() || tokenizer_.chat_template().has_value();
  if (wanted == Template::kRequired || (talks && offered))
    template_.emplace(data.template_name, tokenizer_, std::nullopt, data.thinking);
  if (template_) reply_form_ = reply_form_of(template_->source(false), false);
  auto add = [this](const std::vector<int32_t>& ids) { stop_ids_.insert(stop_ids_.end(), ids.begin(), ids.end()); };
  if (template_) add(template_->stop_ids());
  // In templates with channels (GPT-OSS), another message of the same turn follows <|end|>, so <|end|> does not end the
  // reply.
  if (const auto end = tokenizer_.token_id("<|end|>"))
    if (template_ && template_->source(false).find("<|channel|>") != std::string::npos) std::erase(stop_ids_, *end);
  add(model_.config.eos_token_id);
  if (const auto& generation = request.repository().generation_config())
    add(end_ids(*generation, (request.repository().folder() / "generation_config.json").string()));
  if (tokenizer_.eos_id()) add({*tokenizer_.eos_id()});
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

Session::~Session() = default;

const std::string& Session::template_source(bool with_tools) const {
  internal_check(template_.has_value(), "template_source() needs a chat template");
  return template_->source(with_tools);
}

std::vector<int32_t> Session::prompt(Conversation conversation) const {
  internal_check(template_.has_value(), "prompt() of a conversation needs a chat template");
  give_system(conversation.messages, default_system_, names_built_in(template_name_));
  return template_->prompt(conversation);
}

std::string Session::reply_text(Conversation conversation, const Message& reply) const {
  internal_check(template_.has_value(), "reply_text() needs a chat template");
  give_system(conversation.messages, default_system_, names_built_in(template_name_));
  conversation.messages.push_back(reply);
  conversation.messages.back().train = true;
  std::string text;
  for (const ChatTemplate::Piece& piece : template_->render(conversation))
    if (piece.trained) text = tokenizer_.decode(piece.ids, true);
  return text;
}

std::vector<int32_t> Session::prompt(const std::string& text) const {
  if (!template_) return tokenizer_.encode(text, true);
  return prompt(Conversation{{{.role = "user", .content = text}}});
}

void Session::check_prompt(const std::vector<int32_t>& ids, const std::string& where) const {
  if (ids.empty()) throw UserError("{}: the prompt is empty; give some text to continue", where);
  if (static_cast<int64_t>(ids.size()) > max_length())
    throw UserError(
        "{}: the prompt has {} tokens, but the model takes at most {} (max_position_embeddings of {}); shorten the "
        "prompt",
        where, ids.size(), max_length(), request_.config_file());
}

void Session::load() {
  if (weights_) return;
  weights_ = std::make_unique<Weights>(request_, side_by_side_);
  live_line("");
}

Devices& Session::devices() {
  internal_check(weights_ != nullptr, "devices() needs load()");
  return weights_->devices;
}

OpenModel& Session::model() {
  internal_check(weights_ != nullptr, "model() needs load()");
  return weights_->model;
}

Reply Session::reply(const std::vector<int32_t>& prompt, uint64_t number, const OnText& on_text) {
  load();
  return write_reply(weights_->generator, tokenizer_, prompt, shown_options(number), on_text);
}

void Session::replies(const std::vector<std::vector<int32_t>>& prompts, uint64_t number, const OnReply& on_reply) {
  load();
  write_replies(
      weights_->devices, weights_->model, tokenizer_, prompts, [&](size_t i) { return shown_options(number + i); },
      on_reply);
}

ReplyOptions Session::shown_options(uint64_t number) const {
  ReplyOptions out = options(number);
  out.shown_ids = mark_ids(reply_form_, tokenizer_);
  return out;
}

ReplyOptions Session::options(uint64_t number) const {
  return {.max_new_tokens = spec_.max_new_tokens,
          .sampling = {.do_sample = spec_.do_sample,
                       .temperature = spec_.temperature,
                       .top_k = spec_.top_k,
                       .top_p = spec_.top_p,
                       .min_p = spec_.min_p,
                       .repetition_penalty = spec_.repetition_penalty,
                       .seed = mix_bits(spec_.seed, number)},
          .stop_ids = stop_ids_,
          .continues_text = !template_};
}

}  // namespace fettle
