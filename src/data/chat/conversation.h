// Defines Message and Conversation, which a row, a request or a prompt is read into before a chat template renders it.
#pragma once

#include <string>
#include <vector>

namespace fettle {

// A range of bytes in a message's content, and whether these bytes are trained.
struct ContentSpan {
  size_t begin, end;
  bool train;
};

struct Message {
  std::string role;  // system, user, assistant, tool, ...
  std::string content;
  std::string extra_json;  // other fields of the message (tool_calls, ...) as a JSON object, or ""
  bool train = true;       // for an assistant's turn: whether the turn is trained
  double weight = 1;       // factor on the loss of a trained turn's tokens; above 0
  // If not empty, a token of the content is trained only when it overlaps a trained span. The text that the template
  // writes around the content is trained as usual.
  std::vector<ContentSpan> spans = {};
  // If the row has thoughts as parts of the content: all parts as a JSON list, in Mistral's form. A part is
  // {"type": "text", "text"} or {"type": "thinking", "thinking"}. The thoughts of an assistant's turn are also in
  // extra_json, as `reasoning_content`.
  std::string parts_json = {};
  bool no_content = false;  // the row has no content or null, so `content` is ""
  bool of_prompt = false;   // `train` is false only because the message belongs to the row's prompt
  bool marked = false;      // a field of the message in the row says that it is trained; counts for all roles but
                            // the assistant's, whose turns have `train`
};

// Returns whether the content of the message and its end-of-turn token are trained.
inline bool is_trained(const Message& message) {
  return message.role == "assistant" ? message.train : message.marked;
}

// A conversation, with all that a chat template gets besides the tokenizer's tokens.
struct Conversation {
  std::vector<Message> messages;
  std::string tools_json = {};      // the tools: a JSON array, or ""
  std::string variables_json = {};  // further variables for the template (chat_template_kwargs): a JSON object, or ""
};

}  // namespace fettle
