// Defines Sample and read_sample. A row of any known format becomes a conversation, a text, or token ids.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"
#include "data/example.h"
#include "data/read/columns.h"
#include "data/read/dataset_info.h"

namespace fettle {

struct Sample {
  enum class Kind { kChat, kText, kPrompted, kTokens };
  Kind kind = Kind::kChat;
  std::vector<Message> messages;           // kChat
  std::string tools_json;                  // kChat: a JSON array, or ""
  std::string variables_json;              // kChat: chat_template_kwargs, a JSON object, or ""
  std::string text;                        // kText: trained whole; kPrompted: the prompt, without a template
  bool continues = false;                  // kText: what is beyond cutoff_len becomes further examples
  std::string reply;                       // kPrompted
  std::vector<int32_t> input_ids, labels;  // kTokens
  std::vector<Message> rejected;           // the conversation with the rejected reply (preferences.h)
  Preference preference = Preference::kNone;
  std::string_view format;  // the name of the format in docs/data.md
};

// Detects the format from the row's columns unless the source sets it: token ids (input_ids, labels, attention_mask),
// openai (messages[{role, content}]), sharegpt (conversations[{from, value}]), alpaca (instruction, input, output,
// system, history), query and response, prompt and completion (texts or messages), text (text or content). Throws
// BadRow.
Sample read_sample(const nlohmann::ordered_json& row, const DataSource& source);

// is_conversation() looks at the source's format or the row's columns. read_turns() reads such a conversation (kChat),
// which may end with any turn. Throws BadRow.
bool is_conversation(const nlohmann::ordered_json& row, const DataSource& source);
Sample read_turns(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
