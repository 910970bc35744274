#include "data/prompt_format.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/chat/system_texts.h"

namespace fettle {
namespace {

using Fields = std::vector<std::pair<std::string_view, std::string_view>>;

// Appends `text` to `out`, with the values of `fields` in place of the replacement fields. Stops at a single brace, or
// at a field that is not in `fields`, and returns this brace or field. Returns "" when there is none.
std::string replace_fields(std::string_view text, const Fields& fields, std::string& out) {
  while (!text.empty()) {
    const char c = text[0];
    if (c != '{' && c != '}') {
      const size_t end = std::min(text.find_first_of("{}"), text.size());
      out += text.substr(0, end);
      text.remove_prefix(end);
      continue;
    }
    if (text.size() > 1 && text[1] == c) {  // {{ or }}
      out += c;
      text.remove_prefix(2);
      continue;
    }
    const size_t end = c == '{' ? text.find('}') : std::string_view::npos;
    if (end == std::string_view::npos) return std::string(1, c);
    const std::string_view name = text.substr(1, end - 1);
    const auto field = std::ranges::find_if(fields, [&](const auto& one) { return one.first == name; });
    if (field == fields.end()) return std::string(text.substr(0, end + 1));
    out += field->second;
    text.remove_prefix(end + 1);
  }
  return "";
}

std::string filled(const std::string& text, const Fields& fields) {
  std::string out;
  const std::string unknown = replace_fields(text, fields, out);
  internal_check(unknown.empty(), "the prompt format was not checked: {}", unknown);
  return out;
}

}  // namespace

void PromptFormat::check(const std::string& where) const {
  struct Text {
    const char* name;
    const std::string& text;
    Fields fields;
  };
  const Text texts[] = {{"format", format, {{"instruction", ""}, {"input", ""}}},
                        {"no_input_format", no_input_format, {{"instruction", ""}}},
                        {"system_format", system_format, {{"system", ""}}}};
  for (const Text& one : texts) {
    std::string ignored;
    const std::string unknown = replace_fields(one.text, one.fields, ignored);
    if (unknown.empty()) continue;
    std::string known;
    for (const auto& field : one.fields) known += fmt::format("{}{{{}}}", known.empty() ? "" : " and ", field.first);
    throw UserError("{}.{}: found {}, but only {} may be used; to write a brace, write it twice", where, one.name,
                    unknown, known);
  }
}

std::string PromptFormat::prompt(const std::string& instruction, const std::string& input) const {
  return prompt(instruction, input, input.empty() ? no_input_system_prompt : system_prompt);
}

std::string PromptFormat::prompt(const std::string& instruction, const std::string& input,
                                 const std::string& system) const {
  std::string out;
  if (!system.empty()) out = filled(system_format, {{"system", system}});
  if (input.empty()) return out + filled(no_input_format, {{"instruction", instruction}});
  return out + filled(format, {{"instruction", instruction}, {"input", input}});
}

const PromptFormat& alpaca_format() {
  static const PromptFormat format = {
      .format = "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
      .no_input_format = "### Instruction:\n{instruction}\n\n### Response:\n",
      .system_format = "{system}\n\n",
      .system_prompt =
          "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
          "response that appropriately completes the request.",
      .no_input_system_prompt = kAlpacaSystem};
  return format;
}

std::optional<PromptFormat> alpaca_style(const std::string& style) {
  PromptFormat out = alpaca_format();
  if (style == "chat") {
    out.format = "USER: {instruction}\n{input}\nASSISTANT:";
    out.no_input_format = "USER: {instruction}\nASSISTANT:";
    out.system_format = "SYSTEM: {system}\n";
  } else if (style == "chatml") {
    out.format = "<|im_start|>user\n{instruction}\n{input}<|im_end|>\n<|im_start|>assistant\n";
    out.no_input_format = "<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n";
    out.system_format = "<|im_start|>system\n{system}<|im_end|>\n";
  } else if (style == "phi") {
    out.format = "<|user|>\n{instruction}<|end|>{input}<|assistant|>";
    out.no_input_format = "<|user|>\n{instruction}<|end|>\n<|assistant|>\n";
    out.system_format = "<|system|>\n{system}<|end|>\n";
  } else if (style != "instruct") {
    return std::nullopt;
  }
  return out;
}

}  // namespace fettle
