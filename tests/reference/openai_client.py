#!/usr/bin/env python3
"""Tests `fettle serve` with the openai client: whole answers, streams, logprobs, stop, seed, tools, errors, clients
that disconnect, and 24 requests at once. The server has a base and two adapters. Greedy replies must equal those of
Transformers and PEFT (reference.json). A second server has a model that was trained here to call a tool.

usage: openai_client.py PROGRAM
"""
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import openai

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
MODEL = pathlib.Path(__file__).resolve().parent / "models/llama"
NAMES = [("tiny", "base"), ("tuned", "tuned")]  # models, and their keys in GREEDY
GREEDY = json.loads((MODEL / "reference.json").read_text())["greedy"]
TEMPLATE = ("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
            "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}a|")


# A template with Hermes' format of calls, which is recognised by the texts in its comment.
CALLING = ("{# <tools> <tool_call> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
           "{{ m.role[0] + '|' + m.content }}{% for c in m.tool_calls or [] %}{{ '<tool_call>' + ({'name': "
           "c.function.name, 'arguments': c.function.arguments} | tojson) + '</tool_call>' }}{% endfor %}"
           "{{ eos_token if m.role == 'assistant' else '|' }}{% endfor %}{% if add_generation_prompt %}a|{% endif %}")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def copy_model(folder, template):
    shutil.copytree(MODEL, folder / "model")
    (folder / "model/chat_template.jinja").write_text(template)


def start(folder, model, *flags):
    """Returns the server's process and its port."""
    log = open(folder / "log", "w")
    process = subprocess.Popen(
        [PROGRAM, "serve", f"model_name_or_path={model}", "plugin=cpu", "do_sample=false", "--port", "0",
         "--name", "tiny", "--rows", "4", *flags], stderr=log, env=dict(os.environ, FETTLE_API_KEY="secret"))
    for _ in range(1200):
        said = re.search(r"http://127\.0\.0\.1:(\d+)/v1", (folder / "log").read_text())
        if said:
            return process, int(said.group(1))
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def refused(kind, call, says):
    try:
        call()
    except kind as error:
        assert says in str(error), error
        return
    raise AssertionError(f"not refused: {says}")


