// Defines Sample and read_sample: a row of any of the known formats as a conversation, a text, or token ids.
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
  enum class Kind { kChat, kText, kTokens };
  Kind kind = Kind::kChat;
  std::vector<Message> messages;           // kChat
  std::string tools_json;                  // kChat: a JSON array, or ""
  std::string text;                        // kText: all of it is trained
  std::vector<int32_t> input_ids, labels;  // kTokens
  std::vector<Message> rejected;           // of a pair: the conversation with the other reply (preferences.h)
  Preference preference = Preference::kNone;
  std::string_view format;  // its name in docs/data.md
};

// Formats, told by the row's columns unless the source says: pre-tokenised (input_ids, labels, attention_mask), openai
// (messages[{role, content}]), sharegpt (conversations[{from, value}]), alpaca (instruction, input, output, system,
// history), prompt and completion (texts or messages), text (text or content). Throws BadRow.
Sample read_sample(const nlohmann::ordered_json& row, const DataSource& source);

// Whether the row is a conversation by the source's format or by its columns; and that conversation (kChat), which may
// end with any turn. Throws BadRow.
bool is_conversation(const nlohmann::ordered_json& row, const DataSource& source);
Sample read_turns(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
