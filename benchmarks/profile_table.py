"""Prints where the time of a GPU went, from a profile that `profiler_steps` of Fettle recorded.

usage: profile_table.py FILE.xplane.pb [--steps N] [--rows R]

For each device: the time between its first and its last kernel, the time in which at least one kernel or copy ran, and
a table of kernels by their total time. --steps divides all times. Numbers at the end of a kernel's name are left out, so
kernels that the compiler numbered are added up. Needs a Python with JAX.
"""

import argparse
import collections
import re

from jax.profiler import ProfileData


def stem(name):
    return re.sub(r"([._]\d+)+$", "", name)[:90]


def covered(spans):
    """Returns the total length of the union of (start, end)."""
    total, reached = 0, float("-inf")
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rows", type=int, default=40)
    options = parser.parse_args()
    for plane in ProfileData.from_file(options.file).planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        spans, kernels, examples = [], collections.Counter(), {}
        times = collections.Counter()
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                spans.append((event.start_ns, event.end_ns))
                name = stem(event.name)
                kernels[name] += 1
                times[name] += event.duration_ns
                examples.setdefault(name, {key: value for key, value in event.stats if key in ("hlo_op", "tf_op", "name")})
        if not spans:
            continue
        ms = 1e-6 / options.steps
        span = (max(end for _, end in spans) - min(start for start, _ in spans)) * ms
        print(f"{plane.name}: {span:.2f} ms, busy {covered(spans) * ms:.2f} ms, {len(spans) / options.steps:.0f} events")
        for name, time in times.most_common(options.rows):
            print(f"{time * ms:9.3f} ms {100 * time * ms / span:5.1f} % {kernels[name] / options.steps:7.1f} x {name}  {examples[name]}")


if __name__ == "__main__":
    main()
