"""Measures Fettle and its peers side by side and writes a page of Markdown.

usage: bench.py FETTLE MODELS_FOLDER OUT.md [--all] [--isa SET] [--rounds 2] [--minutes M] [--only WORDS]

Peers: Transformers + PEFT, and a plain JAX step on the compiler that Fettle uses. All programs have the same weights,
rows and precision. Rounds alternate between the programs, so that a slowdown of the machine affects all of them. Speed
and memory are those of the best round. The rates of matrix products are measured in the same rounds, and the share
counts the best of them. The time to the first step is that of the first round (new), and that of the
last round, which finds the compiled programs (cached). The page is written again after each workload. --isa limits all
programs to an instruction set on a machine that has more. After --minutes, no new workload starts, and the page says
what was left out. run.sh passes --jax-python.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import make_model
import measure
from workloads import SHAPES, WORKLOADS

HERE = pathlib.Path(__file__).parent
# For --isa: the environment that limits oneDNN, MKL, PyTorch, Fettle and XLA to an instruction set.
LIMITS = {
    "avx2": dict(ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2", ATEN_CPU_CAPABILITY="avx2",
                 FETTLE_MAX_CPU_ISA="avx2", XLA_FLAGS="--xla_cpu_max_isa=AVX2"),
    "avx512_bf16": dict(ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16", MKL_ENABLE_INSTRUCTIONS="AVX512",
                        FETTLE_MAX_CPU_ISA="avx512_bf16", XLA_FLAGS="--xla_cpu_max_isa=AVX512_BF16"),
}  # fmt: skip
HEAD = ["Fettle tokens/s", "PEFT", "ratio", "JAX", "ratio", "share of the best matmul rate", "Fettle GB", "PEFT GB",
        "first step, s: new", "cached"]  # fmt: skip


def write_chat_rows(path, vocab, rows=91):
    """Writes rows of 20 to 700 tokens, median 110, as in chat data sets. The second half of each row is trained."""
    draw = random.Random(3)
    with path.open("w") as out:
        for _ in range(rows):
            length = min(700, max(20, int(draw.lognormvariate(4.7, 0.8))))
            ids = [draw.randrange(vocab) for _ in range(length)]
            out.write(json.dumps(dict(input_ids=ids, labels=[-100] * (length // 2) + ids[length // 2 :])) + "\n")


def model_of(folder, work, device="cpu"):
    """Returns the workload's model, made at its first use; `device` draws its weights."""
    model = folder / f"{work.shape}-{work.dtype}"
    subprocess.run([sys.executable, HERE / "make_model.py", model, "--dtype", work.dtype, "--rows=1", "--device", device,
                    *SHAPES[work.shape]], check=True, stdout=sys.stderr)  # fmt: skip
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    rows = measure.rows_file(work, model)
    if not rows.exists():
        if rows.name == "chat.jsonl":
            write_chat_rows(rows, vocab)
        else:
            make_model.write_rows(rows, 64, work.length, vocab)
    return model


def measured(options, work, model, with_rates):
    """Returns {program: list of results}; with_rates, also under `rates` the rates of matrix products of each round."""
    results = dict(fettle=[], peft=[], jax=[], rates=[])
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder)
        for entry in ("plugins", "kernels"):  # everything but compiled programs is ready, as after the first run
            if (options.cache / entry).exists():
                os.symlink(options.cache / entry, cache / entry)
        for _ in range(options.rounds):
            results["fettle"].append(measure.fettle(options.fettle, work, model, cache))
            if work.kind != "qlora":  # PEFT's 4 bits need bitsandbytes
                results["peft"].append(measure.peer(sys.executable, "peer_peft.py", work, model))
            if work.kind == "lora" and work.shape == "135m":
                results["jax"].append(measure.peer(options.jax_python, "peer_jax.py", work, model,
                                                   **measure.jax_environment(options.cache)))
            if with_rates:
                results["rates"].append(measure.matmul_rates(work, model, options.jax_python, options.cache))
    return results


