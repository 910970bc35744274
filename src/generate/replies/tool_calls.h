// Defines CallForm: how the models of a family write calls of tools into their replies, and how such text is read.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object
  std::string id = "";    // "" unless the model writes ids; the chat template may need this id again
};

// The `tools` of a request. Some formats write all arguments as text; the tools' schemas say which arguments are
// strings.
class ToolTypes {
 public:
  explicit ToolTypes(const std::string& tools_json);
  bool knows(const std::string& tool) const;
  // Returns whether `text` begins with the name of a tool and a newline. Returns nullopt when `text` is too
  // short to tell.
  std::optional<bool> begins_with_name(std::string_view text) const;
  // Returns an argument as JSON. If the tool's schema says that the argument is a string, returns a string. Otherwise
  // reads the text as JSON or in Python's syntax. If the text has neither form, returns a string.
  nlohmann::ordered_json value(const std::string& tool, const std::string& argument, const std::string& text) const;

 private:
  nlohmann::ordered_json tools_;  // name -> properties
};

struct CallForm {
  std::string_view format;  // one of the names that tool_formats_of returns
  std::string_view begin;   // text before a call
  std::string_view end;     // text after a call; "": calls reach to the end of the reply
  // Another text with which a call may begin, but only at the beginning of the reply, or directly after reasoning or
  // another call; "": none. Unlike `begin`, this text is a part of the call.
  std::string_view first = "";
  bool by_name = false;    // a tool's name and a newline may begin a call, in the same places as `first`
  bool short_ids = false;  // the template accepts only ids of 9 letters and digits
  // Reads the text between `begin` and `end`. Returns nullopt when this text is not a call.
  std::optional<std::vector<ToolCall>> (*read)(std::string_view text, const ToolTypes& types);
  std::vector<std::string_view> marks = {};  // texts inside a call that may be special tokens (ReplyForm::marks)
};

// `source` is the text of a chat template. Returns the form in which this template writes calls. Returns null when the
// template writes no calls, or when Fettle cannot read them.
const CallForm* call_form_of(const std::string& source);

}  // namespace fettle
