// Defines Session, which makes a request's model ready to answer. The constructor loads the tokenizer and the template;
// the weights are loaded at first use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "data/chat/chat.h"
#include "generate/replies/reply_reader.h"
#include "generate/reply.h"
#include "models/model.h"
#include "run/request.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// The base model of a request, with its adapters if the request names any. With kTogether, all adapters together change
// the base. With kSideBySide, each reply uses one adapter or none.
class Session {
 public:
  enum class Template { kRequired, kIfThere };
  // kDefault: prompts without a system message get the recipe's default_system. kByCaller: the caller adds the system
  // message.
  enum class SystemMessage { kDefault, kByCaller };
  enum class Adapters { kTogether, kSideBySide };

  // Reads config.json, the headers of the weights, the tokenizer and the template. With Template::kRequired, throws
  // UserError if there is no template. With kIfThere, the session has no template in two cases: the stage is pt, or
  // neither the recipe nor the model has a template. If the recipe names no template, the session has that of the
  // adapters (use_chat_of_adapters); but the model's own template with several adapters side by side. With kSideBySide,
  // also reads the adapters' headers; OpenModel::run has the adapters in the order of the request. Throws UserError.
  explicit Session(const Request& request, Template wanted, SystemMessage system = SystemMessage::kDefault,
                   Adapters adapters = Adapters::kTogether);
  ~Session();

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_template() const { return template_.has_value(); }
  int64_t vocab_size() const { return model_.config.vocab_size; }
  int64_t max_length() const { return model_.config.max_position_embeddings; }
  // Returns the token ids that end a reply: those of the template, of config.json, of generation_config.json and of the
  // tokenizer.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

  // Returns the Jinja text of the template that renders conversations with or without tools. There must be a template.
  const std::string& template_source(bool with_tools) const;

  // Returns how replies to prompts without tools are divided into reasoning and content.
  const ReplyForm& reply_form() const { return reply_form_; }

  // Returns the prompt for the next reply. Puts default_system first when there is no system message
  // (system_message.h).
  std::vector<int32_t> prompt(Conversation conversation) const;
  // Returns the text that a model trained on this conversation writes as its next turn, which is `reply`, without
  // special tokens.
  std::string reply_text(Conversation conversation, const Message& reply) const;
  // Returns the prompt of one question. Without a template, the prompt is the text itself, which the model continues.
  std::vector<int32_t> prompt(const std::string& text) const;
  // Throws UserError, which begins with `where`, when a prompt is empty or has more tokens than the model has
  // positions.
  void check_prompt(const std::vector<int32_t>& ids, const std::string& where) const;

  // Opens the devices and loads the weights at the first call. Shows progress.
  void load();
  // Return the devices and the model that load() opened. They throw InternalError before load().
  Devices& devices();
  OpenModel& model();
  // Returns the options from the request's generation keys. Replies with different values of `number` get different
  // random numbers. Without a template, replies continue the prompt's text.
  ReplyOptions options(uint64_t number) const;
  // Writes a reply with options(number). Its text has the tokens around its reasoning, for ShownReply. Calls load().
  Reply reply(const std::vector<int32_t>& prompt, uint64_t number, const OnText& on_text);
  // Writes the replies to several prompts. Answers per_device_eval_batch_size of them at the same time. The first
  // prompt has the number `number`, the next one `number` + 1, and so on. The texts are as those of reply(). Calls
  // load().
  void replies(const std::vector<std::vector<int32_t>>& prompts, uint64_t number, const OnReply& on_reply);

 private:
  struct Weights;
  ReplyOptions shown_options(uint64_t number) const;

  Request request_;
  GenerationSpec spec_;
  std::string default_system_;
  std::string template_name_;  // of the recipe
  Model model_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  ReplyForm reply_form_;
  std::vector<int32_t> stop_ids_;
  std::optional<std::vector<SideAdapter>> side_by_side_;  // nullopt with Adapters::kTogether
  std::unique_ptr<Weights> weights_;
};

}  // namespace fettle
