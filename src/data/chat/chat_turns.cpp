#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "data/chat/chat_state.h"
#include "data/chat/system_message.h"
#include "data/chat/thinking_tags.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns a few characters on either side of `at`, for a message.
std::string excerpt(std::string_view text, size_t at) {
  size_t first = at > 60 ? at - 60 : 0, last = std::min(text.size(), at + 60);
  while (first > 0 && (static_cast<unsigned char>(text[first]) & 0xc0) == 0x80) --first;
  while (last < text.size() && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) ++last;
  return ordered_json(std::string(text.substr(first, last - first))).dump();
}

// A reply's thought and the rest of its text.
struct Reply {
  std::string_view thought, rest;
  bool in_content;  // the thought is a part of the content
};

// Returns the parts of a message: its thought is in a field, or before </think> in its content.
Reply parts_of(const ordered_json& message) {
  const auto text = [&message](const char* key) -> std::string_view {
    const auto found = message.find(key);
    if (found == message.end() || !found->is_string()) return "";
    return found->get_ref<const std::string&>();
  };
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::string_view content = text("content");
  if (const std::string_view thought = trimmed(text("reasoning_content")); !thought.empty())
    return {thought, content, false};
  const size_t end = content.find(kClose);
  if (end == std::string_view::npos) return {"", content, false};
  std::string_view thought = trimmed(content.substr(0, end));
  if (thought.starts_with(kOpen)) thought = trimmed(thought.substr(kOpen.size()));
  return {thought, content.substr(end + kClose.size()), true};
}

}  // namespace

std::optional<size_t> ChatTemplate::State::first_stop(std::string_view text, size_t at) const {
  std::optional<size_t> end;
  for (const std::string& stop : stops)
    if (const size_t found = text.find(stop, at); found != std::string_view::npos)
      end = std::min(end.value_or(text.size()), found + stop.size());
  return end;
}

size_t ChatTemplate::State::after_stop(std::string_view text, size_t at) const {
  size_t begin = at;
  while (begin < text.size() && is_space_byte(text[begin])) ++begin;
  for (const std::string& stop : stops)
    if (text.substr(begin).starts_with(stop)) return begin + stop.size();
  return at;
}

size_t ChatTemplate::State::trimmed_end(std::string_view text, size_t begin, size_t end, bool& stopped) const {
  stopped = false;
  for (size_t last = end;;) {
    while (last > begin && is_space_byte(text[last - 1])) --last;
    const auto stop = std::find_if(stops.begin(), stops.end(), [&](const std::string& one) {
      return text.substr(begin, last - begin).ends_with(one);
    });
    if (stop == stops.end()) return end;
    // A reply stops at the first of several end-of-turn tokens in a row.
    stopped = true;
    end = last;
    last -= stop->size();
  }
}

namespace {

// Returns the text of the first or the last part with a text; null if there is none.
ordered_json* text_part(ordered_json& parts, bool last) {
  ordered_json* found = nullptr;
  for (ordered_json& part : parts)
    if (part.is_object() && part.contains("text") && (last || found == nullptr)) found = &part["text"];
  return found;
}

}  // namespace

std::optional<size_t> ChatTemplate::State::content_edge(const TemplateInput& input, const std::string& full,
                                                        size_t index, bool end) const {
  TemplateInput marked = input;
  ordered_json* content = &marked.messages[index]["content"];
  if (content->is_array()) content = text_part(*content, end);
  if (content == nullptr || (!content->is_string() && !content->is_null())) return std::nullopt;
  const std::string given_content = content->is_null() ? "" : content->get<std::string>();
  *content = end ? given_content + std::string(kContentMark) : std::string(kContentMark) + given_content;
  std::string text;
  try {
    text = rendered(std::move(marked), false).text;
  } catch (const UserError&) {
    return std::nullopt;
  }
  const size_t at = text.find(kContentMark);
  if (at == std::string::npos || text.find(kContentMark, at + 1) != std::string::npos) return std::nullopt;
  if (!end) return full.starts_with(std::string_view(text).substr(0, at)) ? std::optional(at) : std::nullopt;
  const std::string_view rest = std::string_view(text).substr(at + kContentMark.size());
  return full.ends_with(rest) ? std::optional(full.size() - rest.size()) : std::nullopt;
}

