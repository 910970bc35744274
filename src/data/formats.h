// Defines Sample and read_sample: a row of any of the known formats as a conversation, a text, or token ids.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/example.h"
#include "data/read/dataset_info.h"

namespace fettle {

// A row that cannot be used, and why; the caller adds file:line and decides by on_bad_row.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Sample {
  enum class Kind { kChat, kText, kTokens };
  Kind kind = Kind::kChat;
  std::vector<Message> messages;           // kChat
  std::string tools_json;                  // kChat: a JSON array, or ""
  std::string text;                        // kText: all of it is trained
  std::vector<int32_t> input_ids, labels;  // kTokens
  std::vector<Message> rejected;           // of a pair: the conversation with the other reply (preferences.h)
  Preference preference = Preference::kNone;
};

// Formats, told by the row's columns unless the source says: pre-tokenised (input_ids, labels, attention_mask), openai
// (messages[{role, content}]), sharegpt (conversations[{from, value}]), alpaca (instruction, input, output, system,
// history), prompt and completion (texts or messages), text (text or content). Throws BadRow.
Sample read_sample(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
