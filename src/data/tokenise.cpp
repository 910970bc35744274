#include "data/tokenise.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "config/nearest.h"
#include "data/chat/system_message.h"
#include "data/classes/class_rows.h"
#include "data/introduce.h"
#include "data/message_lists.h"
#include "data/messages.h"
#include "data/read/media.h"

namespace fettle {
namespace {

// Returns whether a message has neither text nor tool calls nor a thought.
bool is_empty(const Message& message) {
  return is_blank(message.content) && !has_calls_or_thought(message);
}

bool has_empty_reply(const std::vector<Message>& messages, bool last_only) {
  return std::any_of(messages.begin(), messages.end(), [&](const Message& message) {
    const bool trained = message.train && (!last_only || &message == &messages.back());
    return message.role == "assistant" && trained && is_empty(message);
  });
}

// Requires that the JSON that a template writes has no integer that was read as a float.
void refuse_large_integers(const Row& row, const Conversation& conversation,
                           const std::vector<Message>& rejected = {}) {
  if (row.large_integers.empty()) return;
  std::vector<std::string> written = {conversation.tools_json, conversation.variables_json};
  for (const auto* list : {&conversation.messages, &rejected})
    for (const Message& message : *list) written.push_back(message.extra_json);
  for (const std::string& integer : row.large_integers) {
    const std::string read = nlohmann::json::parse(integer).dump();
    if (std::ranges::any_of(written, [&](const std::string& json) { return json.find(read) != std::string::npos; }))
      throw BadRow(fmt::format("the integer {} has more than 64 bits; write it in quotes, as a string", integer));
  }
}

using Pieces = std::vector<ChatTemplate::Piece>;

int64_t length_of(const Pieces& pieces) {
  int64_t length = 0;
  for (const ChatTemplate::Piece& piece : pieces) length += std::ssize(piece.ids);
  return length;
}

// Returns the conversations that remain when its earliest turns are left out: one turn, two turns, and so on. The
// system message and the last reply are in all of them.
std::vector<Conversation> later_parts(const Conversation& conversation) {
  const auto& [messages, tools, variables] = conversation;
  std::vector<Conversation> parts;
  const auto first = std::ranges::find_if(messages, [](const Message& message) { return !is_system(message.role); });
  for (auto at = first; at != messages.end(); ++at)
    if (at != first && at->role == "user" && (at - 1)->role == "assistant") {
      std::vector<Message> part(messages.begin(), first);
      part.insert(part.end(), at, messages.end());
      parts.push_back({std::move(part), tools, variables});
    }
  return parts;
}

// Returns the first {{name}} in the text, or "".
std::string placeholder_in(const std::string& text) {
  constexpr size_t kLongest = 40;
  for (size_t at = 0; (at = text.find("{{", at)) != std::string::npos; at += 2) {
    const size_t end = text.find("}}", at);
    if (end == std::string::npos) return "";
    const std::string name = text.substr(at + 2, end - at - 2);
    const bool word = !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
      return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    if (word) return text.substr(at, end + 2 - at);
  }
  return "";
}

bool has_null_field(const nlohmann::json& value) {
  return value.is_structured() && std::ranges::any_of(value, [&](const nlohmann::json& item) {
           return (value.is_object() && item.is_null()) || has_null_field(item);
         });
}

// Returns "'x' of a call of 'f'" for the first argument that is or has a null, or "". Arguments in the form of text do
// not count.
std::string null_argument_in(const Message& message) {
  if (message.extra_json.find(":null") == std::string::npos) return "";
  const auto extra = nlohmann::json::parse(message.extra_json);
  if (!extra.contains("tool_calls")) return "";
  for (const auto& call : extra["tool_calls"]) {
    const nlohmann::json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments") || !function["arguments"].is_object()) continue;
    for (const auto& [name, value] : function["arguments"].items())
      if (value.is_null() || has_null_field(value))
        return fmt::format("'{}' of a call of '{}'", name, text_in(function, "name"));
  }
  return "";
}

// Returns Outcome::lacks. A part whose column has the same name does not count: Fettle writes such names for recipes of
// other tools, whether or not the rows have the columns.
std::map<std::string, std::string> lacked_columns(const nlohmann::ordered_json& row, const DataSource& source) {
  std::map<std::string, std::string> lacks;
  for (const char* part : {"query", "system", "history", "tools", "kto_tag"}) {
    const std::string column = source.column(part);
    if (column.empty() || column == part || !row.is_object() || row.contains(column)) continue;
    std::vector<std::string_view> names;
    for (const auto& item : row.items()) names.emplace_back(item.key());
    lacks.emplace(part, nearest(column, names).value_or(""));
  }
  return lacks;
}

}  // namespace

std::vector<int32_t> plain_prompt_ids(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  if (const auto eos = tokenizer.eos_id(); eos && !ids.empty() && ids.back() == *eos) ids.pop_back();
  return ids;
}

RowTokeniser::RowTokeniser(const DataSpec& spec, const Tokenizer& tokenizer, int64_t model_vocab_size, bool yes_or_no)
    : spec_(spec), tokenizer_(tokenizer), vocab_size_(model_vocab_size) {
  if (spec.labels) labels_.emplace(*spec.labels, yes_or_no);
}

ChatTemplate::Counts RowTokeniser::counts() const {
  ChatTemplate::Counts all;
  for (const ChatTemplate* each : {template_.get(), none_.get()})
    if (each) all += each->counts();
  return all;
}

Outcome RowTokeniser::operator()(Row& row, const DataSource& source, const std::string& where) const {
  Outcome outcome;
  try {
    row.parse();
    if (!row.bad.empty()) throw BadRow(row.bad);
    outcome.lacks = lacked_columns(row.value, source);
    refuse_media(row.value, source);
    introduce(spec_, row.value);
    parse_message_lists(row.value, source, spec_.labels.has_value());
    if (labels_) {
      classified(row, source, where, outcome);
      return outcome;
    }
    Sample sample = row_reader(spec_.rows).read(row.value, source);
    refuse_large_integers(row, sample.conversation, sample.rejected);
    outcome.format = sample.format;
    switch (sample.kind) {
      case Sample::Kind::kChat: chat(sample, where, outcome); break;
      case Sample::Kind::kText: text(sample, where, outcome); break;
      case Sample::Kind::kPrompted: prompted(sample, where, outcome); break;
      case Sample::Kind::kTokens: tokens(sample, where, outcome); break;
    }
  } catch (const BadRow& error) {
    outcome.bad = error.what();
  } catch (...) {
    outcome.failure = std::current_exception();
  }
  return outcome;
}

void RowTokeniser::chat(Sample& sample, const std::string& where, Outcome& outcome) const {
  Conversation& conversation = sample.conversation;
  if (spec_.train_on_prompt && sample.preference == Preference::kNone && sample.rejected.empty())
    for (Message& message : conversation.messages) message.train = message.train || message.of_prompt;
  if (has_empty_reply(conversation.messages, spec_.mask_history) ||
      has_empty_reply(sample.rejected, spec_.mask_history)) {
    outcome.dropped = "a reply is empty, so there is nothing to learn";
    outcome.empty = true;
    return;
  }
  for (const Message& message : conversation.messages) {
    if (message.role != "assistant") continue;
    if (outcome.placeholder.empty()) outcome.placeholder = placeholder_in(message.content);
    if (message.train && outcome.null_argument.empty()) outcome.null_argument = null_argument_in(message);
  }
  const bool plain = sample.plain && spec_.plain_text_rows;
  const ChatTemplate& chat = plain ? no_template() : chat_template();
  std::vector<Example> examples;
  const auto render = [&](Preference preference) {
    if (!plain) give_system(conversation.messages, spec_.default_system, names_built_in(spec_.template_name));
    examples.push_back(rendered(chat, conversation, preference, where, outcome));
  };
  try {
    if (sample.rejected.empty()) {
      render(sample.preference);
    } else {
      render(Preference::kChosen);
      conversation.messages = std::move(sample.rejected);
      render(Preference::kRejected);
      if (examples[0].input_ids == examples[1].input_ids) {
        outcome.dropped = "the chosen and the rejected reply are the same";
        return;
      }
    }
  } catch (const UserError& error) {
    outcome.bad = error.what();
    return;
  }
  for (Example& example : examples)
    if (!fits(example, outcome)) return;
  if (examples.size() == 2 && examples[0].input_ids == examples[1].input_ids) {
    outcome.dropped = "after the cut to cutoff_len, the chosen and the rejected reply are the same";
    return;
  }
  outcome.continued = examples.size() == 2 && row_reader(spec_.rows).examples_per_row == 1;
  outcome.examples = std::move(examples);
}

const ChatTemplate& RowTokeniser::chat_template() const {
  std::call_once(template_made_, [&] {
    template_ = std::make_unique<const ChatTemplate>(spec_.template_name, tokenizer_, spec_.started, spec_.thinking);
  });
  return *template_;
}

const ChatTemplate& RowTokeniser::no_template() const {
  std::call_once(none_made_, [&] { none_ = std::make_unique<const ChatTemplate>("none", tokenizer_, spec_.started); });
  return *none_;
}

// Tokenises a labelled row: its texts become token ids, and its label becomes Example::classes.
void RowTokeniser::classified(const Row& row, const DataSource& source, const std::string& where,
                              Outcome& outcome) const {
  if (row.value.contains("chosen") && row.value.contains("rejected") && label_column(row.value, source).empty())
    throw BadRow(
        "the row has a chosen and a rejected reply, but no label; set stage: rm or dpo to train on preference pairs");
  ClassTexts texts = read_class_texts(row.value, source);
  refuse_large_integers(row, texts.conversation);
  Example example{.source = where, .classes = labels_->classes(row.value, source, where)};
  if (example.classes.empty() && !spec_.labels_optional) {
    const std::string column = label_column(row.value, source);
    if (column.empty())
      throw BadRow(
          "the row has no label; name the column label, labels, class, category or score, or set columns.label in "
          "dataset_info.json to your column");
    const auto& value = row.value[column];
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    bad_row("the row has no label: '{}' is {}{}", column, is_blank(text) ? "empty" : text,
            trimmed(text) == "-1" ? ", which is not one of the labels" : "");
  }
  int64_t whole = 0;
  if (texts.conversation.messages.empty()) {
    if (texts.first.empty() && texts.second.value_or("").empty()) {
      outcome.dropped = "the text is empty";
      outcome.empty = true;
      return;
    }
    Tokenizer::Texts encoded = tokenizer_.encode_texts(texts.first, texts.second, spec_.cutoff_len);
    example.input_ids = std::move(encoded.ids);
    if (texts.second) example.second_text = std::move(encoded.types);
    whole = encoded.whole;
  } else {
    give_system(texts.conversation.messages, spec_.default_system, names_built_in(spec_.template_name));
    if (spec_.template_name.empty() && !tokenizer_.chat_template())
      throw UserError(
          "{}: this row is a conversation, but the model has no chat template; for a causal model, set `template`; for "
          "an encoder, give one or two texts in columns such as text and text_pair",
          where);
    const ChatTemplate& chat = chat_template();
    try {
      example.input_ids = tokenizer_.encode(chat.text(texts.conversation), false);
    } catch (const UserError& error) {
      throw BadRow(error.what());
    }
    whole = example.length();
    example.input_ids.resize(static_cast<size_t>(std::min(whole, spec_.cutoff_len)));
  }
  if (whole > spec_.cutoff_len && !may_be_cut(whole, where, outcome)) return;
  if (example.input_ids.empty()) {
    outcome.dropped = "the text has no tokens";
    outcome.empty = true;
    return;
  }
  check_ids(example);
  example.labels.assign(example.input_ids.size(), kIgnore);
  outcome.tokens_by_role["text"] = example.length();
  outcome.examples.push_back(std::move(example));
}

// Joins the pieces into token ids with labels, and counts the tokens within cutoff_len by role.
Example RowTokeniser::labelled(const std::vector<ChatTemplate::Piece>& pieces, Preference preference,
                               const std::string& where, Outcome& outcome) const {
  Example example{.source = where, .preference = preference};
  const bool weighted =
      std::ranges::any_of(pieces, [](const ChatTemplate::Piece& piece) { return piece.trained && piece.weight != 1; });
  for (const ChatTemplate::Piece& piece : pieces) {
    const bool on_prompt = spec_.train_on_prompt && piece.role != "assistant" && preference == Preference::kNone;
    const bool train = piece.trained || on_prompt;
    std::string role = piece.role;
    if (piece.trained && preference != Preference::kNone)
      role = preference == Preference::kChosen ? "chosen" : "rejected";
    const int64_t room = std::max<int64_t>(0, spec_.cutoff_len - example.length());
    const int64_t kept = std::min(room, static_cast<int64_t>(piece.ids.size()));
    outcome.tokens_by_role[role] += kept;
    const auto masked = std::count(
        piece.masked.begin(), piece.masked.begin() + std::min<std::ptrdiff_t>(kept, std::ssize(piece.masked)), true);
    if (train) outcome.trained_by_role[role] += kept - masked;
    example.input_ids.insert(example.input_ids.end(), piece.ids.begin(), piece.ids.end());
    if (train)
      example.labels.insert(example.labels.end(), piece.ids.begin(), piece.ids.end());
    else
      example.labels.resize(example.input_ids.size(), kIgnore);
    for (size_t i = 0; i < piece.masked.size(); ++i)
      if (piece.masked[i]) example.labels[example.labels.size() - piece.masked.size() + i] = kIgnore;
    if (weighted)
      example.weights.resize(example.input_ids.size(), piece.trained ? static_cast<float>(piece.weight) : 1);
  }
  return example;
}

// Renders the conversation as token ids with labels.
Example RowTokeniser::rendered(const ChatTemplate& chat, Conversation& conversation, Preference preference,
                               const std::string& where, Outcome& outcome) const {
  std::vector<Message>& messages = conversation.messages;
  if (spec_.mask_history || preference != Preference::kNone)
    for (Message& message : messages) message.marked = false;
  if (spec_.mask_history) {
    bool last = true;
    for (auto message = messages.rbegin(); message != messages.rend(); ++message)
      if (message->role == "assistant") message->train = std::exchange(last, false) && message->train;
  }
  const bool weighted =
      std::ranges::any_of(messages, [](const Message& message) { return is_trained(message) && message.weight != 1; });
  if (weighted && preference != Preference::kNone)
    throw UserError(
        "a message has a weight other than 0 and 1, but this stage trains replies wholly or not at all; remove the "
        "weight, or train with stage: sft");
  ChatTemplate::Counts counts;  // those of the conversation that was rendered last
  const auto render = [&](const Conversation& part) {
    counts = {};
    return chat.render(part, counts);
  };
  Pieces pieces = render(conversation);
  // The trained reply is the last one, so a cut at the end would remove it.
  const int64_t whole = length_of(pieces);
  if (spec_.mask_history && preference == Preference::kNone && spec_.overlength == Overlength::kCut &&
      whole > spec_.cutoff_len) {
    outcome.truncated_from = whole;
    const auto parts = later_parts(conversation);
    const auto is_long = [&](const auto& part) { return length_of(render(part)) > spec_.cutoff_len; };
    const auto fitting = std::ranges::partition_point(parts, is_long);
    if (!parts.empty()) pieces = render(fitting == parts.end() ? parts.back() : *fitting);
    outcome.truncated_to = std::min(length_of(pieces), spec_.cutoff_len);
  }
  chat.add(counts);
  return labelled(pieces, preference, where, outcome);
}

void RowTokeniser::text(const Sample& sample, const std::string& where, Outcome& outcome) const {
  if (sample.text.empty()) {
    outcome.dropped = "the text is empty";
    outcome.empty = true;
    return;
  }
  std::vector<int32_t> ids = tokenizer_.encode(sample.text, true);
  const auto bos = tokenizer_.bos_id(), eos = tokenizer_.eos_id();
  if (bos && ids.size() > 1 && ids[0] == *bos && ids[1] == *bos) ids.erase(ids.begin());
  if (eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
  outcome.tokens_by_role["text"] = static_cast<int64_t>(ids.size());
  const auto most = static_cast<size_t>(spec_.cutoff_len);
  auto add = [&](const std::vector<int32_t>& part) {
    Example example{part, part, where};
    if (!fits(example, outcome)) return;
    outcome.trained_by_role["text"] += example.trained_tokens();
    outcome.examples.push_back(std::move(example));
  };
  if (!sample.continues || ids.size() <= most) return add(ids);
  outcome.continued = true;
  for (size_t at = 0; at + 1 < ids.size(); at += most)
    add({ids.begin() + static_cast<std::ptrdiff_t>(at),
         ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + most, ids.size()))});
}

