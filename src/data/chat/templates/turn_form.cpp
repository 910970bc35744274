#include "data/chat/templates/turn_form.h"

namespace fettle {

const std::string_view kTurnsJinja = R"({{- prefix }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% else %}{% set system = default_system %}{% endif %}
{%- set system = system_before + system + system_after if system else '' %}
{%- if not system_in_user %}{{- system }}{% endif %}
{%- set thinks = thought_before != '' %}
{%- set state = namespace(user_seen=false, last_reply=-1) %}
{%- for message in messages %}{% if message.role == 'assistant' %}{% set state.last_reply = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- user_before }}
        {%- if system_in_user and not state.user_seen %}{{- system }}{% endif %}
        {{- message.content + user_after }}
        {%- set state.user_seen = true %}
    {%- elif message.role == 'assistant' %}
        {%- set body = message.content %}
        {%- set empty = '' %}
        {%- if thinks %}
            {%- if message.reasoning_content and thought_before | trim not in body %}
                {%- set body = thought_before + message.reasoning_content + thought_after + body %}
            {%- endif %}
            {%- set old = drop_old_thoughts and loop.index0 != state.last_reply %}
            {%- if (old or not enable_thinking) and thought_after in body %}
                {%- set body = (body.split(thought_before)[0] + body.split(thought_after)[-1]).lstrip('\n') %}
            {%- endif %}
            {%- if not old and thought_before | trim not in body and thought_after | trim not in body %}
                {%- set empty = empty_thought %}
            {%- endif %}
        {%- endif %}
        {%- if not enable_thinking %}{{- empty }}{% endif %}
        {%- generation %}
            {%- if enable_thinking %}{{- empty }}{% endif %}
            {{- reply_before + body + reply_after }}
            {%- if eos_at_end and loop.last %}{{- eos_token }}{% endif %}
        {%- endgeneration %}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- raise_exception('this template has no place for a message of role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and thinks and not enable_thinking %}{{- empty_thought }}{% endif %})";

}  // namespace fettle
