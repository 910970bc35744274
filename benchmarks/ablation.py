"""Measures what each kernel of the CPU gains: the step with all kernels, and with one of them left out.

usage: ablation.py FETTLE MODELS_FOLDER [--dtype bfloat16] [--isa SET] [--rounds 2] [--steps 4]

The work is LoRA on the 135M shape, 1 x 512, no recomputation. The rounds alternate between the sets of kernels. The
script prints a table: the processor seconds of a step (all cores together, the median of all steps but the first two of
each run), and how much more a step takes without the kernel. Other work on the machine changes processor seconds less
than it changes tokens/s.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import LIMITS, model_of
from workloads import Workload

KERNELS = ["cpu_attention", "cpu_linear", "cpu_lora", "cpu_gated", "cpu_rms_norm", "cpu_cross_entropy"]


def steps_of(options, model, kernels):
    """Returns the processor seconds of each step of a run but the first two."""
    with tempfile.TemporaryDirectory() as folder:
        log, marks = pathlib.Path(folder) / "out/trainer_log.jsonl", []
        process = subprocess.Popen(
            [options.fettle, "train", f"model_name_or_path={model}", f"dataset={model / 'rows-512.jsonl'}", "plugin=cpu",
             f"kernels=[{','.join(kernels)}]", f"bf16={str(options.dtype == 'bfloat16').lower()}", "lora_rank=8",
             "lora_target=all", "gradient_checkpointing=none", "cutoff_len=512", "per_device_train_batch_size=1",
             "logging_steps=1", "save_strategy=no", "plot_loss=false", f"max_steps={options.steps + 2}",
             f"output_dir={folder}/out"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        while process.poll() is None:
            steps = log.read_text().count('"loss"') if log.exists() else 0
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            while len(marks) < steps:
                marks.append(used)
            time.sleep(0.01)
        if process.returncode != 0:
            sys.exit(f"fettle train with kernels {kernels} failed")
    return [b - a for a, b in zip(marks[1:], marks[2:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--isa", choices=LIMITS, help="limit all programs to this instruction set")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a run, after two others")
    options = parser.parse_args()
    os.environ.update(LIMITS.get(options.isa, {}))
    sets = {"none": KERNELS} | {left: [k for k in KERNELS if k != left] for left in KERNELS}
    seconds = {left: [] for left in sets}

    model = model_of(options.models, Workload("lora", "135m", options.dtype))
    for number in range(options.rounds):
        for left in list(sets)[:: 1 if number % 2 == 0 else -1]:
            new = steps_of(options, model, sets[left])
            seconds[left] += new
            print(left, " ".join(f"{s:.2f}" for s in new), file=sys.stderr, flush=True)
    whole = statistics.median(seconds["none"])
    print("| left out | processor seconds of a step: median | least | most | more |\n|---|---|---|---|---|")
    for left, times in seconds.items():
        middle = statistics.median(times)
        print(f"| {left} | {middle:.2f} | {min(times):.2f} | {max(times):.2f} | {100 * (middle / whole - 1):.0f} % |")


if __name__ == "__main__":
    main()
