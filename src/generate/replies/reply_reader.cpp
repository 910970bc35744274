#include "generate/replies/reply_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"
#include "data/chat/tool_formats.h"

namespace fettle {
namespace {

// Returns the length of the longest suffix of `text` that is also a prefix of `mark`, but not the whole mark.
size_t begun(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  size_t length = std::min(text.size(), mark.size() - 1);
  while (length > 0 && !text.ends_with(mark.substr(0, length))) --length;
  return length;
}

// Returns the length of the white space at the end of `text`.
size_t spaces_after(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpaces);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

void drop_spaces(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kSpaces), text.size()));
}

// Keeps the text that is not processed yet.
class BufferedReader : public ReplyReader {
 public:
  ReplyPart push(const std::string& text) final {
    held_ += text;
    ReplyPart out;
    while (step(out)) {
    }
    return out;
  }

 protected:
  // Processes a part of held_. Returns false when more text is needed.
  virtual bool step(ReplyPart& out) = 0;

  std::string held_;
};

// Reads replies with marks around reasoning and calls.
class MarkedReader : public BufferedReader {
 public:
  MarkedReader(const ReplyForm& form, const std::string& tools_json, bool thinks)
      : form_(form), types_(tools_json), in_(thinks ? In::kThought : In::kStart) {}

  ReplyPart finish() override {
    ReplyPart out;
    if (in_ == In::kCall) end_call(std::exchange(held_, ""), "", out);
    if (in_ == In::kThought) {
      out.reasoning += held_.substr(0, held_.size() - spaces_after(held_));
    } else if (in_ != In::kSpace || spaces_after(held_) < held_.size()) {
      out.content += held_;
    }
    held_.clear();
    return out;
  }

 private:
  enum class In {
    kStart,    // nothing but white space was written so far
    kThought,  // in reasoning
    kSpace,    // after reasoning or a call: white space is not content
    kContent,
    kCall,
  };

  bool step(ReplyPart& out) override {
    switch (in_) {
      case In::kThought: return step_thought(out);
      case In::kCall: return step_call(out);
      default: return step_content(out);
    }
  }

  bool step_thought(ReplyPart& out) {
    if (!reasoned_) drop_spaces(held_);
    const size_t end = held_.find(form_.think_end);
    const std::string_view before = std::string_view(held_).substr(0, end);
    // White space before the end mark is not a part of the reasoning.
    const size_t kept = end == std::string::npos ? begun(before, form_.think_end) : 0;
    const size_t certain = before.size() - kept - spaces_after(before.substr(0, before.size() - kept));
    out.reasoning += before.substr(0, certain);
    reasoned_ = reasoned_ || certain > 0;
    held_.erase(0, end == std::string::npos ? certain : end + form_.think_end.size());
    if (end == std::string::npos) return false;
    in_ = In::kSpace;
    return true;
  }

  bool step_call(ReplyPart& out) {
    if (form_.calls->end.empty()) return false;
    const size_t end = held_.find(form_.calls->end);
    if (end == std::string::npos) return false;
    const std::string inside = held_.substr(0, end);
    held_.erase(0, end + form_.calls->end.size());
    end_call(inside, form_.calls->end, out);
    return true;
  }

  void end_call(const std::string& inside, std::string_view end, ReplyPart& out) {
    if (const auto calls = form_.calls->read(inside, types_)) {
      out.calls.insert(out.calls.end(), calls->begin(), calls->end());
      spaces_.clear();
      in_ = In::kSpace;
    } else {
      out.content += std::exchange(spaces_, "") + opened_ + inside + std::string(end);
      in_ = In::kContent;
    }
  }

  bool step_content(ReplyPart& out) {
    if (in_ == In::kSpace) drop_spaces(held_);
    const bool at_start = in_ == In::kStart || in_ == In::kSpace;
    const size_t first = held_.find_first_not_of(kSpaces);
    if (in_ == In::kStart && first == std::string::npos) return false;
    if (in_ == In::kStart && !form_.think_begin.empty()) {
      const std::string_view rest = std::string_view(held_).substr(first);
      if (rest.starts_with(form_.think_begin)) {
        held_.erase(0, first + form_.think_begin.size());
        in_ = In::kThought;
        return true;
      }
      if (begun(rest, form_.think_begin) == rest.size()) return false;
    }
    const bool calls = form_.calls != nullptr;
    if (calls && at_start && first != std::string::npos && !form_.calls->first.empty() &&
        std::string_view(held_).substr(first).starts_with(form_.calls->first)) {
      opened_.clear();
      in_ = In::kCall;
      return true;
    }
    if (calls && at_start && first != std::string::npos && form_.calls->by_name) {
      const auto named = types_.begins_with_name(std::string_view(held_).substr(first));
      if (!named) return false;
      if (*named) {
        opened_.clear();
        in_ = In::kCall;
        return true;
      }
    }
    const size_t begin = calls ? held_.find(form_.calls->begin) : std::string::npos;
    const std::string_view before = std::string_view(held_).substr(0, begin);
    size_t kept = 0;
    if (calls && begin == std::string::npos) kept = begun(before, form_.calls->begin);
    const size_t spaces = calls ? spaces_after(before.substr(0, before.size() - kept)) : 0;
    const size_t certain = before.size() - kept - spaces;
    out.content += before.substr(0, certain);
    if (certain > 0) in_ = In::kContent;
    if (begin == std::string::npos) {
      held_.erase(0, certain);
      return false;
    }
    spaces_ = before.substr(certain);
    opened_ = form_.calls->begin;
    held_.erase(0, begin + form_.calls->begin.size());
    in_ = In::kCall;
    return true;
  }

