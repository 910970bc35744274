"""Trains LoRA on a Llama checkpoint with plain JAX on its default device: one jitted step, no kernels of its own, layers in a
scan. Prints tokens/s as JSON. It shows what the compiler makes of the step without Fettle's choices.

usage: peer_jax.py MODEL_FOLDER ROWS.jsonl [--dtype bfloat16|float32] [--batch 1] [--steps 6] [--remat]
"""

import argparse
import json
import math
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

LINEAR = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
          "mlp.up_proj", "mlp.down_proj"]  # fmt: skip


def tensors_of(file):
    """Returns {name: array} for the tensors of a safetensors file."""
    data = np.memmap(file, np.uint8, "r")
    end = 8 + int(data[:8].view(np.uint64)[0])
    types = dict(BF16=ml_dtypes.bfloat16, F32=np.float32)
    return {name: data[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
            .view(types[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in json.loads(bytes(data[8:end])).items() if name != "__metadata__"}  # fmt: skip


def weights_of(folder, layers, dtype):
    """Returns the checkpoint's arrays outside of the layers, and those of the layers, stacked, as {name: array}."""
    tensors = tensors_of(folder / "model.safetensors")
    outside = {name: jnp.asarray(value).astype(dtype) for name, value in tensors.items() if ".layers." not in name}
    inside = sorted({name.split(".", 3)[3] for name in tensors if ".layers." in name})
    stack = lambda part: np.stack([tensors[f"model.layers.{i}.{part}"] for i in range(layers)])  # noqa: E731
    return outside, {part: jnp.asarray(stack(part)).astype(dtype) for part in inside}


def norm(x, weight, eps):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + eps)).astype(x.dtype) * weight


def rotate(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-jnp.arange(half) / half)
    cos, sin = (jnp.concatenate([f(angles)] * 2, -1)[None, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    return x * cos + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def layer(x, base, lora, config, scale):
    def linear(name, y):
        out = y @ base[f"{name}.weight"].T
        a, b = lora[name]
        return out + (scale * ((y.astype(jnp.float32) @ a.T) @ b.T)).astype(y.dtype)

    batch, length, hidden = x.shape
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size, eps = hidden // heads, config["rms_norm_eps"]
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    y = norm(x, base["input_layernorm.weight"], eps)
    q, k, v = (linear(f"self_attn.{n}_proj", y).reshape(batch, length, -1, size) for n in "qkv")
    q, k = (rotate(t, jnp.arange(length, dtype=jnp.float32), theta) for t in (q, k))
    q = q.reshape(batch, length, kv, heads // kv, size)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k).astype(jnp.float32) / math.sqrt(size)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(scores, -1).astype(x.dtype), v)
    x = x + linear("self_attn.o_proj", mixed.reshape(batch, length, hidden))
    y = norm(x, base["post_attention_layernorm.weight"], eps)
    return x + linear("mlp.down_proj", jax.nn.silu(linear("mlp.gate_proj", y)) * linear("mlp.up_proj", y))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--kind", choices=["lora"], default="lora")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--steps", type=int, default=6, help="timed steps, after two others")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--reply", type=int)
    parser.add_argument("--remat", action="store_true")
    options = parser.parse_args()
    config = json.loads((options.folder / "config.json").read_text())
    layers = config["num_hidden_layers"]
    outside, stacked = weights_of(options.folder, layers, getattr(jnp, options.dtype))
    draw = np.random.default_rng(1)
    lora = {}
    for name in LINEAR:
        _, out, inner = stacked[f"{name}.weight"].shape
        a = draw.uniform(-1, 1, (layers, options.rank, inner)).astype(np.float32) / math.sqrt(inner)
        lora[name] = (jnp.asarray(a), jnp.zeros((layers, out, options.rank), jnp.float32))

    def loss_of(lora, outside, stacked, ids):
        x = outside["model.embed_tokens.weight"][ids]
        body = lambda x, one: (layer(x, one[0], one[1], config, 2.0), None)  # noqa: E731
        x, _ = jax.lax.scan(jax.checkpoint(body) if options.remat else body, x, (stacked, lora))
        x = norm(x, outside["model.norm.weight"], config["rms_norm_eps"])
        head = outside.get("lm_head.weight", outside["model.embed_tokens.weight"])
        logits = (x[:, :-1] @ head.T).astype(jnp.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1)
        return -picked.mean()

    @jax.jit
    def step(lora, first, second, count, outside, stacked, ids):
        loss, grads = jax.value_and_grad(loss_of)(lora, outside, stacked, ids)
        size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(1, size), grads)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        lora = jax.tree.map(
            lambda w, m, v: w - 1e-4 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8),
            lora, first, second,
        )  # fmt: skip
        return lora, first, second, loss

    rows = [json.loads(line)["input_ids"] for line in options.rows.read_text().splitlines()]
    first = second = jax.tree.map(jnp.zeros_like, lora)
    seconds, losses = [], []
    for number in range(2 + options.steps):
        ids = jnp.asarray([rows[(number * options.batch + i) % len(rows)] for i in range(options.batch)])
        start = time.perf_counter()
        lora, first, second, loss = step(lora, first, second, number + 1.0, outside, stacked, ids)
        losses.append(round(float(loss), 4))
        seconds.append(time.perf_counter() - start)
    print(json.dumps(dict(speed=ids.size / statistics.median(seconds[2:]), losses=losses)))


if __name__ == "__main__":
    main()
