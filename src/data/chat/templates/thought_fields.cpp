#include "data/chat/templates/thought_fields.h"

namespace fettle {

void alias_thought(nlohmann::ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    const nlohmann::ordered_json thought = *found;
    if (!message.contains("thinking")) message["thinking"] = thought;
    message["reasoning_content"] = thought;
    return;
  }
}

}  // namespace fettle
