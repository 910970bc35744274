"""Prints an engine's rate of matrix products, in GFLOP/s, at the shapes of a training step: the median of several rounds,
averaged over the shapes by their time. (A step's speed is a median too. The best round would be the rate of a moment in
which no other machine disturbed this one.)

usage: matmul_rate.py MODEL_FOLDER [--engine torch|onednn|plugin] [--dtype bfloat16|float32] [--rows 512]

torch: PyTorch's own choice; onednn: PyTorch's oneDNN with weights packed in advance; plugin: XLA's CPU compiler (JAX).
"""

import argparse
import json
import pathlib
import statistics
import time


def of_torch(rows, out, inner, dtype):
    import torch

    x, weight = torch.randn(rows, inner).to(getattr(torch, dtype)), torch.randn(out, inner).to(getattr(torch, dtype))
    return lambda: torch.nn.functional.linear(x, weight)


def of_onednn(rows, out, inner, dtype):
    import torch
    from torch.utils import mkldnn

    dtype = getattr(torch, dtype)
    linear = mkldnn.to_mkldnn(torch.nn.Linear(inner, out, bias=False).eval(), dtype)
    x = torch.randn(rows, inner).to(dtype).to_mkldnn()

    def product():
        with torch.no_grad():
            return linear(x)

    return product


def of_plugin(rows, out, inner, dtype):
    import jax

    x, weight = (jax.random.normal(jax.random.key(i), s).astype(dtype) for i, s in enumerate([(rows, inner), (out, inner)]))
    product = jax.jit(lambda x, w: x @ w.T)
    return lambda: product(x, weight).block_until_ready()


ENGINES = dict(torch=of_torch, onednn=of_onednn, plugin=of_plugin)


def seconds(product):
    """Returns the time of one call of `product`: the median of the averages of nine rounds."""
    product()
    rounds = []
    for _ in range(9):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < 0.06:
            product()
            count += 1
        rounds.append((time.perf_counter() - start) / count)
    return statistics.median(rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--engine", choices=list(ENGINES), default="torch")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rows", type=int, default=512)
    options = parser.parse_args()
    config = json.loads((options.folder / "config.json").read_text())
    hidden, mlp, vocab, layers = (
        config[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers")
    )
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    # (number of these products in a forward pass, output size, input size)
    shapes = [(2 * layers, hidden, hidden), (2 * layers, keys, hidden), (2 * layers, mlp, hidden),
              (layers, hidden, mlp), (1, vocab, hidden)]  # fmt: skip
    weights = sum(count * out * inner for count, out, inner in shapes)
    time_of_all = sum(
        count * seconds(ENGINES[options.engine](options.rows, out, inner, options.dtype)) for count, out, inner in shapes
    )
    print(json.dumps(dict(gflops=round(2 * options.rows * weights / time_of_all / 1e9, 1), weights=weights)))


if __name__ == "__main__":
    main()
