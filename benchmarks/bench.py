"""Measures Fettle and its peers side by side and writes a page of Markdown.

usage: bench.py FETTLE MODELS_FOLDER OUT.md [--all] [--isa SET] [--rounds 2] [--minutes M] [--only WORDS]

Peers: Transformers + PEFT, and a plain JAX step on the compiler that Fettle uses. All programs have the same weights,
rows and precision. A round measures each workload once with each program, so that a slowdown of the machine affects all
of them. Speed and memory are those of the best round. The rates of matrix products are measured in the same rounds, and
the share is relative to the best of them. The time to the first step, its end included, is that of the first round
(new), and that of the last round, which finds the compiled programs (cached). Compile is the time of compiling in the
first round; ready is the time until the step is compiled and the weights are loaded, in the last round. The page is
written again after each workload. --isa limits all programs to an instruction set on a machine that has more. The
plugin's own products do not always keep to it, so the share then leaves out their rate, and JAX may be too fast. After
--minutes, the running program is ended, and the page says what was left out. run.sh passes --jax-python.
"""

import argparse
import contextlib
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
from workloads import REAL_CHAT, SHAPES, WORKLOADS

HERE = pathlib.Path(__file__).parent
# For --isa: the environment that limits oneDNN, MKL, PyTorch, Fettle and XLA to an instruction set.
LIMITS = {
    "avx2": dict(ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2", ATEN_CPU_CAPABILITY="avx2",
                 FETTLE_MAX_CPU_ISA="avx2", XLA_FLAGS="--xla_cpu_max_isa=AVX2"),
    "avx512_bf16": dict(ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16", MKL_ENABLE_INSTRUCTIONS="AVX512",
                        FETTLE_MAX_CPU_ISA="avx512_bf16", XLA_FLAGS="--xla_cpu_max_isa=AVX512_BF16"),
}  # fmt: skip
HEAD = ["Fettle tokens/s", "PEFT", "ratio", "JAX", "ratio", "share of the best matmul rate", "Fettle GB", "PEFT GB",
        "first step, s: new", "cached", "compile, s", "ready, s: cached"]  # fmt: skip


def write_rows_of(lengths, path, vocab):
    """Writes rows of random tokens. `lengths` has the tokens of each row's prompt and of its reply, which is trained."""
    draw = random.Random(3)
    with path.open("w") as out:
        for prompt, reply in lengths:
            ids = [draw.randrange(vocab) for _ in range(prompt + reply)]
            out.write(json.dumps(dict(input_ids=ids, labels=[-100] * prompt + ids[prompt:])) + "\n")


def write_chat_rows(path, vocab, rows=91):
    """Writes rows of 20 to 700 tokens, median 89, as in chat data sets. The second half of each row is trained."""
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
        elif work.real:
            write_rows_of(REAL_CHAT, rows, vocab)
        else:
            make_model.write_rows(rows, 64, work.length, vocab)
    return model


class Measured:
    """The results of one workload: for each program a list, one entry for each round. `rates` are those of products."""

    def __init__(self, options, work, model):
        self.options, self.work, self.model = options, work, model
        self.fettle, self.peft, self.jax, self.rates = [], [], [], []
        self.cache = tempfile.TemporaryDirectory()  # of compiled programs; the last round finds them
        for entry in ("plugins", "kernels"):  # everything but compiled programs is ready, as after the first run
            if (options.cache / entry).exists():
                os.symlink(options.cache / entry, pathlib.Path(self.cache.name) / entry)

    def measure(self, with_rates):
        options, work, model = self.options, self.work, self.model
        fettle = measure.fettle(options.fettle, work, model, pathlib.Path(self.cache.name))
        peft = jax = rates = None
        if work.kind != "qlora":  # with bitsandbytes 0.50.2 on a CPU, four steps took more than 200 s
            peft = measure.peer(sys.executable, "peer_peft.py", work, model)
        if work.kind == "lora" and work.shape == "135m":
            jax = measure.peer(options.jax_python, "peer_jax.py", work, model, **measure.jax_environment(options.cache))
        if with_rates:
            rates = measure.matmul_rates(work, model, options.jax_python, options.cache)
        # A round that was cut off leaves nothing.
        for results, one in ((self.fettle, fettle), (self.peft, peft), (self.jax, jax), (self.rates, rates)):
            if one is not None:
                results.append(one)


def best(runs, figure="speed"):
    return max((run[figure] for run in runs if run.get(figure)), default=None)


def ratio(ours, theirs):
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def number(value, form=".0f"):
    return format(value, form) if value else ""


