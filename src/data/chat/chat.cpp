#include "data/chat/chat.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/chat/chat_state.h"
#include "data/chat/masked_tokens.h"
#include "data/chat/system_message.h"
#include "data/chat/templates.h"
#include "data/chat/templates/thought_fields.h"
#include "data/chat/templates/turn_form.h"
#include "data/chat/thinking_tags.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns whether the template compares the type of a content part with 'thinking', as those of Mistral's models do.
bool reads_thinking_parts(std::string_view source) {
  for (const std::string_view name : {"'thinking'", "\"thinking\""})
    for (size_t at = 0; (at = source.find(name, at)) != std::string_view::npos; at += name.size()) {
      std::string_view left = trimmed(source.substr(0, at));
      if (!left.ends_with("==")) continue;
      left = trimmed(left.substr(0, left.size() - 2));
      if (left.ends_with("['type']") || left.ends_with("[\"type\"]") || left.ends_with(".type")) return true;
    }
  return false;
}

// Returns the message as a template reads it. With `with_parts`, its content is Message::parts_json.
ordered_json message_json(const Message& message, const ToolCallForm& form, bool with_parts) {
  ordered_json out = {{"role", message.role}, {"content", message.content}};
  if (message.extra_json.empty()) return out;
  ordered_json extra = ordered_json::parse(message.extra_json);
  if (with_parts) {
    out["content"] = ordered_json::parse(message.parts_json);
    extra.erase("reasoning_content");
  }
  for (const auto& [key, value] : extra.items()) out[key] = value;
  alias_thought(out);
  if (out.contains("tool_calls")) {
    if (message.no_content) out["content"] = nullptr;
    form.give_to(out);
  }
  return out;
}

// Returns the tools as a template gets them; null if there are none. Throws UserError if the text is not an array.
ordered_json tools_of(const std::string& tools_json) {
  if (tools_json.empty()) return nullptr;
  ordered_json tools = ordered_json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) throw UserError("tools must be a JSON array, found {}", tools_json.substr(0, 80));
  return tools.empty() ? nullptr : std::move(tools);
}

}  // namespace

bool is_template_text(const std::string& name) {
  return name.find("{%") != std::string::npos || name.find("{{") != std::string::npos;
}

void ChatTemplate::State::add_stop(const std::string& token) {
  const auto id = tokenizer.token_id(token);
  if (!id || std::find(stop_ids.begin(), stop_ids.end(), *id) != stop_ids.end()) return;
  stop_ids.push_back(*id);
  stops.push_back(token);
}

void ChatTemplate::State::refuse_unrendered(std::string_view what) const {
  throw UserError("{} does not render {}; {}", name, what,
                  built_in ? "if the model's own template renders them, leave `template` empty to use it"
                           : "put a chat_template.jinja that renders them into the model's folder");
}

jinja::Template::Rendered ChatTemplate::State::rendered(TemplateInput input, bool for_reply) const {
  const jinja::Template& with = source_for(input.tools).with;
  if (!input.tools.is_null() && !with.reads("tools")) refuse_unrendered("tools");
  ordered_json context = variables;
  for (const auto& [key, value] : input.variables.items()) context[key] = value;
  context["messages"] = std::move(input.messages);
  context["tools"] = std::move(input.tools);
  context["documents"] = nullptr;
  context["add_generation_prompt"] = for_reply;
  return with.render(context, now ? *now : LocalTime::now());
}

TemplateInput ChatTemplate::State::input(const Conversation& conversation) const {
  TemplateInput out{.messages = ordered_json::array(), .tools = tools_of(conversation.tools_json)};
  if (!conversation.variables_json.empty()) out.variables = ordered_json::parse(conversation.variables_json);
  const TemplateSource& source = source_for(out.tools);
  const auto knows_developer = [&] {
    return source.text.find("'developer'") != std::string::npos ||
           source.text.find("\"developer\"") != std::string::npos;
  };
  for (const Message& message : conversation.messages) {
    const bool with_parts = !message.parts_json.empty() && reads_thinking_parts(source.text);
    ordered_json& written = out.messages.emplace_back(message_json(message, source.calls, with_parts));
    if (message.role != "assistant" && !message.parts_json.empty() && !with_parts)
      refuse_unrendered(fmt::format("thoughts in messages of role '{}'", message.role));
    if (message.role == "developer" && !knows_developer()) written["role"] = "system";
    if (written.contains("tool_calls") && source.text.find("tool_calls") == std::string::npos)
      refuse_unrendered("tool calls");
    if (built_in && message.role == "tool")
      throw UserError(
          "{} does not render messages of role 'tool'; leave `template` empty to use the model's own template", name);
  }
  return out;
}

