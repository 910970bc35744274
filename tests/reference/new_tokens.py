"""Trains adapters with new tokens in Fettle, and loads them in Transformers and PEFT.

    FETTLE=build/fettle "$(tests/reference/python_env.sh)" tests/reference/new_tokens.py

Tests models with a head of their own and with a tied head, and a text model in a model with images. The tokenizers of
the adapter and of the exported model give the same ids. The base with the adapter in PEFT has the same logits as the
exported model, also for new tokens.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
FETTLE = os.environ.get("FETTLE", str(HERE.parents[1] / "build/fettle"))
TEXT = "<svg>ab 12</svg> cd"


def fettle(*words):
    subprocess.run([FETTLE, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def check(name, work):
    base, out, merged = HERE / "models" / name, work / "out", work / "merged"
    (work / "rows.jsonl").write_text("".join(json.dumps({"text": f"<svg>ab {i}</svg> cd"}) + "\n" for i in range(8)))
    keys = [f"model_name_or_path={base}", "add_special_tokens=<svg>,</svg>", "plugin=cpu"]
    fettle("train", *keys, "stage=pt", "packing=false", f"dataset={work}/rows.jsonl", f"output_dir={out}", "max_steps=4",
           "per_device_train_batch_size=2", "learning_rate=0.01", "lora_rank=4", "cutoff_len=40")  # fmt: skip
    fettle("export", *keys, f"adapter_name_or_path={out}", f"export_dir={merged}")

    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (out, merged)]
    reference = AutoTokenizer.from_pretrained(base)
    reference.add_tokens(["<svg>", "</svg>"], special_tokens=True)
    ids = [tokenizer(TEXT)["input_ids"] for tokenizer in (*tokenizers, reference)]
    assert ids[0] == ids[1] == ids[2], ids
    assert len(tokenizers[0]) == len(reference)

    whole = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    rows = whole.get_input_embeddings().weight.shape[0]
    plain.resize_token_embeddings(rows)
    tuned = PeftModel.from_pretrained(plain, out).eval()
    with torch.no_grad():
        both = [model(torch.tensor([ids[0]])).logits for model in (whole, tuned)]
    difference = (both[0] - both[1]).abs().max().item()
    assert both[0].shape[-1] == rows and difference < 1e-4, difference
    print(f"{name}: {rows} rows, ids {ids[0][:4]}..., logits differ by {difference:.1e}")


for model in ("llama", "llama2", "gemma3_wrapped", "gpt2"):
    with tempfile.TemporaryDirectory() as folder:
        check(model, pathlib.Path(folder))
sys.exit(0)
