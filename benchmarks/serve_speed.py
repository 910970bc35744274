#!/usr/bin/env python3
"""Measures a server with OpenAI's protocol: tokens/s of one stream and of N at once, alternating, and how long a new
request waits for its first token while N - 1 others are written.

usage: serve_speed.py URL [--streams 16] [--tokens 64] [--rounds 3] [--models NAME ...]   URL as http://127.0.0.1:8080

With several models (a base and its adapters), the streams use them in turn.
"""
import argparse
import concurrent.futures
import http.client
import itertools
import json
import random
import statistics
import threading
import time
import urllib.parse

WORDS = "water river stone cloud green paper light house music table".split()

MODELS = itertools.cycle([None])


def stream(address, tokens, on_token=None):
    """Asks for one reply. Returns the times of the request and of its tokens."""
    body = {"prompt": " ".join(random.choices(WORDS, k=32)), "max_tokens": tokens, "temperature": 1, "top_p": 1,
            "top_k": 0, "stream": True, "logprobs": 0, "model": next(MODELS)}
    connection = http.client.HTTPConnection(address)
    times = [time.monotonic()]
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        chances = json.loads(line[6:])["choices"][0].get("logprobs")
        times += [time.monotonic()] * len(chances["tokens"] if chances else [])
        if on_token and len(times) > 1:
            on_token()
    connection.close()
    return times


def rate(address, streams, tokens):
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        replies = list(pool.map(lambda _: stream(address, tokens), range(streams)))
    return sum(len(times) - 1 for times in replies) / (time.monotonic() - begin)


def first_token_while_busy(address, others, tokens):
    """Returns the seconds until the first token of a request that is sent while `others` replies are being written, and
    how many of these replies were still being written at its end."""
    began = threading.Semaphore(0)
    with concurrent.futures.ThreadPoolExecutor(others) as pool:
        running = [pool.submit(stream, address, tokens, began.release) for _ in range(others)]
        for _ in range(2 * others):
            began.acquire()
        times = stream(address, 2)
        busy = sum(not one.done() for one in running)
    return times[1] - times[0], busy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=[None])
    options = parser.parse_args()
    global MODELS
    MODELS = itertools.cycle(options.models)
    address = urllib.parse.urlparse(options.url).netloc
    rate(address, options.streams, options.tokens)  # not measured: the server compiles
    one, many, first = [], [], []
    for _ in range(options.rounds):
        one.append(rate(address, 1, options.tokens))
        many.append(rate(address, options.streams, options.tokens))
        first.append(first_token_while_busy(address, options.streams - 1, options.tokens))
    alone = [times[1] - times[0] for times in (stream(address, 2) for _ in range(options.rounds))]
    print(f"one stream: {statistics.median(one):.1f} tokens/s; {options.streams}: {statistics.median(many):.1f} tokens/s, "
          f"{statistics.median(many) / statistics.median(one):.1f} times")
    print(f"first token alone: {statistics.median(alone) * 1000:.0f} ms; while {options.streams - 1} others run: "
          f"{statistics.median(seconds for seconds, _ in first) * 1000:.0f} ms "
          f"(others still running then: {[busy for _, busy in first]})")


main()
