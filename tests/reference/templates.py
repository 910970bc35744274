"""Records how LLaMA-Factory renders small conversations with each of its templates.

Usage: templates.py LLAMA_FACTORY_CHECKOUT > templates.json

Only LLaMA-Factory's template module runs. Stand-ins replace what it imports, and the tokenizer's ids are texts.
"""
import importlib
import json
import sys
import types
from enum import Enum
from pathlib import Path


class Silent:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Role(str, Enum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    FUNCTION = "function"
    OBSERVATION = "observation"


class Texts:
    """A tokenizer whose ids are the texts themselves."""

    bos_token_id, eos_token_id = "<s>", "</s>"

    def encode(self, text, add_special_tokens=False):
        return [text]

    def convert_tokens_to_ids(self, token):
        return token


def load(checkout):
    root = Path(checkout) / "src" / "llamafactory"
    for name in ("", ".extras", ".data"):
        module = types.ModuleType("llamafactory" + name)
        module.__path__ = [str(root / name[1:])]
        sys.modules["llamafactory" + name] = module
    for name, members in {
        "extras.packages": {},
        "extras.logging": {"get_logger": lambda *args: Silent()},
        "extras.constants": {},
        "data.mm_plugin": {"get_mm_plugin": lambda name, **kwargs: None},
        "data.data_utils": {"Role": Role, "SLOTS": object},
    }.items():
        module = types.ModuleType("llamafactory." + name)
        vars(module).update(members)
        sys.modules["llamafactory." + name] = module
        setattr(sys.modules["llamafactory." + name.split(".")[0]], name.split(".")[1], module)
    return importlib.import_module("llamafactory.data.template").TEMPLATES


def pairs(template, messages, system):
    ids = template.encode_multiturn(Texts(), messages, system, "")
    return [["".join(prompt), "".join(reply)] for prompt, reply in ids]


def main():
    talk = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
    ]
    out = {}
    for name, template in load(sys.argv[1]).items():
        thinks = "Reasoning" in type(template).__name__
        before, after = template.thought_words
        thought = [talk[0], {"role": "assistant", "content": before + "why" + after + "Hello."}]
        one = {"stops": template.stop_words, "eos_at_end": template.efficient_eos, "thought": [before, after] if thinks else None}
        for key, enabled in (("on", True), ("off", False)) if thinks else (("plain", True),):
            template.enable_thinking = enabled
            one[key] = {"system": pairs(template, talk, "Be brief."), "bare": pairs(template, talk[:2], "")}
            if thinks:
                one[key]["thought"] = pairs(template, thought, "")
        out[name] = one
    print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in out.items()) + "\n}")


main()
