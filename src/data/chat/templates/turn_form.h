// Defines TurnForm: a chat template as the texts before and after each turn. One Jinja text (kTurnsJinja) renders all
// forms.
//
// The names and forms are those of LLaMA-Factory, so that `template` in its recipes means the same here.
// In every text, {bos} and {eos} stand for the tokenizer's bos_token and eos_token ("" when it has none).
#pragma once

#include <string_view>
#include <vector>

namespace fettle {

struct Around {
  std::string_view before, after;
};

inline constexpr Around kThink = {"<think>\n", "\n</think>\n\n"};

struct TurnForm {
  std::vector<std::string_view> names;
  std::string_view prefix = "";  // written once, before the first turn
  Around system = {"<|im_start|>system\n", "<|im_end|>\n"};
  Around user = {"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"};  // `after` opens the reply
  Around reply = {"", "<|im_end|>\n"};                                          // `after` is trained
  std::string_view default_system = "";
  std::vector<std::string_view> stops = {"<|im_end|>"};  // see BuiltInTemplate::stops
  Around thought = {"", ""};            // for models that think; a reply without a thought gets an empty thought
  std::string_view empty_thought = "";  // the text of an empty thought; "": thought.before + thought.after
  bool eos_at_end = false;              // eos_token follows a reply that ends the conversation
  bool system_in_user = false;          // the system text is inside the first user turn
};

const std::vector<TurnForm>& chatml_forms();
const std::vector<TurnForm>& marked_forms();

// The Jinja text that renders all forms. It reads messages, add_generation_prompt, the members of a TurnForm
// (system_before, system_after, ..., eos_at_end, system_in_user), default_system, eos_token, enable_thinking and
// drop_old_thoughts.
extern const std::string_view kTurnsJinja;

}  // namespace fettle
