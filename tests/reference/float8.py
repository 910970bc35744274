"""Records a linear layer in 8-bit floats, forward and backward, with the rounding of PyTorch's float8 dtypes.

usage: float8.py        (writes float8.json: x, weight and the gradient of y; y and the gradients of x and weight)

Each operand has one scale: the smallest power of two that keeps its largest value in range. Sums are in float64.
"""

import json
import math

import torch

import families

KINDS = {
    "fn": (torch.float8_e4m3fn, torch.float8_e5m2),
    "fnuz": (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
}


def rounded(x, dtype):
    scale = 2.0 ** math.ceil(math.log2(float(x.abs().max()) / torch.finfo(dtype).max))
    return (x.float() / scale).to(dtype).double() * scale


def spread(generator, *shape):
    """Returns values over nine powers of two, so that the smallest values lose bits."""
    values = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-6, 3, shape, generator=generator)
    return values.to(torch.bfloat16)


def main():
    generator = torch.Generator().manual_seed(5)
    x, weight, ct = spread(generator, 4, 16), spread(generator, 8, 16) * 0.02, spread(generator, 4, 8) * 1e-3
    out = dict(x=x, weight=weight, ct=ct)
    for kind, (forward, gradient) in KINDS.items():
        x8, w8, ct8 = rounded(x, forward), rounded(weight, forward), rounded(ct, gradient)
        out[kind] = dict(y=x8 @ w8.T, dx=ct8 @ w8, dweight=ct8.T @ x8)
    out = {k: v.float().tolist() if torch.is_tensor(v) else {n: t.tolist() for n, t in v.items()} for k, v in out.items()}
    (families.HERE / "float8.json").write_text(json.dumps(out, indent=None) + "\n")


if __name__ == "__main__":
    main()