def check(client):
    assert [(model.id, model.parent) for model in client.models.list()] == [("tiny", None), ("tuned", "tiny"),
                                                                            ("qv", "tiny")]
    for case, (name, kind) in [(case, pair) for case in GREEDY for pair in NAMES]:
        answer = client.completions.create(model=name, prompt=case["prompt"], max_tokens=24)
        assert answer.choices[0].text == case[kind]["text"] and answer.model == name, answer
        assert answer.choices[0].finish_reason == "length"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(case["prompt"]), 24)

    talk = dict(model="tiny", messages=[{"role": "user", "content": "rizb"}], max_tokens=12)
    whole = client.chat.completions.create(**talk, logprobs=True, top_logprobs=3)
    text = whole.choices[0].message.content
    tokens = whole.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == text and len(tokens) == 12
    assert bytes(byte for token in tokens for byte in token.bytes).decode() == text
    for token in tokens:
        assert token.token == token.top_logprobs[0].token and len(token.top_logprobs) == 3
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1
    events = list(client.chat.completions.create(**talk, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].delta.content or "" for event in events[:-1]) == text
    assert events[-2].choices[0].finish_reason == "length" and events[-1].usage == whole.usage
    assert len([event for event in events[:-1] if event.choices[0].delta.content]) > 1  # a busy machine sends several tokens in one event

    stop = text[3:5]
    cut = client.chat.completions.create(**talk, stop=[stop])
    assert cut.choices[0].message.content == text[:text.index(stop)] and cut.choices[0].finish_reason == "stop"

    def draw(seed):
        return client.chat.completions.create(**talk, temperature=1.5, top_p=1, seed=seed).choices[0].message.content
    assert draw(5) == draw(5) and len({draw(seed) for seed in range(4)}) > 1

    with_tool = client.chat.completions.create(**talk, tools=[TOOL])
    without = client.chat.completions.create(**talk, tools=[TOOL], tool_choice="none")
    assert with_tool.usage.prompt_tokens > without.usage.prompt_tokens == whole.usage.prompt_tokens

    refused(openai.NotFoundError, lambda: client.completions.create(model="other", prompt="a"), "use 'tiny' or 'tuned' or 'qv'")
    several = client.chat.completions.create(**talk, n=3, temperature=1.5, top_p=1, seed=5).choices
    assert [choice.index for choice in several] == [0, 1, 2] and several[0].message.content == draw(5)
    assert client.models.retrieve("tiny").id == "tiny"
    refused(openai.NotFoundError, lambda: client.models.retrieve("other"), "other")
    refused(openai.BadRequestError, lambda: client.chat.completions.create(**talk, n=17), "16")
    refused(openai.BadRequestError, lambda: client.completions.create(model="tiny", prompt="a " * 500), "at most 128")
    refused(openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list(), "API key")

    for _ in range(6):  # clients that disconnect
        stream = client.completions.create(model="tiny", prompt="a", max_tokens=1000, temperature=2, stream=True)
        next(iter(stream))
        stream.close()

    def greedy(number):
        case, (name, kind) = GREEDY[number % 2], NAMES[number // 2 % 2]
        answer = client.completions.create(model=name, prompt=case["prompt"], max_tokens=24)
        return answer.choices[0].text == case[kind]["text"]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert all(pool.map(greedy, range(24)))


def train_to_call(folder):
    """Trains the model to answer "sky" with a call of `look`. Returns the new model's folder."""
    copy_model(folder, CALLING)
    call = {"type": "function", "function": {"name": "look", "arguments": {"x": 7}}}
    (folder / "rows.jsonl").write_text(json.dumps({"tools": [TOOL], "messages": [
        {"role": "user", "content": "sky"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}))
    subprocess.run([PROGRAM, "-q", "train", f"model_name_or_path={folder / 'model'}", f"dataset={folder / 'rows.jsonl'}",
                    f"output_dir={folder / 'out'}", "plugin=cpu", "finetuning_type=full", "max_steps=120",
                    "learning_rate=0.01", "lr_scheduler_type=constant", "per_device_train_batch_size=1",
                    "cutoff_len=128", "save_strategy=no"], check=True, stdout=subprocess.DEVNULL)
    return folder / "out"


def check_calls(client):
    talk = dict(model="tiny", messages=[{"role": "user", "content": "sky"}], tools=[TOOL], max_tokens=80)
    choice = client.chat.completions.create(**talk).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "look", {"x": 7})
    deltas = [event.choices[0] for event in client.chat.completions.create(**talk, stream=True)]
    [streamed] = [call for delta in deltas for call in delta.delta.tool_calls or []]
    assert streamed.index == 0 and streamed.id and streamed.function.name == "look", streamed
    assert streamed.function.arguments == call.function.arguments
    assert deltas[-1].finish_reason == "tool_calls" and not any(delta.delta.content for delta in deltas)
    # The call and its result go back to the model.
    more = talk["messages"] + [choice.message.model_dump(exclude_none=True),
                               {"role": "tool", "tool_call_id": call.id, "content": "7"}]
    assert client.chat.completions.create(**{**talk, "messages": more, "max_tokens": 4}).usage.prompt_tokens > 40
    refused(openai.BadRequestError, lambda: client.chat.completions.create(**talk, tool_choice="required"),
            "cannot force a call")


def serve(folder, model, flags, check):
    process, port = start(folder, model, *flags)
    try:
        check(openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


with tempfile.TemporaryDirectory() as name:
    first, second = pathlib.Path(name) / "first", pathlib.Path(name) / "second"
    first.mkdir(), second.mkdir()
    copy_model(first, TEMPLATE)
    adapters = ["--lora-modules", f"tuned={MODEL}/adapter_final", f"qv={MODEL}/variants/qv"]
    serve(first, first / "model", adapters, check)
    serve(second, train_to_call(second), [], check_calls)
print("the openai client and fettle serve agree")