// Takes a row that has token ids. Each document of a packed row becomes an example, except documents without a trained
// token, such as padding.
void RowTokeniser::tokens(Sample& sample, const std::string& where, Outcome& outcome) const {
  if (!spec_.train_on_prompt)
    for (size_t i = 0; i < sample.labels.size(); ++i)
      if (sample.of_prompt[i]) sample.labels[i] = kIgnore;
  outcome.tokens_by_role["tokens"] = std::ssize(sample.input_ids);
  sample.documents.push_back(sample.input_ids.size());
  std::vector<Example> documents;
  std::ptrdiff_t begin = 0;
  for (const size_t start : sample.documents) {
    const auto end = static_cast<std::ptrdiff_t>(start);
    documents.push_back({.input_ids = {sample.input_ids.begin() + begin, sample.input_ids.begin() + end},
                         .labels = {sample.labels.begin() + begin, sample.labels.begin() + end},
                         .source = where});
    begin = end;
  }
  const auto is_trained = [](const Example& document) { return document.trained_tokens() > 0; };
  if (std::ranges::any_of(documents, is_trained)) std::erase_if(documents, std::not_fn(is_trained));
  for (Example& example : documents) {
    if (!fits(example, outcome)) continue;
    outcome.trained_by_role["tokens"] += example.trained_tokens();
    outcome.examples.push_back(std::move(example));
  }
}