// Returns the token ids of the parts of `text` between `cuts`. Usually these are the ids of the whole text, divided at
// the cuts. If a token of the whole text crosses a cut, each part is tokenised alone instead, as in generation: there,
// the prompt ends at such a cut and is tokenised without the text after it.
std::vector<std::vector<int32_t>> ChatTemplate::State::encode_parts(const std::string& text,
                                                                    const std::vector<size_t>& cuts) const {
  const std::string_view all = text;
  std::vector<std::vector<int32_t>> parts;
  std::vector<int32_t> joined;
  size_t at = 0;
  for (size_t n = 0; n <= cuts.size(); ++n) {
    const size_t end = n < cuts.size() ? cuts[n] : text.size();
    parts.push_back(tokenizer.encode(all.substr(at, end - at), false));
    joined.insert(joined.end(), parts.back().begin(), parts.back().end());
    at = end;
  }
  if (cuts.empty()) return parts;
  const std::vector<int32_t> whole = tokenizer.encode(text, false);
  if (joined == whole) return parts;
  // Some tokenizers treat the beginning of a text specially, so a part from the middle gets other ids when it is
  // tokenised alone. But the text from its beginning to a cut has the first ids of `whole`, if no token crosses the
  // cut. The number of these ids is the position of the cut in `whole`.
  std::vector<size_t> places = {0};
  for (size_t cut : cuts) {
    const std::vector<int32_t> head = tokenizer.encode(all.substr(0, cut), false);
    if (head.size() > whole.size() || !std::equal(head.begin(), head.end(), whole.begin())) return parts;
    places.push_back(std::max(head.size(), places.back()));
  }
  places.push_back(whole.size());
  for (size_t n = 0; n + 1 < places.size(); ++n)
    parts[n] = {whole.begin() + static_cast<std::ptrdiff_t>(places[n]),
                whole.begin() + static_cast<std::ptrdiff_t>(places[n + 1])};
  return parts;
}

// Adds the text between two assistant turns: the messages `first` to `next` - 1. If each of these messages ends with an
// end-of-turn token, each becomes a piece. Otherwise the whole text becomes one piece, with the role of the last
// message.
void ChatTemplate::State::add_between(std::vector<Piece>& pieces, std::vector<int32_t> ids,
                                      const std::vector<Message>& messages, size_t first, size_t next) const {
  const auto is_stop = [this](int32_t id) { return std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end(); };
  auto begin = ids.begin();
  if (first < next && std::count_if(begin, ids.end(), is_stop) == static_cast<std::ptrdiff_t>(next - first)) {
    for (size_t message = first; message + 1 < next; ++message) {
      const auto end = std::find_if(begin, ids.end(), is_stop) + 1;
      pieces.push_back({{begin, end}, messages[message].role, false});
      begin = end;
    }
  }
  const std::string last = next > 0 && next <= messages.size() ? messages[next - 1].role : "template";
  pieces.push_back({{begin, ids.end()}, last == "assistant" ? "template" : last, false});
}

namespace {

// Returns `text` with the tokenizer's tokens in place of {bos} and {eos}.
std::string with_tokens(std::string_view text, const Tokenizer& tokenizer) {
  std::string out(text);
  for (const auto& [mark, token] : {std::pair{"{bos}", tokenizer.bos_token()}, {"{eos}", tokenizer.eos_token()}})
    for (size_t at = 0; (at = out.find(mark, at)) != std::string::npos; at += token.size()) out.replace(at, 5, token);
  return out;
}

void set_form(ordered_json& variables, const TurnForm& form, const Tokenizer& tokenizer) {
  auto set = [&](const std::string& name, const Around& around) {
    variables[name + "_before"] = with_tokens(around.before, tokenizer);
    variables[name + "_after"] = with_tokens(around.after, tokenizer);
  };
  set("system", form.system);
  set("user", form.user);
  set("reply", form.reply);
  set("thought", form.thought);
  variables["prefix"] = with_tokens(form.prefix, tokenizer);
  variables["empty_thought"] = form.empty_thought.empty()
                                   ? std::string(form.thought.before) + std::string(form.thought.after)
                                   : std::string(form.empty_thought);
  variables["eos_at_end"] = form.eos_at_end;
  variables["system_in_user"] = form.system_in_user;
}

}  // namespace

