// Defines ToolCallForm: how tool calls must be given to a chat template, so that the template renders them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fettle {

// Most templates write the arguments of a call as JSON themselves, so the arguments must be objects. Templates of the
// DeepSeek kind expect the JSON text of the arguments, and write the calls only if the message's content is none.
struct ToolCallForm {
  enum class Arguments {
    kObjects,  // JSON text is parsed
    kAsGiven,  // the template writes an object in Python's notation, so JSON text is kept
    kTexts,    // the template fails for objects, so they become JSON text
  };
  Arguments arguments = Arguments::kObjects;
  // How a message gives an empty content, in the order in which they are tried. Transformers leaves out fields that are
  // null. Templates of the DeepSeek kind need none.
  enum class Content { kLeftOut, kNone, kEmptyText };
  Content for_null = Content::kEmptyText;   // the content of a message without content
  Content for_empty = Content::kEmptyText;  // the content "" of a message

  // Renders a call in several forms to find out which of them shows the call. `render` renders a conversation and may
  // throw UserError.
  static ToolCallForm of(const std::function<std::string(const nlohmann::ordered_json& messages)>& render);
  // Gives a message that has tool calls this form. The content of a message without content is null. Throws UserError
  // when the arguments have an integer of more than 64 bits, and must be parsed.
  void give_to(nlohmann::ordered_json& message) const;
};

// Returns the name of the first function whose calls in `message` are more than the places of its name in `text`; ""
// when there is none. A call whose id is in the text is not missing, because Kimi K2 writes ids instead of names.
std::string missing_call(const nlohmann::ordered_json& message, std::string_view text);

}  // namespace fettle
