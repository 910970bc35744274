"""Compares `fettle render` with Jinja2 on every chat template in the wheels of ../wheels.txt.

    python3 compare_templates.py FETTLE [FILE.jinja...]

Jinja2 has the same settings as in Transformers. Each template is rendered with the conversations of make_jinja.py and
of this file. The texts must be equal, and a template that fails in Jinja2 must fail in Fettle. Prints a line for each
wheel and the first differences. The exit code is 1 if there are differences.
"""
import ast
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import make_jinja
from transformers.utils.chat_template_utils import _alias_reasoning_fields

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import wheels  # noqa: E402

MOST_BYTES = 20_000_000
USER, TOOLS = make_jinja.USER, make_jinja.TOOLS
MANY_TOOLS = TOOLS + [{"type": "function", "function": {"name": "now", "description": "", "parameters": {
    "type": "object", "properties": {"zone": {"type": ["string", "null"], "enum": ["UTC", None], "description": "é\n'q'"},
                                     "deep": {"type": "object", "properties": {"a": {"type": "array", "items": {}}}}}}}}]
CALLS = [
    {"role": "system", "content": "S"}, {"role": "user", "content": "Two at once."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "now", "arguments": {"zone": "UTC", "deep": {"a": [1, None]}}}},
        {"id": "abcdefgh2", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln \"x\""}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "now", "content": "12:00"},
    {"role": "tool", "tool_call_id": "abcdefgh2", "name": "get_weather", "content": "{\"t\": 3}"},
    {"role": "assistant", "content": "Noon, 3 degrees."}, {"role": "user", "content": "Thanks"}]  # fmt: skip
AS_TEXT = json.loads(json.dumps(CALLS))
for call in AS_TEXT[2]["tool_calls"]:
    call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
BASE = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "add_generation_prompt": False}
MORE = {
    "two calls": {**BASE, "messages": CALLS, "tools": MANY_TOOLS, "add_generation_prompt": True},
    "arguments as text": {**BASE, "messages": AS_TEXT, "tools": MANY_TOOLS},
    "a thought": {**BASE, "tools": MANY_TOOLS, "messages": [
        CALLS[1], {**CALLS[2], "reasoning": "Two calls."}, *CALLS[3:5],
        {**CALLS[5], "thinking": "Noon.", "tool_calls": None, "name": None}]},
    "parts": {**BASE, "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Look."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it? "}]},
        {"role": "assistant", "content": [{"type": "text", "text": " A cat."}]}]},
    "documents": {**BASE, "messages": [USER], "add_generation_prompt": True,
                  "documents": [{"title": "T", "text": "Some text", "contents": "C"}]},
    "developer": {**BASE, "messages": [{"role": "developer", "content": "Be brief."}, USER], "add_generation_prompt": True},
    "only system": {**BASE, "messages": [{"role": "system", "content": "S"}]},
    "nothing": {**BASE, "messages": []},
    "empty texts": {**BASE, "messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]},
    "no tokens": {"tools": None, "add_generation_prompt": True, "messages": make_jinja.TALK[:4]},
}  # fmt: skip
CONTEXTS = {**make_jinja.CONTEXTS, **make_jinja.MORE_CONTEXTS, **MORE}


def literals(source: bytes):
    """Yields the strings of a Python file. Strings that are joined by + count as one."""

    def joined(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = joined(node.left), joined(node.right)
            return None if left is None or right is None else left + right
        return None

    stack = [ast.parse(source)]
    while stack:
        node = stack.pop()
        text = joined(node)
        if text is None:
            stack += ast.iter_child_nodes(node)
        else:
            yield text


def values(node, key: str):
    """Yields the strings under `key` anywhere in a JSON value, including those in a list of named templates."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from values(value, "template" if name == key else key)
    elif isinstance(node, list):
        for value in node:
            yield from values(value, key)


def templates(wheel: str) -> dict[str, str]:
    """Returns the chat templates of a wheel by name, without duplicates."""
    found = {}
    archive = wheels.open_wheel(wheel)
    for path in sorted(archive.namelist()):
        if not path.endswith((".jinja", ".j2", ".json", ".py")) or archive.getinfo(path).file_size > MOST_BYTES:
            continue
        content = archive.read(path)
        if b"{%" not in content or b"messages" not in content:
            continue
        try:
            text = content.decode()
            texts = [text] if path.endswith((".jinja", ".j2")) else (
                literals(content) if path.endswith(".py") else values(json.loads(text), "chat_template"))
            for number, source in enumerate(texts):
                if "{%" in source and "messages" in source and source not in found.values():
                    found[f"{wheel}:{path}:{number}"] = source
        except (SyntaxError, ValueError):
            continue
    return found


def prepared(messages: list[dict]) -> list[dict]:
    """Returns the messages as apply_chat_template gives them to a template."""
    return _alias_reasoning_fields([{key: value for key, value in one.items() if value is not None} for one in messages])


def fettle(program: str, source: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as scratch:
        template, contexts = pathlib.Path(scratch, "template.jinja"), pathlib.Path(scratch, "contexts.jsonl")
        template.write_bytes(source.encode())
        contexts.write_text("".join(json.dumps(context) + "\n" for context in CONTEXTS.values()))
        run = subprocess.run([program, "render", "--jsonl", template, contexts], capture_output=True, text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    found = [line if isinstance(line, dict) else {"text": line} for line in lines]
    crash = {"error": run.stderr.strip()} if run.returncode == 2 else {"crash": run.returncode}
    return found if len(found) == len(CONTEXTS) else [crash] * len(CONTEXTS)


def check(program: str, name: str, source: str, count: collections.Counter) -> None:
    count["templates"] += 1
    # Jinja2 converts line ends when it reads a file.
    source = source.replace("\r\n", "\n").replace("\r", "\n") if name.endswith(".jinja") else source
    missed = False
    for (context, given), found in zip(CONTEXTS.items(), fettle(program, source)):
        wanted = make_jinja.render(source, {**given, "messages": prepared(given["messages"])})
        count["cases"] += 1
        count["failing in both"] += "error" in wanted and "error" in found
        if ("error" in wanted and "error" in found) or wanted.get("text", "") == found.get("text"):
            continue
        count["misses"] += 1
        if not missed and count["misses"] < 12:
            print(f"  {name} with {context}")
            print(f"    Jinja2 {str(wanted)[:400]}\n    fettle {str(found)[:400]}")
        missed = True


def main() -> int:
    program, files = sys.argv[1], sys.argv[2:]
    missed = 0
    groups = {"files": {file: pathlib.Path(file).read_text() for file in files}} if files else {
        wheel: templates(wheel) for wheel in wheels.names()}
    seen = set()
    for group, found in groups.items():
        count = collections.Counter()
        for name, source in found.items():
            if source not in seen:
                check(program, name, source, count)
            seen.add(source)
        if count:
            print(f"{group:16} {count['templates']:4} templates, {count['cases']:6} cases ({count['failing in both']} fail in "
                  f"both): {count['misses']} misses", flush=True)
        missed += count["misses"]
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