// Sets the end-of-turn tokens of a built-in template, and the variables that the template reads.
void ChatTemplate::State::set_built_in(const BuiltInTemplate& known, const Thinking& thinking) {
  built_in = true;
  const std::vector<int32_t> probe = tokenizer.encode("a", true);
  const bool adds_bos = tokenizer.bos_id() && !probe.empty() && probe[0] == *tokenizer.bos_id();
  variables["tokenizer_bos"] = adds_bos ? tokenizer.bos_token() : "";
  variables["default_system"] = known.default_system;
  variables["enable_thinking"] = thinking.enabled.value_or(true);
  variables["drop_old_thoughts"] = thinking.drop_old && !thinking.keep_old;
  if (known.form) set_form(variables, *known.form, tokenizer);
  for (std::string_view stop : known.stops) add_stop(stop == "eos" ? tokenizer.eos_token() : std::string(stop));
  // Models with the template oasst have different end-of-turn tokens, so the model's own eos_token is the fallback.
  if (stops.empty() && known.name == "oasst") add_stop(tokenizer.eos_token());
  if (stops.empty())
    throw UserError(
        "{} ends a turn with '{}', a token that this model's tokenizer does not have; choose another template, or "
        "leave `template` empty for the model's own template",
        name, known.stops[0] == "eos" ? "eos_token" : known.stops[0]);
  variables["end_of_turn"] = stops[0];
  reply_end = stop_ids.front();
  add_stop(tokenizer.eos_token());
}

// Sets `uninvited`: the text after the token that ends a reply, if the prompt for a reply ends with this text.
void ChatTemplate::State::find_uninvited_prompt() {
  const ordered_json question = {{"role", "user"}, {"content", "a"}};
  const ordered_json reply = {{"role", "assistant"}, {"content", kContentMark}};
  try {
    const std::string text = rendered({.messages = {question, reply}}, false).text;
    const size_t at = text.find(kContentMark);
    if (at == std::string::npos) return;
    std::string_view after = std::string_view(text).substr(at + kContentMark.size());
    const std::vector<int32_t> ids = tokenizer.encode(after, false);
    const auto end = std::ranges::find_if(ids, [this](int32_t id) { return tokenizer.is_special(id); });
    if (end == ids.end()) return;
    const std::string token = tokenizer.token(*end);
    const size_t begin = after.find(token);
    if (begin == std::string_view::npos) return;
    after.remove_prefix(begin + token.size());
    if (!is_blank(after) && rendered({.messages = ordered_json::array({question})}, true).text.ends_with(after))
      uninvited = after;
  } catch (const UserError&) {
    // The template refuses these messages.
  }
}

// Finds the end-of-turn tokens of the model's own template, whose text is `source`.
void ChatTemplate::State::find_stops(const std::string& source) {
  add_stop(tokenizer.eos_token());
  std::vector<int32_t> after;  // the tokens after a reply
  // The special token that follows a reply ends the turn. If several special tokens follow, the last of them ends the
  // turn.
  try {
    const ordered_json probe = {{{"role", "user"}, {"content", "a"}},
                                {{"role", "assistant"}, {"content", kContentMark}}};
    const std::string text = rendered({.messages = probe}, false).text;
    const size_t at = text.find(kContentMark);
    if (at != std::string::npos) {
      std::optional<int32_t> last;
      after = tokenizer.encode(without_prompt(text).substr(at + kContentMark.size()), false);
      for (int32_t id : after) {
        if (tokenizer.is_special(id))
          last = id;
        else if (last)
          break;
      }
      if (last) add_stop(tokenizer.token(*last));
    }
  } catch (const UserError&) {
    // The template refuses these messages, so the end-of-turn token cannot be found this way.
  }
  for (const char* usual : {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|return|>",
                            "<|call|>", "<|tool_response>"})
    if (source.find(usual) != std::string::npos) add_stop(usual);
  // GLM's replies end with the token that begins the next turn.
  if (source.find("[gMASK]") != std::string::npos)
    for (const char* next : {"<|user|>", "<|observation|>"}) add_stop(next);
  // A trained reply ends with the first of these tokens (trimmed_end).
  const auto end = std::ranges::find_first_of(after, stop_ids);
  if (end != after.end()) reply_end = *end;
}