// Tokenises a prompt and a reply without a template. The reply ends with the tokenizer's eos_token.
void RowTokeniser::prompted(const Sample& sample, const std::string& where, Outcome& outcome) const {
  if (is_blank(sample.reply)) {
    outcome.dropped = "a reply is empty, so there is nothing to learn";
    outcome.empty = true;
    return;
  }
  std::vector<int32_t> reply = tokenizer_.encode(sample.reply, false);
  if (const auto eos = tokenizer_.eos_id()) reply.push_back(*eos);
  const Pieces pieces{{.ids = plain_prompt_ids(tokenizer_, sample.text), .role = "user", .trained = false},
                      {.ids = std::move(reply), .role = "assistant", .trained = true}};
  Example example = labelled(pieces, Preference::kNone, where, outcome);
  if (fits(example, outcome)) outcome.examples.push_back(std::move(example));
}

void RowTokeniser::check_ids(const Example& example) const {
  for (int32_t id : example.input_ids)
    if (vocab_size_ > 0 && id >= vocab_size_)
      throw UserError(
          "{}: token id {} ('{}') is beyond the model's vocabulary of {}; the tokenizer does not belong to "
          "this model, or the model's embedding was not resized for added tokens",
          example.source, id, tokenizer_.token(id), vocab_size_);
}

