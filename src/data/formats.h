// Defines Sample and read_sample, which turns a row of any known format into a conversation, a text, or token ids.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"
#include "data/example.h"
#include "data/read/columns.h"
#include "data/read/dataset_info.h"

namespace fettle {

struct Sample {
  enum class Kind { kChat, kText, kPrompted, kTokens };
  Kind kind = Kind::kChat;
  Conversation conversation;               // kChat
  bool plain = false;                      // kChat: the row has the texts `prompt` and `completion`, not messages
  std::string text;                        // kText: the text, all trained; kPrompted: the prompt, without a template
  bool continues = false;                  // kText: the text beyond cutoff_len becomes further examples
  std::string reply;                       // the reply (kPrompted)
  std::vector<int32_t> input_ids, labels;  // token ids and labels (kTokens)
  std::vector<bool> of_prompt;             // kTokens: the tokens that are trained only with train_on_prompt
  std::vector<size_t> documents;           // kTokens: where the documents after the first one begin
  std::vector<Message> rejected;           // the messages of the conversation with the rejected reply (preferences.h)
  Preference preference = Preference::kNone;
  std::string_view format;  // the name of the format in docs/data.md
};

// Reads a row. A row with input_ids has token ids (token_rows.h). For other rows, the source sets the format. If the
// source sets none, the row's columns decide:
// - openai: messages[{role, content}];
// - sharegpt: conversations[{from, value}]; pairs: conversations[{human, assistant}] or [{input, output}];
// - alpaca: instruction, input, output, system, history; or query, response, system, history; or question, answer,
//   system, history; or, as in Dolly, instruction, context, response;
// - prompt and completion, each a text or messages; beside a text, messages that open a conversation are all of it;
// - text: text or content.
// Throws BadRow.
Sample read_sample(const nlohmann::ordered_json& row, const DataSource& source);
// Reads a row whose prompt is to be answered. Unlike for read_sample, the reply may be missing, and a conversation may
// end with a turn of any role. Throws BadRow.
Sample read_prompt(const nlohmann::ordered_json& row, const DataSource& source);
// Returns the row's variables for the chat template (chat_template_kwargs): a JSON object, or "". Throws BadRow.
std::string read_variables(const nlohmann::ordered_json& row);

// Returns a plain sample as kPrompted.
Sample without_template(Sample plain);

// Returns whether the messages in `list`, the value of `column`, have OpenAI's names for fields and roles (role,
// content), and not ShareGPT's (from, value). The entry's formatting decides; without it, the first message.
bool has_openai_names(const nlohmann::ordered_json& list, const std::string& column, const DataSource& source);

// Returns whether `list` is a list of turns that begins like a conversation: with the system's or the user's turn.
bool opens_conversation(const nlohmann::ordered_json& list, const DataSource& source);

// Returns the column with the turns of a conversation: the column that the source names, or else the usual one of the
// source's format. If the source sets no format, returns the first usual column that the row has. Returns "" if the row
// is not a conversation.
std::string turns_column(const nlohmann::ordered_json& row, const DataSource& source);
// Returns whether the row is a conversation. The source's format decides. If the source sets none, the row's columns
// decide.
bool is_conversation(const nlohmann::ordered_json& row, const DataSource& source);
// Reads a conversation (kChat). It may end with a turn of any role. Throws BadRow.
Sample read_turns(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