void ChatTemplate::State::find_call_forms() {
  const ordered_json tool = {{"name", "qz7_tool"},
                             {"description", "a"},
                             {"parameters", {{"type", "object"}, {"properties", ordered_json::object()}}}};
  for (auto [source, list] :
       {std::pair{&plain, ordered_json()}, {&tools, ordered_json{{{"type", "function"}, {"function", tool}}}}})
    if (source->text.find("tool_calls") != std::string::npos)
      source->calls = ToolCallForm::of([&given = list, this](const ordered_json& messages) {
        return rendered({.messages = messages, .tools = given}, false).text;
      });
}

bool ChatTemplate::State::agrees_with(const State& other, bool system, const std::string& default_system) const {
  std::vector<Message> talk = {{.role = "user", .content = "u"}};
  if (system) give_system(talk, "s", false);
  std::vector<Message> others = talk;
  give_system(others, default_system, false);
  auto text = [system](const State& state, std::vector<Message> messages, bool for_reply) {
    if (!for_reply) messages.push_back({.role = "assistant", .content = "a"});
    std::string out = state.rendered(state.input({std::move(messages)}), for_reply).text;
    if (for_reply && !system) return out;
    while (!out.empty() && is_space_byte(out.back())) out.pop_back();
    return out;
  };
  try {
    return std::ranges::all_of(std::array{true, false}, [&](bool for_reply) {
      return text(*this, talk, for_reply) == text(other, others, for_reply);
    });
  } catch (const UserError&) {
    return false;
  }
}

std::shared_ptr<ChatTemplate::State> ChatTemplate::make_state(const BuiltInTemplate* known, const std::string& text,
                                                              const Tokenizer& tokenizer,
                                                              const std::optional<LocalTime>& now,
                                                              const Thinking& thinking) {
  const bool own = !known && text.empty();
  const std::string source = known ? std::string(known->jinja) : own ? *tokenizer.chat_template() : text;
  const std::string with_tools = own ? tokenizer.chat_template("tool_use").value_or(source) : source;
  const std::string name = known ? "the template " + std::string(known->name)
                           : own ? "the model's chat template"
                                 : "the recipe's template";
  auto state = std::make_shared<State>(tokenizer, name, source, with_tools);
  state->of_recipe = !known && !own;
  state->now = now;
  if (known)
    for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) state->variables[key] = "";
  for (const auto& [key, token] : tokenizer.named_tokens()) state->variables[key] = token;
  if (known) {
    state->set_built_in(*known, thinking);
    state->find_call_forms();
    return state;
  }
  if (thinking.enabled) state->variables["enable_thinking"] = *thinking.enabled;
  if (thinking.keep_old) state->variables["preserve_thinking"] = true;
  state->find_uninvited_prompt();
  state->find_stops(source);
  state->find_call_forms();
  return state;
}

ChatTemplate::ChatTemplate(const std::string& name, const Tokenizer& tokenizer, const std::optional<LocalTime>& now,
                           const Thinking& thinking) {
  const bool text = is_template_text(name);
  const BuiltInTemplate* known = name.empty() || text ? nullptr : find_template(name);
  if (!name.empty() && !text && !known)
    throw UserError(
        "template: '{}' is not known; choose one of {}, or leave the key empty for the model's own template", name,
        template_names());
  const bool has_own = tokenizer.chat_template().has_value();
  if (name.empty() && !has_own)
    throw UserError("the model has no chat template of its own; choose one with `template:`: {}", template_names());
  state_ = make_state(known, text ? name : "", tokenizer, now, thinking);
  if (!known || !has_own) return;
  try {
    auto own = make_state(nullptr, "", tokenizer, now, thinking);
    if (own->agrees_with(*state_)) with_calls_ = std::move(own);
  } catch (const UserError&) {
    // The model's own template cannot be read, so the built-in template is used instead.
  }
}

const ChatTemplate::State& ChatTemplate::state_for(const Conversation& conversation) const {
  const auto calls = [](const Message& message) {
    return message.role == "tool" || message.extra_json.find("\"tool_calls\"") != std::string::npos;
  };
  const bool needed = !conversation.tools_json.empty() || std::ranges::any_of(conversation.messages, calls);
  return needed && with_calls_ ? *with_calls_ : *state_;
}