// Decides whether a row of more than cutoff_len tokens is cut or left out. Returns false, with the reason in `outcome`,
// when the row is left out. Throws UserError under Overlength::kError.
bool RowTokeniser::may_be_cut(int64_t length, const std::string& where, Outcome& outcome) const {
  if (spec_.overlength == Overlength::kError)
    throw UserError("{}: {} tokens are more than cutoff_len {}; raise cutoff_len, or choose overlength: cut or drop",
                    where, length, spec_.cutoff_len);
  if (spec_.overlength == Overlength::kDrop) {
    outcome.dropped = fmt::format("{} tokens are more than cutoff_len {}", length, spec_.cutoff_len);
    return false;
  }
  outcome.truncated_from = std::max(outcome.truncated_from, length);  // turns may have been left out before
  return true;
}

// Checks the ids and cuts the example to cutoff_len. Returns false, with the reason in `outcome`, when the row is left
// out because of its length, or has no token left to train.
bool RowTokeniser::fits(Example& example, Outcome& outcome) const {
  check_ids(example);
  const bool cut = example.length() > spec_.cutoff_len;
  if (cut) {
    if (!may_be_cut(example.length(), example.source, outcome)) return false;
    example.input_ids.resize(static_cast<size_t>(spec_.cutoff_len));
    example.labels.resize(static_cast<size_t>(spec_.cutoff_len));
    if (!example.weights.empty()) example.weights.resize(static_cast<size_t>(spec_.cutoff_len));
  }
  if (example.trained_tokens() == 0) {
    outcome.dropped = cut ? "after the cut to cutoff_len, no trained token is left" : "no token is trained";
    return false;
  }
  return true;
}

}  // namespace fettle