  ReplyForm form_;
  ToolTypes types_;
  In in_;
  bool reasoned_ = false;  // some reasoning was returned
  // `opened_` is the text that opened the current call (CallForm::begin), or "" if the call began without it. `spaces_`
  // is the white space before `opened_`.
  std::string opened_, spaces_;
};

// Reads the channels of GPT-OSS:
// <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>... A message
// whose header contains to=functions.NAME is a call. Source: OpenAI's description of the harmony format.
class HarmonyReader : public BufferedReader {
 public:
  explicit HarmonyReader(bool calls) : calls_(calls) {}

  ReplyPart finish() override {
    ReplyPart out;
    if (in_message_)
      give(std::exchange(held_, ""), out, true);
    else if (!headed_)
      out.content = std::exchange(held_, "");
    return out;
  }

 private:
  static constexpr std::string_view kMessage = "<|message|>", kEnd = "<|end|>", kChannel = "<|channel|>",
                                    kTo = "to=functions.";

  bool step(ReplyPart& out) override {
    if (!in_message_) {
      const size_t at = held_.find(kMessage);
      if (at == std::string::npos) {
        // A reply that begins neither with a channel nor with a call is content.
        std::string_view start = held_;
        start.remove_prefix(std::min(start.find_first_not_of(' '), start.size()));
        const auto may_begin = [&](std::string_view mark) {
          return start.starts_with(mark) || mark.starts_with(start);
        };
        const bool could = may_begin(kChannel) || may_begin(kTo);
        if (headed_ || could) return false;
        header_ = "final";
        in_message_ = headed_ = true;
        return true;
      }
      header_ = held_.substr(0, at);
      held_.erase(0, at + kMessage.size());
      in_message_ = headed_ = true;
      if (!calls_ && header_.find(kTo) != std::string::npos) out.content += std::string(kTo) + called() + " ";
    }
    const size_t end = held_.find(kEnd);
    if (end != std::string::npos) {
      give(held_.substr(0, end), out, true);
      held_.erase(0, end + kEnd.size());
      in_message_ = false;
      return true;
    }
    if (is_call()) return false;
    const size_t certain = held_.size() - begun(held_, kEnd);
    give(held_.substr(0, certain), out, false);
    held_.erase(0, certain);
    return false;
  }

  bool is_call() const { return calls_ && header_.find(kTo) != std::string::npos; }

  // Returns the name of the function in the header of a call.
  std::string called() const {
    const std::string name = header_.substr(header_.find(kTo) + kTo.size());
    return name.substr(0, name.find_first_of(" \t\r\n<"));
  }

  void give(const std::string& text, ReplyPart& out, bool whole) {
    if (is_call() && whole) {
      const std::string name = called();
      const auto arguments = parse_json_or_discard<nlohmann::ordered_json>(text);
      if (arguments.is_object() && !name.empty()) {
        out.calls.push_back({name, arguments.dump()});
        return;
      }
    }
    (header_.find("analysis") != std::string::npos ? out.reasoning : out.content) += text;
  }

  bool calls_, in_message_ = false, headed_ = false;
  std::string header_;
};

}  // namespace

void ReplyPart::add(ReplyPart part) {
  content += part.content;
  reasoning += part.reasoning;
  calls.insert(calls.end(), part.calls.begin(), part.calls.end());
}

std::vector<std::string_view> ReplyForm::marks() const {
  if (harmony) return {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>"};
  std::vector<std::string_view> out;
  for (const std::string_view mark : {think_begin, think_end, think_token})
    if (!mark.empty()) out.push_back(mark);
  if (calls == nullptr) return out;
  for (const std::string_view mark : {calls->begin, calls->end})
    if (!mark.empty()) out.push_back(mark);
  out.insert(out.end(), calls->marks.begin(), calls->marks.end());
  return out;
}

ReplyForm reply_form_of(const std::string& source, bool tools) {
  struct Thought {
    std::string_view begin, end, token = "";
  };
  static constexpr Thought kThoughts[] = {{"<think>", "</think>"},
                                          {"[THINK]", "[/THINK]"},
                                          {"<seed:think>", "</seed:think>"},
                                          {"<|channel>thought", "<channel|>", "<|channel>"}};
  ReplyForm form;
  if (source.find("<|channel|>") != std::string::npos && source.find("analysis") != std::string::npos) {
    form.harmony = true;
    static constexpr CallForm kInChannels{.format = "gpt_oss", .begin = "", .end = "", .read = nullptr};
    if (tools) form.calls = &kInChannels;
    return form;
  }
  for (const auto& [begin, end, token] : kThoughts)
    if (form.think_end.empty() && source.find(end) != std::string::npos) {
      form.think_begin = begin;
      form.think_end = end;
      form.think_token = token;
    }
  if (tools) form.calls = call_form_of(source);
  return form;
}

std::vector<int32_t> mark_ids(const ReplyForm& form, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view mark : form.marks())
    if (const auto id = tokenizer.token_id(mark)) ids.push_back(*id);
  return ids;
}

std::string text_at_end(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  constexpr size_t kTokens = 16;
  return tokenizer.decode(std::span(prompt).last(std::min(prompt.size(), kTokens)), false);
}

std::unique_ptr<ReplyReader> make_reply_reader(const ReplyForm& form, const std::string& tools_json,
                                               std::string_view prompt_end) {
  if (form.harmony) return std::make_unique<HarmonyReader>(form.calls != nullptr);
  const std::string_view end = prompt_end.substr(0, prompt_end.size() - spaces_after(prompt_end));
  const bool thinks = !form.think_begin.empty() && end.ends_with(form.think_begin);
  return std::make_unique<MarkedReader>(form, tools_json, thinks);
}

}  // namespace fettle