std::vector<TurnSpan> ChatTemplate::State::spans_by_prefix(const std::vector<Message>& messages,
                                                           const TemplateInput& input, const std::string& full,
                                                           Counts& counts) const {
  std::vector<TurnSpan> spans;
  size_t last_turn = 0;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == "assistant") last_turn = i;
  bool asked = false;  // somebody spoke to the assistant
  for (size_t i = 0; i < messages.size(); ++i) {
    asked = asked || (messages[i].role != "assistant" && !is_system(messages[i].role));
    if (messages[i].role != "assistant") continue;
    // A greeting has no prompt, which some templates refuse to render. So its span is only the content and the
    // end-of-turn token.
    if (!asked && !messages[i].train) {
      const auto first = content_edge(input, full, i, false), last = content_edge(input, full, i, true);
      if (first && last && *first <= *last) spans.push_back({*first, after_stop(full, *last), i, false});
      continue;
    }
    const TemplateInput head = input.first(i);
    const std::string prompt = rendered(head, true).text;
    const size_t previous_end = spans.empty() ? 0 : spans.back().end;
    size_t begin = prompt.size(), end = 0;
    bool rewrote = false, thinks = false;
    if (!full.starts_with(prompt)) {
      const size_t common = where_they_differ(prompt, full);
      const std::string bare(without_prompt(rendered(head, false).text));
      if (common >= bare.size() && only_thinking(std::string_view(prompt).substr(common))) {
        begin = common;
        thinks = true;
      } else if (i == last_turn && messages[i].train) {
        throw UserError(
            "{}: the prompt that `chat` and `generate` build is not the start of the text that training uses. The "
            "model would be trained on prompts that it never gets later. Choose a built-in template with "
            "`template:`\n  prompt   {}\n  training {}",
            name, excerpt(prompt, common), excerpt(full, common));
      } else {
        rewrote = true;
        const auto edge = content_edge(input, full, i, false);
        const std::string opening = prompt.starts_with(bare) ? prompt.substr(bare.size()) : "";
        begin = edge.value_or(std::string::npos);
        if (!opening.empty()) {
          const size_t found = edge ? full.rfind(opening, *edge) : full.find(opening, previous_end);
          if (found != std::string::npos && found >= previous_end &&
              (!edge ||
               (found + opening.size() <= *edge &&
                only_thinking(std::string_view(full).substr(found + opening.size(), *edge - found - opening.size())))))
            begin = found + opening.size();
        } else {
          while (edge && begin > previous_end && is_space_byte(full[begin - 1])) --begin;
        }
      }
    }
    const std::string upto(without_prompt(i + 1 == messages.size() ? full : rendered(input.first(i + 1), false).text));
    if (full.starts_with(upto)) {
      end = upto.size();
    } else {
      rewrote = true;
      const auto edge = content_edge(input, full, i, true);
      // Tool calls are between the content and the end-of-turn token.
      const size_t from = edge && *edge > begin ? *edge : begin;
      end = from < full.size() ? first_stop(full, from).value_or(edge ? from : 0) : 0;
    }
    if (begin == std::string::npos || begin < previous_end || end <= begin)
      throw UserError(
          "{}: the assistant's turn (message {}) cannot be found in the rendered conversation; choose a built-in "
          "template with `template:`. An excerpt of this text: {}",
          name, i + 1, excerpt(full, previous_end));
    counts.rewritten += rewrote;
    spans.push_back({begin, end, i, messages[i].train, thinks});
  }
  return spans;
}

