"""Trains LoRA with Transformers + PEFT on the CPU, as a user would write it. Prints tokens/s and peak memory as JSON.

usage: peer_peft.py MODEL_FOLDER [--dtype bfloat16|float32] [--steps 6] [--batch 1] [--rank 8]
MODEL_FOLDER comes from make_model.py; its rows.jsonl is used in file order.
"""

import argparse
import json
import pathlib
import resource
import statistics
import time

import peft
import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def load(folder, dtype, rank, remat):
    """Returns the frozen base in `dtype` with float32 LoRA on all linear layers of its blocks."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if remat:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config).train()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--steps", type=int, default=6, help="timed steps, after --warmup others")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--remat", action="store_true", help="gradient checkpointing")
    options = parser.parse_args()

    dtype = getattr(torch, options.dtype)
    torch.manual_seed(1)
    model = load(options.folder, dtype, options.rank, options.remat)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    rows = [json.loads(line) for line in (options.folder / "rows.jsonl").read_text().splitlines()]
    seconds, losses = [], []
    for step in range(options.warmup + options.steps):
        taken = [rows[(step * options.batch + i) % len(rows)] for i in range(options.batch)]
        ids = torch.tensor([row["input_ids"] for row in taken])
        labels = torch.tensor([row["labels"] for row in taken])
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(float(loss.detach()), 4))
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[options.warmup :])
    print(json.dumps(dict(
        program="transformers + peft", dtype=options.dtype, remat=options.remat, tokens_per_step=ids.numel(),
        tokens_per_second=round(ids.numel() / median, 1), seconds_per_step=round(median, 3),
        peak_memory_MiB=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        threads=torch.get_num_threads(), losses=losses,
    )))  # fmt: skip


if __name__ == "__main__":
    main()
