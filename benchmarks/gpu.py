"""Measures LoRA on one NVIDIA GPU: Fettle with each attention kernel, Transformers + PEFT, and a plain JAX step. Writes
a page of Markdown.

usage: gpu.py FETTLE MODELS_FOLDER OUT.md [--plugin cuda] [--cache FOLDER] [--only WORDS] [--minutes M]

Run it with a Python that has PyTorch, PEFT and JAX for CUDA. All programs have the same weights, rows and precision.
The page is written again after each program. A program that fails has the end of its message in the page.
"""

import argparse
import datetime
import pathlib
import subprocess
import sys
import time

import measure
from bench import model_of
from workloads import Workload

WORKLOADS = [
    Workload("lora", "135m", "float32", rows=8, length=512, steps=10),
    Workload("lora", "135m", "bfloat16", rows=8, length=1024, steps=10),
    Workload("lora", "1.1b", "bfloat16", rows=4, length=2048, steps=10),
    Workload("lora", "8b", "bfloat16", rows=1, length=2048, steps=8),
    Workload("lora", "8b", "bfloat16", rows=2, length=4096, steps=6, remat="full"),
]
KERNELS = ["[cuda_attention]", "[cudnn_attention]", "off"]


def programs(options, work, model):
    """Yields (name, function that runs the program)."""
    for kernels in KERNELS if work.dtype == "bfloat16" else ["off"]:
        yield f"Fettle, kernels: {kernels}", lambda kernels=kernels: measure.fettle(
            options.fettle, work, model, options.cache, kernels, options.plugin)  # fmt: skip
    yield "PEFT", lambda: measure.peer(sys.executable, "peer_peft.py", work, model, ["--device=cuda"])
    if work.shape != "8b":
        # JAX uses TF32 for products of f32 unless it is told otherwise; the other programs do not.
        yield "JAX", lambda: measure.peer(sys.executable, "peer_jax.py", work, model, JAX_PLATFORMS="cuda",
                                           JAX_DEFAULT_MATMUL_PRECISION="highest" if work.dtype == "float32" else "default")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--plugin", default="cuda", help="a name or a file, as the recipe's key `plugin`")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/fettle")
    parser.add_argument("--only", default="", help="only workloads whose title has these words")
    parser.add_argument("--minutes", type=float, default=1e9, help="after this time, no program starts")
    options = parser.parse_args()
    options.fettle = options.fettle.resolve()
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                         text=True, check=True).stdout.strip()  # fmt: skip
    page = [f"# Speed on a GPU, {datetime.date.today()}", "", f"{gpu}. Random weights; LoRA of rank 8 on all linear layers.",
            "", "| work | program | tokens/s | device GB | first step, s | first and last loss |", "|---" * 6 + "|"]  # fmt: skip
    start = time.perf_counter()
    for work in WORKLOADS:
        if options.only not in work.title():
            continue
        model = model_of(options.models, work, "cuda")
        for name, call in programs(options, work, model):
            if time.perf_counter() - start > options.minutes * 60:
                page.append(f"| {work.title()} | {name} | not started, for time | | | |")
                continue
            try:
                r = call()
                first = f"{r['first']:.1f}" if r.get("first") else ""
                page.append(f"| {work.title()} | {name} | {r['speed']:.0f} | {r.get('device_memory', 0) / 1e9:.1f} | {first} | "
                            f"{r['losses'][0]} {r['losses'][-1]} |")  # fmt: skip
            except SystemExit as failed:
                page.append(f"| {work.title()} | {name} | {' '.join(str(failed).split())[-300:]} | | | |")
            print(page[-1], flush=True)
            options.out.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
