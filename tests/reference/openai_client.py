#!/usr/bin/env python3
"""Tests `fettle serve` with the openai client: whole answers, streams, logprobs, stop, seed, tools, errors, clients that
disconnect, and 24 requests at once. Greedy replies must equal those of Transformers (reference.json).

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
GREEDY = json.loads((MODEL / "reference.json").read_text())["greedy"]
TEMPLATE = ("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
            "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}a|")


def start(folder):
    """Returns the server's process and its port."""
    shutil.copytree(MODEL, folder / "model")
    (folder / "model/chat_template.jinja").write_text(TEMPLATE)
    log = open(folder / "log", "w")
    process = subprocess.Popen(
        [PROGRAM, "serve", f"model_name_or_path={folder / 'model'}", "plugin=cpu", "do_sample=false", "--port", "0",
         "--name", "tiny", "--rows", "4"], stderr=log, env=dict(os.environ, FETTLE_API_KEY="secret"))
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
    assert [model.id for model in client.models.list()] == ["tiny"]
    for case in GREEDY:
        answer = client.completions.create(model="tiny", prompt=case["prompt"], max_tokens=24)
        assert answer.choices[0].text == case["base"]["text"], answer
        assert answer.choices[0].finish_reason == "length"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(case["prompt"]), 24)

    talk = dict(model="tiny", messages=[{"role": "user", "content": "rizb"}], max_tokens=12)
    whole = client.chat.completions.create(**talk, logprobs=True, top_logprobs=3)
    text = whole.choices[0].message.content
    tokens = whole.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == text and len(tokens) == 12
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

    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with_tool = client.chat.completions.create(**talk, tools=[tool])
    without = client.chat.completions.create(**talk, tools=[tool], tool_choice="none")
    assert with_tool.usage.prompt_tokens > without.usage.prompt_tokens == whole.usage.prompt_tokens

    refused(openai.NotFoundError, lambda: client.completions.create(model="other", prompt="a"), "use 'tiny'")
    refused(openai.BadRequestError, lambda: client.chat.completions.create(**talk, n=2), "'n' must be 1")
    refused(openai.BadRequestError, lambda: client.completions.create(model="tiny", prompt="a " * 500), "at most 128")
    refused(openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list(), "API key")

    for _ in range(6):  # clients that disconnect
        stream = client.completions.create(model="tiny", prompt="a", max_tokens=1000, temperature=2, stream=True)
        next(iter(stream))
        stream.close()

    def greedy(number):
        case = GREEDY[number % 2]
        answer = client.completions.create(model="tiny", prompt=case["prompt"], max_tokens=24)
        return answer.choices[0].text == case["base"]["text"]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert all(pool.map(greedy, range(24)))


with tempfile.TemporaryDirectory() as name:
    process, port = start(pathlib.Path(name))
    try:
        check(openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
print("the openai client and fettle serve agree")
