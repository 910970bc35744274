#include "data/chat/templates.h"

#include "data/chat/system_texts.h"
#include "data/chat/templates/turn_form.h"

namespace fettle {
namespace {

// No built-in template renders tools: the text of a tool call differs between models, and only the model's own template
// knows it.
constexpr std::string_view kChatml = R"({%- if messages[0].role != 'system' and default_system %}
    {{- '<|im_start|>system\n' + default_system + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})";

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + '<|eot_id|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %})";

constexpr std::string_view kLlama2 = R"({%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- bos_token + '[INST] ' }}
        {%- if loop.index0 == 1 and messages[0].role == 'system' %}
            {{- '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' }}
        {%- endif %}
        {{- message.content + ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' + message.content + ' ' + eos_token }}{% endgeneration %}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('the template llama2 has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kMistral = R"({{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.index0 == 1 and messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
        {{- message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{% endgeneration %}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('the template mistral has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kGemma = R"({{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<start_of_turn>model\n' }}
        {%- generation %}{{- message.content + '<end_of_turn>' }}{% endgeneration %}
        {{- '\n' }}
    {%- elif message.role == 'user' %}
        {{- '<start_of_turn>user\n' }}
        {%- if loop.index0 == 1 and messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
        {{- message.content + '<end_of_turn>\n' }}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('the template gemma has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})";

constexpr std::string_view kPhi3 = R"({{- tokenizer_bos }}
{%- for message in messages %}
    {{- '<|' + message.role + '|>\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + '<|end|>' }}{% endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content + '<|end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %})";

constexpr std::string_view kAlpaca = R"({{- tokenizer_bos }}
{{- (messages[0].content if messages[0].role == 'system' else default_system) + '\n\n' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '### Instruction:\n' + message.content + '\n\n### Response:\n' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- message.content + eos_token }}{% endgeneration %}
        {{- '\n\n' if not loop.last }}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('the template alpaca has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kVicuna = R"({{- tokenizer_bos }}
{{- (messages[0].content if messages[0].role == 'system' else default_system) + ' ' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- 'USER: ' + message.content + ' ASSISTANT:' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{% endgeneration %}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('the template vicuna has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kOasst = R"({{- tokenizer_bos }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>' }}
        {%- generation %}{{- message.content + end_of_turn }}{% endgeneration %}
    {%- elif message.role == 'user' or message.role == 'system' %}
        {{- ('<|prompter|>' if message.role == 'user' else '<|system|>') + message.content + end_of_turn }}
    {%- else %}
        {{- raise_exception('the template oasst has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %})";

constexpr std::string_view kDefault = R"({{- tokenizer_bos }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- 'Human: ' + message.content + '\nAssistant:' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{% endgeneration %}
        {{- '\n' }}
    {%- elif message.role == 'system' %}
        {{- 'System: ' + message.content + eos_token + '\n' }}
    {%- else %}
        {{- raise_exception('the template default has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kNone = R"({{- tokenizer_bos }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + eos_token }}{% endgeneration %}
    {%- else %}
        {{- message.content }}
    {%- endif %}
{%- endfor %})";

const std::vector<BuiltInTemplate>& written_out() {
  static const std::vector<BuiltInTemplate> rows = {
      {"llama3", {"<|eot_id|>", "<|eom_id|>"}, "", kLlama3},
      {"llama2", {"eos"}, "", kLlama2},
      {"chatml", {"<|im_end|>"}, "", kChatml},
      {"qwen", {"<|im_end|>"}, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", kChatml},
      {"qwen3_nothink", {"<|im_end|>"}, "", kChatml},
      {"mistral", {"eos"}, "", kMistral},
      {"gemma", {"<end_of_turn>"}, "", kGemma},
      {"gemma2", {"<end_of_turn>"}, "", kGemma},
      {"gemma3", {"<end_of_turn>"}, "", kGemma},
      {"phi", {"<|end|>"}, "", kPhi3},
      {"phi3", {"<|end|>"}, "", kPhi3},
      {"alpaca", {"eos"}, kAlpacaSystem, kAlpaca},
      {"vicuna", {"eos"}, kVicunaSystem, kVicuna},
      {"oasst", {"<|endoftext|>"}, "", kOasst},
      {"default", {"eos"}, "", kDefault},
      {"none", {"eos"}, "", kNone},
      {"empty", {"eos"}, "", kNone},
  };
  return rows;
}

std::vector<BuiltInTemplate> all_templates() {
  std::vector<BuiltInTemplate> all = written_out();
  for (const auto* forms : {&chatml_forms(), &marked_forms()})
    for (const TurnForm& form : *forms)
      for (std::string_view name : form.names)
        all.push_back({name, form.stops, form.default_system, kTurnsJinja, &form});
  return all;
}

const std::vector<BuiltInTemplate>& templates() {
  static const std::vector<BuiltInTemplate> all = all_templates();
  return all;
}

}  // namespace

const BuiltInTemplate* find_template(std::string_view name) {
  for (const BuiltInTemplate& one : templates())
    if (one.name == name) return &one;
  return nullptr;
}

std::string template_names() {
  std::string names;
  for (const BuiltInTemplate& one : templates()) names += (names.empty() ? "" : " ") + std::string(one.name);
  return names;
}

}  // namespace fettle
