"""Writes rope_scaling.json: the logits of Transformers with the rope that the key `rope_scaling` requests.

    "$(tests/reference/python_env.sh)" tests/reference/rope_scaling.py

Each case has a model of models/, the kind of scaling, the length of the longest row, token ids, and the logits after
the last id. The factor and the fields are those that LLaMA-Factory sets. Fields that do not belong to a scaling stay,
such as the part of a head's dims that is rotated.
"""
import json
import math
import pathlib
import random

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")


def scaled(name, kind, length):
    config = AutoConfig.from_pretrained(HERE / "models" / name)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    original = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    factor = math.ceil(length / original)
    new = {"rope_type": kind, "factor": float(factor)} | {key: rope[key] for key in KEPT if key in rope}
    if kind != "linear":
        new["original_max_position_embeddings"] = original
    if kind == "llama3":
        new.update(low_freq_factor=1.0, high_freq_factor=4.0)
    rope.clear()
    rope.update(new)
    config.max_position_embeddings = original * factor
    return config


def main():
    cases = []
    for name, length in [("qwen3", 300), ("llama", 100), ("gemma3", 300), ("qwen3_5_text", 300), ("glm4_moe", 300)]:
        for kind in ["linear", "dynamic", "yarn", "llama3"]:
            config = scaled(name, kind, length)
            model = AutoModelForCausalLM.from_pretrained(
                HERE / "models" / name, config=config, dtype=torch.float32, attn_implementation="eager"
            ).eval()
            random.seed(len(cases))
            ids = [random.randrange(config.vocab_size) for _ in range(length)]
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1]
            cases.append({
                "model": name, "rope_scaling": kind, "cutoff_len": length, "ids": ids,
                "max_position_embeddings": config.max_position_embeddings,
                "logits": [round(x, 6) for x in logits.tolist()],
            })
    (HERE / "rope_scaling.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