std::string ChatTemplate::prompt_text(const Conversation& conversation) const {
  const State& state = state_for(conversation);
  return state.rendered(state.input(conversation), true).text;
}

std::string ChatTemplate::text(const Conversation& conversation) const {
  const State& state = state_for(conversation);
  return state.rendered(state.input(conversation), false).text;
}

std::vector<int32_t> ChatTemplate::prompt(const Conversation& conversation) const {
  return state_->tokenizer.encode(prompt_text(conversation), false);
}

std::vector<ChatTemplate::Piece> ChatTemplate::render(const Conversation& conversation) const {
  Counts counts;
  std::vector<Piece> pieces = render(conversation, counts);
  add(counts);
  return pieces;
}

std::vector<ChatTemplate::Piece> ChatTemplate::render(const Conversation& conversation, Counts& counts) const {
  const std::vector<Message>& messages = conversation.messages;
  const State& state = state_for(conversation);
  const TemplateInput input = state.input(conversation);
  const jinja::Template::Rendered full = state.rendered(input, false);
  const bool marked = !full.generated.empty() && !full.generated_elsewhere;
  std::vector<TurnSpan> spans =
      marked ? state.spans_by_marks(messages, input, full) : state.spans_by_prefix(messages, input, full.text, counts);
  state.add_marked(spans, messages, input, full.text);
  state.want_calls(spans, messages, input, full.text);
  const bool lost = state.loses_thought(messages, input, full.text);
  if (lost) ++counts.lost_thoughts;
  std::vector<size_t> cuts;
  for (TurnSpan& span : spans) {
    bool stopped = false;
    span.end = state.trimmed_end(full.text, span.begin, span.end, stopped);
    if (!stopped) {
      // {% generation %} may end before the end-of-turn token.
      const size_t after = state.after_stop(full.text, span.end);
      stopped = after != span.end;
      span.end = after;
    }
    if (!stopped && span.trained && messages[span.message].role == "assistant") ++counts.without_end;
    if (span.prompt_thinks && !(lost && &span == &spans.back())) ++counts.prompt_thinks;
    cuts.push_back(span.begin);
    cuts.push_back(span.end);
  }
  std::vector<std::vector<int32_t>> parts = state.encode_parts(full.text, cuts);
  std::vector<Piece> pieces;
  for (size_t n = 0; n < parts.size(); ++n) {
    if (parts[n].empty()) continue;
    if (n % 2 == 1) {
      const TurnSpan& span = spans[n / 2];
      const Message& message = messages[span.message];
      Piece piece{std::move(parts[n]), message.role, span.trained, {}, message.weight};
      if (span.trained && !message.spans.empty()) {
        const auto content = state.content_edge(input, full.text, span.message, false);
        const size_t length = message.content.size();
        if (!content || *content < span.begin || full.text.compare(*content, length, message.content) != 0)
          throw UserError("{} changes the content of message {}, so its spans to train cannot be found", state.name,
                          span.message + 1);
        const std::string_view text = std::string_view(full.text).substr(span.begin, span.end - span.begin);
        piece.masked = masked_tokens(state.tokenizer, piece.ids, text, *content - span.begin, message);
      }
      pieces.push_back(std::move(piece));
      continue;
    }
    const size_t first = n == 0 ? 0 : spans[n / 2 - 1].message + 1;
    const size_t next = n / 2 < spans.size() ? spans[n / 2].message : messages.size();
    state.add_between(pieces, std::move(parts[n]), messages, first, next);
  }
  return pieces;
}

const std::string& ChatTemplate::source(bool with_tools) const {
  return !with_tools ? state_->plain.text : (with_calls_ ? with_calls_ : state_)->tools.text;
}

std::optional<int32_t> ChatTemplate::reply_end() const {
  return state_->reply_end;
}

const std::vector<int32_t>& ChatTemplate::stop_ids() const {
  return state_->stop_ids;
}

ChatTemplate::Counts ChatTemplate::counts() const {
  const std::lock_guard lock(state_->counting);
  return state_->counts;
}

void ChatTemplate::add(const Counts& counts) const {
  const std::lock_guard lock(state_->counting);
  state_->counts += counts;
}

}  // namespace fettle