std::vector<TurnSpan> ChatTemplate::State::spans_by_marks(const std::vector<Message>& messages,
                                                          const TemplateInput& input,
                                                          const jinja::Template::Rendered& full) const {
  std::vector<size_t> turns;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == "assistant") turns.push_back(i);
  std::vector<TurnSpan> spans;
  const bool one_each = full.generated.size() == turns.size();
  for (size_t n = 0; n < full.generated.size(); ++n) {
    auto [begin, end] = full.generated[n];
    const size_t turn = one_each ? turns[n] : turns.empty() ? 0 : turns.back();
    const bool trained = one_each
                             ? messages[turn].train
                             : std::all_of(turns.begin(), turns.end(), [&](size_t t) { return messages[t].train; });
    if (begin < end) spans.push_back({begin, end, turn, trained});
  }
  if (!one_each && std::any_of(turns.begin(), turns.end(), [&](size_t t) {
        return !messages[t].train || !messages[t].spans.empty() || messages[t].weight != messages[turns[0]].weight;
      }))
    throw UserError(
        "{} marks {} generated parts for {} assistant turns, so single turns or parts cannot be masked or weighted; "
        "remove `train: false` and `weight` from the messages, or choose a built-in template with `template:`",
        name, full.generated.size(), turns.size());
  if (spans.empty() || !spans.back().trained) return spans;
  const std::string prompt = rendered(input.first(spans.back().message), true).text;
  const size_t common = where_they_differ(prompt, full.text);
  if (common < prompt.size() && only_thinking(std::string_view(prompt).substr(common)))
    spans.back().prompt_thinks = true;
  else if (common < prompt.size())
    throw UserError(
        "{}: the prompt that `chat` and `generate` build is not the start of the text that training uses. The model "
        "would be trained on prompts that it never gets later. Choose a built-in template with `template:`\n"
        "  prompt   {}\n  training {}",
        name, excerpt(prompt, common), excerpt(full.text, common));
  return spans;
}

void ChatTemplate::State::add_marked(std::vector<TurnSpan>& spans, const std::vector<Message>& messages,
                                     const TemplateInput& input, const std::string& full) const {
  const size_t turns = spans.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant" || !messages[i].marked) continue;
    const auto begin = content_edge(input, full, i, false), end = content_edge(input, full, i, true);
    if (!begin || !end || *end < *begin)
      throw UserError(
          "{} does not write the content of message {} as it is, so the message cannot be trained; remove its "
          "`\"train\": true` or weight, or choose a built-in template with `template:`",
          name, i + 1);
    spans.push_back({*begin, after_stop(full, *end), i, true});
  }
  if (spans.size() == turns) return;
  std::ranges::sort(spans, {}, &TurnSpan::begin);
  for (size_t n = 1; n < spans.size(); ++n)
    if (spans[n].begin < spans[n - 1].end)
      throw UserError(
          "in the text that {} renders, messages {} and {} overlap, so Fettle cannot train them separately; remove "
          "`\"train\": true` or the weight from the message that is not the assistant's, or choose a built-in template "
          "with `template:`",
          name, spans[n - 1].message + 1, spans[n].message + 1);
}

void ChatTemplate::State::want_calls(const std::vector<TurnSpan>& spans, const std::vector<Message>& messages,
                                     const TemplateInput& input, std::string_view text) const {
  std::string all;
  std::map<size_t, std::string> own;  // by message
  for (const TurnSpan& span : spans) {
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    all += part;
    own[span.message] += part;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant" || !messages[i].train || !input.messages[i].contains("tool_calls")) continue;
    const std::string missing = missing_call(input.messages[i], own[i].empty() ? all : own[i]);
    if (!missing.empty())
      throw UserError(
          "{} does not write the call of '{}' in message {} into the reply, so the call would not be trained; remove "
          "the call's message, put its text into the content, or use another template",
          name, missing, i + 1);
  }
}

bool ChatTemplate::State::loses_thought(const std::vector<Message>& messages, const TemplateInput& input,
                                        std::string_view text) const {
  if (messages.empty() || messages.back().role != "assistant" || !messages.back().train) return false;
  for (const ordered_json* set : {&input.variables, &variables})
    if (const auto found = set->find("enable_thinking"); found != set->end()) {
      if (*found == false) return false;
      break;
    }
  const auto [thought, rest, in_content] = parts_of(input.messages.back());
  if (thought.empty() || text.find(thought) != std::string_view::npos) return false;
  if (is_blank(rest) && !input.messages.back().contains("tool_calls"))
    throw UserError(
        "{} leaves out the thought of the last reply, and the reply has no other text; choose a template that writes "
        "thoughts, such as `template: deepseekr1` for DeepSeek R1's models, or {}",
        name, in_content ? "leave the row out" : "put the thought into the content");
  return true;
}

}  // namespace fettle
