// Defines Session: a request's model made ready to answer. Its text side is there at once, its weights when first
// needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "data/chat.h"
#include "generate/reply.h"
#include "models/model.h"
#include "run/request.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// The base model, with its adapters when there are some.
class Session {
 public:
  enum class Template { kRequired, kIfThere };
  // Whether prompts without a system message get the recipe's default_system, or the caller adds its own.
  enum class SystemMessage { kDefault, kByCaller };

  // Reads config.json, the headers of the weights, the tokenizer and the template. Without kRequired, stage pt has no
  // template, nor has a model that brings none when the recipe names none. Throws UserError.
  explicit Session(const Request& request, Template wanted, SystemMessage system = SystemMessage::kDefault);
  ~Session();

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_template() const { return template_.has_value(); }
  int64_t vocab_size() const { return model_.config.vocab_size; }
  int64_t max_length() const { return model_.config.max_position_embeddings; }
  // What ends a reply: the template's, config.json's and generation_config.json's.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

  // The prompt for the next reply; default_system is put first unless there is a system message.
  std::vector<int32_t> prompt(std::vector<Message> messages, const std::string& tools_json = "") const;
  // One question: through the template, or the text itself to be continued.
  std::vector<int32_t> prompt(const std::string& text) const;
  // Throws UserError naming `where` when a prompt is empty or leaves no position for a reply.
  void check_prompt(const std::vector<int32_t>& ids, const std::string& where) const;

  // Takes the devices and loads the weights, unless that is done. Shows progress.
  void load();
  // By the request's generation keys; `number` tells prompts apart that get draws of their own. Loads.
  Reply reply(const std::vector<int32_t>& prompt, uint64_t number, const OnText& on_text);

 private:
  struct Weights;
  Request request_;
  GenerationSpec spec_;
  std::string default_system_;
  Model model_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<int32_t> stop_ids_;
  std::unique_ptr<Weights> weights_;
};

}  // namespace fettle
