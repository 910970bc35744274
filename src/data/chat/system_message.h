// Defines is_system, which recognises system messages, and give_system, which decides on the system message of a
// conversation.
#pragma once

#include <string>
#include <vector>

#include "data/chat/conversation.h"

namespace fettle {

// Returns whether a message of this role is a system message. `developer` is OpenAI's newer name of the role. A chat
// template that does not know this name gets `system` (ChatTemplate::State::input).
inline bool is_system(const std::string& role) {
  return role == "system" || role == "developer";
}

// Puts `default_system` first if the conversation has no system message; "" puts none. With a built-in template or a
// `default_system`, removes an empty system message at the beginning first, so the default applies as in LLaMA-Factory.
// Other templates get an empty system message as it is, as in Transformers.
inline void give_system(std::vector<Message>& messages, const std::string& default_system, bool built_in) {
  const auto has_own = [&] { return !messages.empty() && is_system(messages[0].role); };
  if ((built_in || !default_system.empty()) && has_own() && messages[0].content.empty())
    messages.erase(messages.begin());
  if (!default_system.empty() && !has_own())
    messages.insert(messages.begin(), {.role = "system", .content = default_system});
}

}  // namespace fettle
