// Defines TurnForm: a chat template as the texts around each turn, which one Jinja text renders (kTurnsJinja).
//
// The names and forms are those that LLaMA-Factory knows, so that its recipes' `template` means the same here.
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
  std::string_view prefix = "";  // stands once, before the first turn
  Around system = {"<|im_start|>system\n", "<|im_end|>\n"};
  Around user = {"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"};  // `after` opens the reply
  Around reply = {"", "<|im_end|>\n"};                                          // `after` is trained
  std::string_view default_system = "";
  std::vector<std::string_view> stops = {"<|im_end|>"};  // like BuiltInTemplate::stops
  Around thought = {"", ""};            // for models that think; a reply without a thought gets an empty one
  std::string_view empty_thought = "";  // empty: thought.before + thought.after
  bool eos_at_end = false;              // replies end without a token of their own; eos_token ends the conversation
  bool system_in_user = false;          // the system text stands within the first user turn
};

const std::vector<TurnForm>& chatml_forms();
const std::vector<TurnForm>& marked_forms();

// Reads messages and add_generation_prompt, the texts of a TurnForm by name (system_before, ...), default_system,
// eos_token, enable_thinking and drop_old_thoughts.
extern const std::string_view kTurnsJinja;

}  // namespace fettle