def useful_flops(work, model, weights):
    """Returns the FLOPs that one token of a training step needs, without recomputation: products with the weights,
    attention to the keys before it, and the adapters of rank 8."""
    config = json.loads((model / "config.json").read_text())
    hidden, mlp, layers = (config[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    # Two products forward and four backward, for half of the row's keys on average.
    attention = 6 * layers * hidden * (work.length + 1)
    if work.kind == "full":
        return 6 * weights + attention
    # A frozen weight has no gradient; the two factors of an adapter have.
    adapters = layers * 8 * (2 * (hidden + hidden) + 2 * (hidden + keys) + 3 * (hidden + mlp))
    return 4 * weights + 6 * adapters + attention


def row(measured, rates):
    """Returns the lines of the table. `rates` has the best rate of each engine for the step's products, or is None."""
    work, model, ours, peft, jax = measured.work, measured.model, measured.fettle, measured.peft, measured.jax
    share = ""
    if rates and work.kind in ("lora", "full"):
        flops = useful_flops(work, model, rates["weights"])
        # The plugin does not keep to a limit of the instruction set in all of its products.
        engines = ("torch", "onednn") if measured.options.isa else ("torch", "onednn", "plugin")
        share = f"{best(ours) * flops / max(rates[name] for name in engines) / 1e9:.2f}"
    memory = [min(run["memory"] for run in runs) / 1e9 if runs else None for runs in (ours, peft)]
    first = [run.get("first") for run in ours]
    cells = [number(best(ours)), number(best(peft)), ratio(best(ours), best(peft)), number(best(jax)),
             ratio(best(ours), best(jax)), share, number(memory[0], ".2f"), number(memory[1], ".2f"),
             number(first[0], ".1f"), number(first[-1], ".1f") if len(first) > 1 else "",
             number(ours[0].get("compile"), ".1f"), number(ours[-1].get("ready"), ".1f") if len(ours) > 1 else ""]  # fmt: skip
    lines = [f"| {work.title()} | " + " | ".join(cells) + " |"]
    if work.kind == "generate":
        speeds = [best(runs, "prompt_speed") for runs in (ours, peft)]
        lines.append(f"| {work.title()}: its prompt | {speeds[0]:.0f} | {speeds[1]:.0f} | {ratio(*speeds)} |" + " |" * (len(HEAD) - 3))
    return lines


def processor():
    text = open("/proc/cpuinfo").read()
    model = re.search(r"model name\s*: (.*)", text)
    family = re.search(r"cpu family\s*: (.*)", text)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if re.search(rf"\b{flag}\b", text)]
    return f"{os.cpu_count()} cores of {model.group(1) if model else '?'} (family {family.group(1) if family else '?'}; {', '.join(flags)})"


def shape_of(work):
    return work.shape, work.dtype, work.rows * work.length


def body(wanted, all_measured):
    """Returns the lines of the page after the head of its table."""
    rates = {}  # by shape: the best rate of each engine
    for work, measured in all_measured.items():
        for one in measured.rates:
            known = rates.setdefault(shape_of(work), one)
            rates[shape_of(work)] = {name: max(known[name], rate) for name, rate in one.items()}
    lines = [line for measured in all_measured.values() for line in row(measured, rates.get(shape_of(measured.work)))]
    counts = [len(measured.fettle) for measured in all_measured.values()]
    once = [work.title() for work, measured in all_measured.items() if len(measured.fettle) < max(counts)]
    missing = [work.title() for work in wanted if work not in all_measured]
    lines += ["", "Measured in one round less: " + "; ".join(once) + "."] if once else []
    lines += ["", "Left out for time: " + "; ".join(missing) + "."] if missing else []
    if not rates:
        return [*lines, ""]
    lines += ["", "The share counts the FLOPs of products with weights, of adapters and of attention to earlier keys, without "
              "recomputation. Rates of matrix products at the step's shapes, GFLOP/s:", ""]  # fmt: skip
    for (shape, dtype, positions), engines in rates.items():
        said = ", ".join(f"{name} {rate:.0f}" for name, rate in engines.items() if name != "weights")
        lines.append(f"- {shape} {dtype}, {positions} positions: {said}")
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--jax-python", type=pathlib.Path, required=True, help="a Python that has JAX")
    parser.add_argument("--all", action="store_true", help="the whole table")
    parser.add_argument("--isa", choices=LIMITS, help="limit all programs to this instruction set")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e5)
    parser.add_argument("--only", default="", help="only workloads whose title has these words")
    options = parser.parse_args()
    options.fettle = options.fettle.resolve()
    options.cache = pathlib.Path(os.environ.get("FETTLE_CACHE") or pathlib.Path.home() / ".cache/fettle")
    if options.isa:
        os.environ.update(LIMITS[options.isa])
    wanted = [work for work in WORKLOADS if (options.all or work.short) and options.only in work.title()]
    head = [f"# Speed, {datetime.date.today()}", "",
            f"{processor()}{f', all programs limited to {options.isa}' if options.isa else ''}. Random weights; LoRA of rank 8 on "
            f"all linear layers. JAX was measured only for LoRA of the 135M model. Times to the first step and of compiling are Fettle's. Best of {options.rounds} alternating rounds; `make bench` repeats it. Load before: "
            f"{os.getloadavg()[0]:.1f}.", ""]  # fmt: skip
    table = ["| work | " + " | ".join(HEAD) + " |", "|---" * (len(HEAD) + 1) + "|"]
    all_measured = {}
    measure.deadline = time.perf_counter() + options.minutes * 60
    with contextlib.suppress(measure.OutOfTime):
        for round_ in range(options.rounds):
            rated = set()  # shapes whose products were measured in this round
            for work in wanted:
                measured = all_measured.get(work) or Measured(options, work, model_of(options.models, work))
                with_rates = work.kind in ("lora", "full") and shape_of(work) not in rated
                rated |= {shape_of(work)} if with_rates else set()
                measured.measure(with_rates)
                all_measured[work] = measured
                print(f"round {round_ + 1}: {work.title()}: {measured.fettle[-1]['speed']:.0f} tokens/s", flush=True)
                options.out.write_text("\n".join(head + table + body(wanted, all_measured)))
    if not all_measured:
        sys.exit("no workload ended in time")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
