#include "completion.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <variant>

#include "command_help.h"
#include "config/keys.h"
#include "data/chat/templates.h"
#include "runtime/vendors/targets.h"
#include "runtime/vendors/vendor.h"
#include "stages/stages.h"

namespace fettle {
namespace {

constexpr std::string_view kFiles = ":files\n";

std::vector<std::string> target_names() {
  std::vector<std::string> names{"this"};
  for (const Target& target : targets()) names.push_back(target.name);
  return names;
}

// Returns the values that a key may have; an empty list when it may have any value.
std::vector<std::string> values_of(const Key& key) {
  if (key.name == "target") return target_names();
  if (key.name == "template") {
    std::istringstream names(template_names());
    return {std::istream_iterator<std::string>(names), {}};
  }
  if (key.name == "plugin") {
    std::vector<std::string> names;
    for (const Vendor& vendor : vendors()) names.emplace_back(vendor.name);
    return names;
  }
  const KeyTexts texts = stage_key_text();
  const auto text = texts.find(key.name);
  const auto& values = text == texts.end() ? key.values : text->second.values;
  if (values.empty() && std::holds_alternative<bool Recipe::*>(key.member)) return {"true", "false"};
  return {values.begin(), values.end()};
}

bool is_number(const Key& key) {
  return std::holds_alternative<int64_t Recipe::*>(key.member) ||
         std::holds_alternative<double Recipe::*>(key.member) ||
         std::holds_alternative<std::optional<int64_t> Recipe::*>(key.member) ||
         std::holds_alternative<std::optional<double> Recipe::*>(key.member);
}

std::string_view first_sentence(std::string_view text) {
  text = text.substr(0, std::min(text.find('\n'), text.find(". ")));
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

// Writes those candidates that start with `begin`.
class Candidates {
 public:
  Candidates(std::string_view begin, std::ostream& out) : begin_(begin), out_(out) {}

  void add(std::string_view word, std::string_view about = "") {
    if (word.starts_with(begin_)) out_ << word << '\t' << first_sentence(about) << '\n';
  }
  void add_options(const CommandWords& command) {
    for (const OptionWords& option : command.options)
      for (const std::string& name : option.names) add(name, option.about);
  }
  void add_files() { out_ << kFiles; }

 private:
  std::string_view begin_;
  std::ostream& out_;
};

// Completes `word`, which is "KEY=" and the beginning of a value. In a list, completes only the last item.
void complete_value(std::string_view word, std::ostream& out) {
  const size_t equals = word.find('=');
  const Key* key = find_key(word.substr(0, equals));
  if (key == nullptr) return;
  const std::vector<std::string> values = values_of(*key);
  Candidates candidates(word, out);
  const bool is_list = std::holds_alternative<std::vector<std::string> Recipe::*>(key->member);
  const size_t comma = word.rfind(',');
  const std::string before(word.substr(0, (is_list && comma != std::string_view::npos ? comma : equals) + 1));
  for (const std::string& value : values) candidates.add(before + value);
  if (values.empty() && !is_number(*key)) candidates.add_files();
}

void complete_word(const CommandWords& command, std::string_view word, std::ostream& out) {
  Candidates candidates(word, out);
  if (word.starts_with("-")) return candidates.add_options(command);
  if (command.reads_recipe && word.find('=') != std::string_view::npos) return complete_value(word, out);
  if (command.reads_recipe) {
    const auto important = important_keys(command.name);
    for (const Key& key : recipe_keys())
      if (!word.empty() || std::ranges::find(important, key.name) != important.end())
        candidates.add(std::string(key.name) + "=", key.help);
  }
  candidates.add_files();
}

}  // namespace

void print_completion(const CommandWords& program, const std::vector<CommandWords>& commands,
                      const std::vector<std::string>& words, std::ostream& out) {
  if (words.empty()) return;
  const std::string& last = words.back();
  const auto first = std::find_if(words.begin(), words.end() - 1, [](const auto& w) { return !w.starts_with("-"); });
  if (first == words.end() - 1) {
    Candidates candidates(last, out);
    if (last.starts_with("-")) return candidates.add_options(program);
    for (const CommandWords& command : commands) candidates.add(command.name, command.about);
    return;
  }
  const auto command = std::ranges::find(commands, *first, &CommandWords::name);
  if (command == commands.end()) return;
  const std::string& previous = *(words.end() - 2);
  for (const OptionWords& option : command->options) {
    if (!option.takes_value || std::ranges::find(option.names, previous) == option.names.end()) continue;
    const auto values = previous == "--target" ? target_names() : option.values;
    Candidates candidates(last, out);
    for (const std::string& value : values) candidates.add(value);
    if (values.empty()) candidates.add_files();
    return;
  }
  complete_word(*command, last, out);
}

}  // namespace fettle
