"""Does a benchmark's work with Transformers + PEFT, as a user would write it. Prints the results as JSON.

usage: peer_peft.py MODEL_FOLDER ROWS.jsonl [--kind lora] [--dtype bfloat16|float32] [--batch 1] [--steps 6] [--remat]
       [--device cpu|cuda]
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def load(options):
    """Returns the model: for LoRA the frozen base in `dtype` with float32 LoRA on all linear layers of its blocks."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.folder, dtype=getattr(torch, options.dtype), attn_implementation="sdpa"
    ).to(options.device)
    if options.kind in ("eval", "generate"):
        return model.eval()
    if options.remat:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    if options.kind == "full":
        return model.float().train()  # as with the Trainer's bf16: f32 weights, and autocast computes in bf16
    import peft

    config = peft.LoraConfig(
        r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config).train()


def padded(rows, device):
    """Pads to the longest row of the batch, as Transformers' collators do."""
    longest = max(len(row["input_ids"]) for row in rows)
    out = dict(input_ids=[], labels=[], attention_mask=[])
    for row in rows:
        none = longest - len(row["input_ids"])
        out["input_ids"].append(row["input_ids"] + [0] * none)
        out["labels"].append(row["labels"] + [-100] * none)
        out["attention_mask"].append([1] * len(row["input_ids"]) + [0] * none)
    if all(len(row["input_ids"]) == longest for row in rows):
        del out["attention_mask"]
    return {name: torch.tensor(value, device=device) for name, value in out.items()}


def train(model, options, rows):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    seconds, tokens, losses = [], [], []
    for step in range(2 + options.steps):
        taken = [rows[(step * options.batch + i) % len(rows)] for i in range(options.batch)]
        batch = padded(taken, options.device)
        start = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == "bfloat16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(float(loss.detach()), 4))
        seconds.append(time.perf_counter() - start)
        tokens.append(sum(len(row["input_ids"]) for row in taken))
    if options.kind == "chat":  # steps differ in length
        return dict(speed=sum(tokens[2:]) / sum(seconds[2:]), losses=losses)
    return dict(speed=tokens[0] / statistics.median(seconds[2:]), losses=losses)


@torch.no_grad()
def evaluate(model, options, rows):
    total = 0.0
    for at in range(0, len(rows), options.batch):
        total += float(model(**padded(rows[at : at + options.batch], options.device)).loss)
    return dict(losses=[total])


@torch.no_grad()
def generate(model, options, rows):
    prompts, replies = [], []
    for row in rows[:3]:
        ids = torch.tensor([row["input_ids"]], device=options.device)
        words = dict(do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(ids))
        start = time.perf_counter()
        model.generate(ids, max_new_tokens=1, min_new_tokens=1, **words)
        prompt = time.perf_counter() - start
        model.generate(ids, max_new_tokens=options.reply, min_new_tokens=options.reply, **words)
        prompts.append(prompt)
        replies.append(time.perf_counter() - start - 2 * prompt)
    return dict(prompt_speed=ids.shape[1] / statistics.median(prompts),
                speed=(options.reply - 1) / statistics.median(replies))  # fmt: skip


def main():
    begun = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--kind", choices=["lora", "full", "chat", "eval", "generate"], default="lora")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--steps", type=int, default=6, help="timed steps, after two others")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--reply", type=int, default=64)
    parser.add_argument("--remat", action="store_true", help="gradient checkpointing")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    torch.manual_seed(1)
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    model = load(options)
    if options.kind == "eval":
        result = evaluate(model, options, rows)
        result["speed"] = sum(len(row["input_ids"]) for row in rows) / (time.perf_counter() - begun)
    elif options.kind == "generate":
        result = generate(model, options, rows)
    else:
        result = train(model, options, rows)
    if options.device == "cuda":
        result["device_memory"] = torch.cuda.max_memory_allocated()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
