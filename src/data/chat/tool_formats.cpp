#include "data/chat/tool_formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fettle {
namespace {

// A tool format, and the texts that identify a template in this format.
struct ToolForm {
  std::string_view name;
  std::vector<std::string_view> marks;
  std::vector<std::string_view> never = {};  // a template with one of these texts has another, similar format
};

const std::vector<ToolForm>& tool_forms() {
  static const std::vector<ToolForm> forms = {
      {"qwen", {"<tools>", "<tool_call>"}, {"<function=", "<arg_key>"}},
      {"qwen3_5", {"<tools>", "<tool_call>", "<function=", "<parameter="}},
      {"glm4_moe", {"<tools>", "<tool_call>", "<arg_key>", "<arg_value>"}},
      {"llama3", {"<|start_header_id|>", "\"parameters\"", "ipython"}},
      {"mistral", {"[AVAILABLE_TOOLS]", "[TOOL_CALLS]"}},
      {"glm4", {"<|observation|>"}, {"<arg_key>"}},
      {"gemma4", {"<|tool>", "<|tool_call>"}},
      {"lfm2", {"<|tool_list_start|>"}},
      {"lfm2", {"<|tool_call_start|>"}, {"<|tool_list_start|>"}},
      {"minimax1", {"<tool_calls>"}},
      {"minimax2", {"minimax:tool_call"}},
      {"seed_oss", {"seed:tool_call"}},
      {"ling", {"<tools>", "<tool_call>", "<role>"}},
      {"deepseek", {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"}},
      {"gpt_oss", {"<|channel|>", "to=functions."}},
      {"kimi_k2", {"<|tool_calls_section_begin|>"}},
      {"nemotron", {"<AVAILABLE_TOOLS>", "<TOOLCALL>"}},
      {"olmo3", {"<functions>", "<function_calls>"}},
  };
  return forms;
}

bool is_written_by(const ToolForm& form, const std::string& source) {
  auto has = [&](std::string_view text) { return source.find(text) != std::string::npos; };
  return std::ranges::all_of(form.marks, has) && std::ranges::none_of(form.never, has);
}

}  // namespace

std::vector<std::string_view> tool_formats_of(const std::string& source) {
  std::vector<std::string_view> written;
  for (const ToolForm& form : tool_forms())
    if (is_written_by(form, source)) written.push_back(form.name);
  return written;
}

void check_tool_format(const std::string& name, const Tokenizer& tokenizer) {
  if (name.empty()) return;
  std::string source = tokenizer.chat_template("default").value_or("");
  source += tokenizer.chat_template("tool_use").value_or("");
  const std::vector<std::string_view> written = tool_formats_of(source);
  if (std::ranges::find(written, name) != written.end()) return;
  const std::string found =
      source.empty()    ? "the model has no chat template of its own"
      : written.empty() ? "the model's own chat template writes no tools, or writes them in another format"
                        : fmt::format("the model's own chat template writes tools as {}", fmt::join(written, ", "));
  throw UserError("tool_format: {} is not the format of this model: {}; remove the key", name, found);
}

}  // namespace fettle
