"""Prints PyTorch's rate of matrix products, in GFLOP/s, at the shapes of a training step: the best of several rounds,
averaged over the shapes by their time.

usage: matmul_rate.py MODEL_FOLDER [--dtype bfloat16|float32] [--rows 512]
"""

import argparse
import json
import pathlib
import time

import torch


def seconds(rows, out, inner, dtype):
    """Returns the shortest time of one product with a weight [out, inner], as in a linear layer's forward pass."""
    x, weight = torch.randn(rows, inner).to(dtype), torch.randn(out, inner).to(dtype)
    best = float("inf")
    for _ in range(5):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < 0.1:
            torch.nn.functional.linear(x, weight)
            count += 1
        best = min(best, (time.perf_counter() - start) / count)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rows", type=int, default=512)
    options = parser.parse_args()
    config = json.loads((options.folder / "config.json").read_text())
    hidden, mlp, vocab, layers = (
        config[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers")
    )
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    # (times in a forward pass, outputs, inputs)
    shapes = [(2 * layers, hidden, hidden), (2 * layers, keys, hidden), (2 * layers, mlp, hidden),
              (layers, hidden, mlp), (1, vocab, hidden)]  # fmt: skip
    weights = sum(count * out * inner for count, out, inner in shapes)
    time_of_all = sum(
        count * seconds(options.rows, out, inner, getattr(torch, options.dtype)) for count, out, inner in shapes
    )
    print(json.dumps(dict(gflops=round(2 * options.rows * weights / time_of_all / 1e9, 1), weights=weights)))


if __name__ == "__main__":
    main()