def best(runs, figure="speed"):
    return max((run[figure] for run in runs if run.get(figure)), default=None)


def ratio(ours, theirs):
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def number(value, form=".0f"):
    return format(value, form) if value else ""


def row(work, results, rates):
    ours, peft, jax = results["fettle"], results["peft"], results["jax"]
    share = ""
    if rates and work.kind in ("lora", "full"):
        flops = (6 if work.kind == "full" else 4) * rates["weights"]
        share = f"{best(ours) * flops / max(v for k, v in rates.items() if k != 'weights') / 1e9:.2f}"
    memory = [min(run["memory"] for run in runs) / 1e9 if runs else None for runs in (ours, peft)]
    first = [run.get("first") for run in ours]
    cells = [number(best(ours)), number(best(peft)), ratio(best(ours), best(peft)), number(best(jax)),
             ratio(best(ours), best(jax)), share, number(memory[0], ".2f"), number(memory[1], ".2f"),
             number(first[0], ".1f"), number(first[-1], ".1f") if len(first) > 1 else ""]  # fmt: skip
    lines = [f"| {work.title()} | " + " | ".join(cells) + " |"]
    if work.kind == "generate":
        speeds = [best(runs, "prompt_speed") for runs in (ours, peft)]
        lines.append(f"| {work.title()}: its prompt | {speeds[0]:.0f} | {speeds[1]:.0f} | {ratio(*speeds)} |" + " |" * 7)
    return lines


def processor():
    text = open("/proc/cpuinfo").read()
    model = re.search(r"model name\s*: (.*)", text)
    family = re.search(r"cpu family\s*: (.*)", text)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if re.search(rf"\b{flag}\b", text)]
    return f"{os.cpu_count()} cores of {model.group(1) if model else '?'} (family {family.group(1) if family else '?'}; {', '.join(flags)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--jax-python", type=pathlib.Path, required=True, help="a Python that has JAX")
    parser.add_argument("--all", action="store_true", help="the whole table")
    parser.add_argument("--isa", choices=LIMITS, help="limit all programs to this instruction set")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--only", default="", help="only workloads whose title has these words")
    options = parser.parse_args()
    options.fettle = options.fettle.resolve()
    options.cache = pathlib.Path(os.environ.get("FETTLE_CACHE") or pathlib.Path.home() / ".cache/fettle")
    if options.isa:
        os.environ.update(LIMITS[options.isa])
    wanted = [work for work in WORKLOADS if (options.all or work.short) and options.only in work.title()]
    head = [f"# Speed, {datetime.date.today()}", "",
            f"{processor()}{f', all programs limited to {options.isa}' if options.isa else ''}. Random weights; LoRA of rank 8 on "
            f"all linear layers. Best of {options.rounds} alternating rounds; `make bench` repeats it. Load before: "
            f"{os.getloadavg()[0]:.1f}.", ""]  # fmt: skip
    table = ["| work | " + " | ".join(HEAD) + " |", "|---" * (len(HEAD) + 1) + "|"]
    rates, start = {}, time.perf_counter()
    for number_, work in enumerate(wanted):
        if time.perf_counter() - start > options.minutes * 60:
            table += ["", "Left out for time: " + "; ".join(w.title() for w in wanted[number_:]) + "."]
            break
        model = model_of(options.models, work)
        key = (work.shape, work.dtype, work.rows * work.length)
        results = measured(options, work, model, work.kind in ("lora", "full") and key not in rates)
        if results["rates"]:
            rates[key] = {name: max(one[name] for one in results["rates"]) for name in results["rates"][0]}
        lines = row(work, results, rates.get(key))
        print("\n".join(lines), flush=True)
        table += lines
        said = [f"- {shape} {dtype}, {positions} positions: " + ", ".join(f"{k} {v:.0f}" for k, v in r.items() if k != "weights")
                for (shape, dtype, positions), r in rates.items()]  # fmt: skip
        tail = ["", "Rates of matrix products at the step's shapes, GFLOP/s:", "", *said, ""]
        options.out.write_text("\n".join(head + table + tail))
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
