// Defines functions that read the messages of a conversation: contents, weights, trained spans, tools and tool calls.
// formats.cpp uses them for all formats of conversations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat.h"

namespace fettle {

// Axolotl's field of a message that has the spans of the content, and whether they are trained.
inline constexpr const char* kSpansColumn = "train_detail";

// All functions below throw BadRow for values that they cannot use.

// Reads a list of messages in OpenAI's form. Also reads the fields of Axolotl, ms-swift and LLaMA-Factory v1. `column`
// names the list in messages of errors.
std::vector<Message> openai_messages(const nlohmann::ordered_json& list, const std::string& column);

// Reads the content of a message or turn, and the spans of the content that are trained. Spans in the column
// `spans_column` take precedence over spans of the content's parts.
void read_content(const nlohmann::ordered_json& message, const std::string& column, const std::string& spans_column,
                  Message& out);
// Reads the fields that say whether a message is trained, or which weight its tokens have, into out.train and
// out.weight. If a message has several of them (ms-swift's `loss` and `loss_scale`), multiplies the factors.
void read_weight(const nlohmann::ordered_json& message, Message& out);

// Returns the tools in `column` as JSON text; "" when there are none. The column has an array, or the JSON text of an
// array.
std::string tools_of(const nlohmann::ordered_json& row, const std::string& column);
// Converts the text of a function_call turn, {"name", "arguments"} or an array of these, to OpenAI's tool_calls.
std::string tool_calls_json(const std::string& text);

// Requires that the turns are in an order that a chat template can render, and that the last one is the assistant's.
void want_order(const std::vector<Message>& messages);

}  // namespace fettle
