"""Measures what each kernel of the CPU gains: the step with all kernels, and with one of them left out.

usage: ablation.py FETTLE MODELS_FOLDER [--dtype bfloat16] [--isa SET] [--rounds 2] [--steps 8]

The work is LoRA on the 135M shape, 1 x 512, no recomputation. The rounds alternate between the sets of kernels. The
script prints a table: the median of all timed steps, and how much longer a step takes without the kernel.
"""

import argparse
import os
import pathlib
import statistics
import sys

import measure
from bench import LIMITS, model_of
from workloads import Workload

KERNELS = ["cpu_attention", "cpu_linear", "cpu_lora", "cpu_gated", "cpu_rms_norm", "cpu_rope", "cpu_cross_entropy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--isa", choices=LIMITS, help="limit all programs to this instruction set")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a run, after two untimed ones")
    options = parser.parse_args()
    os.environ.update(LIMITS.get(options.isa, {}))
    sets = {"none": KERNELS} | {left: [k for k in KERNELS if k != left] for left in KERNELS}
    seconds = {left: [] for left in sets}

    work = Workload("lora", "135m", options.dtype, steps=options.steps)
    model = model_of(options.models, work)
    for number in range(options.rounds):
        for left in list(sets)[:: 1 if number % 2 == 0 else -1]:
            kernels = f"[{','.join(sets[left])}]"
            speeds = measure.fettle(options.fettle, work, model, options.models.parent, kernels)["speeds"]
            seconds[left] += [512 / speed for speed in speeds]
            print(left, " ".join(f"{512 / speed:.3f}" for speed in speeds), file=sys.stderr, flush=True)
    whole = statistics.median(seconds["none"])
    print("| left out | step, ms: median | fastest | slowest | longer by |\n|---|---|---|---|---|")
    for left, times in seconds.items():
        middle = statistics.median(times)
        print(f"| {left} | {1000 * middle:.0f} | {1000 * min(times):.0f} | {1000 * max(times):.0f} | {100 * (middle / whole - 1):.1f} % |")


if __name__ == "__main__":
    main()
