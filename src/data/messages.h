// Defines functions that read the messages of a conversation: contents, weights, trained spans, tools and tool calls.
// formats.cpp uses them for all formats of conversations.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/conversation.h"
#include "data/read/dataset_info.h"

namespace fettle {

// Axolotl's field of a message that has the spans of the content, and whether they are trained.
inline constexpr const char* kSpansColumn = "train_detail";

// The names that the rows use for the fields and the roles of a message.
struct MessageNames {
  std::string role, content, spans;  // the fields
  std::map<std::string, std::string>
      roles;                    // by name in the rows: the role. "function_call": the content has the calls
  std::string user, assistant;  // the first names of these two roles
  bool only_marked = false;     // a message is trained only if it says so (DataSource::only_marked)
};
// Returns the names of a data set. The entry's tags take precedence. The other fields are OpenAI's (role and content),
// or, if `sharegpt` is true, ShareGPT's (from and value). A role without a tag has its names of both formats (user and
// human, assistant and gpt, tool and observation).
MessageNames message_names(const DataSource& source, bool sharegpt);
// Returns the turn's role as templates know it; "" when the turn has no known role.
std::string role_of(const nlohmann::ordered_json& turn, const MessageNames& names);

// All functions below throw BadRow for values that they cannot use.

// Reads a list of messages. Also reads the fields of Axolotl, ms-swift and LLaMA-Factory v1. A turn that has only calls
// is joined to the assistant's turn before it. `column` names the list in messages of errors.
std::vector<Message> read_messages(const nlohmann::ordered_json& list, const std::string& column,
                                   const MessageNames& names);

// Returns the tools in `column` as JSON text; "" when there are none. The column has an array, or the JSON text of an
// array. An item may be JSON text, too. A tool that is a bare {"name", ...} becomes {"type": "function", "function":
// {"name", ...}}, as OpenAI's clients send it.
std::string tools_of(const nlohmann::ordered_json& row, const std::string& column);
// Converts the text of a function_call turn, {"name", "arguments"} or an array of these, to OpenAI's tool_calls. The
// field `parameters` stands for absent arguments. Throws BadRow if both are absent, but the call has another field that
// may have the arguments.
std::string tool_calls_json(const std::string& text);

// Returns whether the message has calls of tools, or a thought in a field of its own.
bool has_calls_or_thought(const Message& message);

// Requires that there are turns, and that they are in an order that a chat template can render. Before the first turn
// of a user or tool, the assistant may have a greeting that is not trained.
void want_order_of_turns(const std::vector<Message>& messages);
// Requires the same, and that the last turn is the assistant's.
void want_order(const std::vector<Message>& messages);

}  // namespace fettle
