// Defines ReplyReader, which divides the text of a reply into content, reasoning and calls of tools while the reply is
// being written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generate/replies/tool_calls.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// A part of a reply. Any of the fields may be empty.
struct ReplyPart {
  std::string content, reasoning;
  std::vector<ToolCall> calls;

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
  void add(ReplyPart part);
};

class ReplyReader {
 public:
  virtual ~ReplyReader() = default;
  // Adds text of the reply, and returns the parts that are now certain. Keeps text that may be the start of a call or
  // of a mark around reasoning, until later text shows what it is.
  virtual ReplyPart push(const std::string& text) = 0;
  // Call this when no more text follows. Returns what was kept. Text that begins like a call, but is not a
  // complete call, becomes content.
  virtual ReplyPart finish() = 0;
};

// Says how the replies of a chat template are divided. This depends on the template's text, not on the model's name.
struct ReplyForm {
  const CallForm* calls = nullptr;          // null: calls are not read
  std::string_view think_begin, think_end;  // texts around reasoning; "": none
  std::string_view think_token;  // if think_begin is a special token followed by other text: this token; else ""
  bool harmony = false;          // the channels of GPT-OSS

  bool plain() const { return calls == nullptr && think_end.empty() && !harmony; }
  // Returns the texts of this form that may be special tokens. These tokens must stay in the reply's text.
  std::vector<std::string_view> marks() const;
};

// Returns the form for a template, whose text is `source`. Without `tools`, calls are not read.
ReplyForm reply_form_of(const std::string& source, bool tools);

// Returns the ids of the form's marks. A reply that is read must have these tokens in its text
// (ReplyOptions::shown_ids).
std::vector<int32_t> mark_ids(const ReplyForm& form, const Tokenizer& tokenizer);

// Returns the text of a prompt's last tokens, for make_reply_reader().
std::string text_at_end(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt);

// Returns a reader of one reply. `tools_json` are the request's tools. `prompt_end` is the end of the prompt's text: if
// it opens a block of reasoning, the reply begins with reasoning.
std::unique_ptr<ReplyReader> make_reply_reader(const ReplyForm& form, const std::string& tools_json,
                                               std::string_view prompt_end);

}  // namespace fettle
