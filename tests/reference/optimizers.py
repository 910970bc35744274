"""Records the results of reference implementations of the update rules. README.md has the file format.

usage: optimizers.py [RECORD ...]
Writes the named records, or all, to optimizers.json. Other records stay. Needs bitsandbytes
(requirements-optimizers.txt).

Each rule has two records: the rule alone on made-up gradients, and full tuning of the llama model. Rules that depend on
rows and columns also have full tuning of models whose weights Fettle stores in another shape. The references are
torch.optim, transformers.Adafactor and bitsandbytes on the CPU, with embeddings in 32 bits as in the Trainer.
bitsandbytes' fast quantiser on the CPU is an approximation that never gives the map's small values. Its general
quantiser gives the nearest value, like its GPU kernels, and is used here. AdamW with 4-bit state is torchao's, run
without torch.compile. Adam-mini and APOLLO are their authors' packages. Here, APOLLO gets its random projections from
projection(), which has Fettle's formula, because Fettle cannot compute the numbers of torch's random generator.
"""

import importlib.metadata
import json
import re
import sys

import adam_mini
import apollo_torch
import bitsandbytes
import numpy
import torch
import torchao.optim
import transformers
from apollo_torch.random_projector import GradientProjector

import families
import loop
import record

manager = bitsandbytes.optim.GlobalOptimManager.get_instance()

STEPS = 20
RATE = 1e-2
DECAY = 0.1
BETAS, EPSILON = (0.9, 0.99), 1e-8
# The shapes of the weights. 8-bit state has blocks of 256 values. A block is part of a row in "wide" and several whole
# rows in "narrow". In "odd" it is neither, and the last block is shorter.
SHAPES = {"wide": (24, 512), "narrow": (160, 32), "odd": (70, 70), "small": (12, 20), "vector": (48,)}


def quantize_nearest(values, code, absmax_out, codes_out, blocksize):
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, blocksize)  # more exact than in float32
    codes_out.copy_(codes)
    absmax_out.copy_(absmax)


bitsandbytes.backends.cpu.ops._quant_blockwise_fp32_direct = quantize_nearest


def numbers(shape, seed):
    """Returns the same as random_value in tests/graph_run.h: a linear congruential sequence in [-1, 1)."""
    count, state, out = 1, (seed * 2654435761 + 1) % 2**32, []
    for size in shape:
        count *= size
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(-1 + 2 * (state >> 8) / 2**24)
    return torch.tensor(out, dtype=torch.float64).float().reshape(shape)


def gradient(shape, seed, step):
    """Returns a gradient whose size differs much between rows and whose sign changes every few steps."""
    rows = torch.arange(shape[0], dtype=torch.float64)
    scale = 10 ** -((rows * 7 % 5) / 2) * (1 if (step // 6) % 2 == 0 else -0.5)
    return (numbers(shape, seed + 100 * step).double() * scale.reshape(-1, *[1] * (len(shape) - 1))).float()


torch.compile = lambda function, **options: function  # otherwise torchao would compile each update

APOLLO = {
    "apollo": dict(rank=4, proj="random", proj_type="std", update_proj_gap=7, scale=32.0, scale_type="channel"),
    "apollo_tensor": dict(
        rank=1, proj="random", proj_type="std", update_proj_gap=200, scale=128.0, scale_type="tensor", scale_front=True
    ),
}  # fmt: skip


class MuonAndAdamW(torch.optim.Optimizer):
    """Updates matrices for which `hidden` is true with torch.optim.Muon, and other weights with torch.optim.AdamW."""

    def __init__(self, groups, hidden, lr, betas, eps, **options):
        split = [(g, [p for p in g["params"] if hidden(p)], [p for p in g["params"] if not hidden(p)]) for g in groups]
        pick = lambda which: [{**g, "params": parts[which]} for g, *parts in split if parts[which]]
        self.parts = [torch.optim.AdamW(pick(1), lr=lr, betas=betas, eps=eps)]
        if pick(0):
            self.parts.append(torch.optim.Muon(pick(0), lr=lr, **options))
        super().__init__([dict(params=[p for g in groups for p in g["params"]])], dict(lr=lr))

    def step(self, closure=None):
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.param_groups[0]["lr"]
            part.step()


def mix(x):
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def projection(key, interval, rank, size):
    """Returns APOLLO's projection [rank, size] of a weight with this key: normal numbers by Box and Muller."""
    key = (key + interval * 0x9E3779B9) & 0xFFFFFFFF

    def uniform(key):
        bits = mix((mix((numpy.arange(rank * size, dtype=numpy.uint64) + key) & 0xFFFFFFFF) + key) & 0xFFFFFFFF)
        return ((bits >> 8).astype(numpy.float32) + numpy.float32(0.5)) / numpy.float32(2**24)

    radius = numpy.sqrt(-2 * numpy.log(uniform(key)))
    normal = radius * numpy.cos(uniform(key ^ 0x5BD1E995) * numpy.float32(2 * numpy.pi))
    return torch.from_numpy(normal.astype(numpy.float32)).reshape(rank, size) / rank**0.5


class Projector(GradientProjector):
    def update_ortho_matrix(self, gradient, proj_type):
        size = gradient.shape[1 if proj_type == "right" else 0]
        matrix = projection(self.seed, self.svd_count, self.rank, size)
        self.ortho_matrix = matrix if proj_type == "right" else matrix.T
        self.svd_count += 1


class Apollo(apollo_torch.APOLLOAdamW):
    """APOLLO with Fettle's projections. `keys` maps id(parameter) to the key of the parameter's projection."""

    def __init__(self, groups, hidden, keys, lr, betas, eps, scale_front=False, **options):
        parts = [dict(g, params=[p for p in g["params"] if hidden(p)], **options) for g in groups]
        parts += [dict(g, params=[p for p in g["params"] if not hidden(p)]) for g in groups]
        super().__init__([g for g in parts if g["params"]], lr=lr, betas=betas, eps=eps, scale_front=scale_front)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["seed"] = keys[id(p)]

    def _initialize_projector(self, group, state):
        return Projector(group["rank"], update_proj_gap=group["update_proj_gap"], proj_type=group["proj_type"], seed=state["seed"])


def key_of(name, seed=42):
    """Returns the key of a parameter's random numbers. It is made from FNV-1a of the name and from the run's seed."""
    key = 2166136261
    for byte in re.sub(r"\.\d+\.", ".{}.", name).encode():
        key = (key ^ byte) * 16777619 & 0xFFFFFFFF
    return key ^ (seed * 0x9E3779B9 & 0xFFFFFFFF)


def mini(groups, names, lr, betas, eps):
    """Returns Adam-mini for the parameters of `groups`. `names` maps id(parameter) to the parameter's name. Each
    parameter keeps the weight_decay of its group."""
    config = families.COMMON
    pairs = [(names[id(p)], p) for g in groups for p in g["params"]]
    sizes = dict(dim=config["hidden_size"], n_heads=config["num_attention_heads"], n_kv_heads=config["num_key_value_heads"])
    out = adam_mini.Adam_mini(pairs, lr=lr, betas=betas, eps=eps, verbose=False, **sizes)
    decays = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    for group in out.param_groups:
        group["weight_decay"] = decays[id(group["params"][0])]
    return out


def make(name, groups, lr, betas, eps, names, hidden=lambda p: p.ndim == 2):
    """Returns the reference optimizer of a record. Each of `groups` has its own weight_decay. `names` maps
    id(parameter) to the parameter's name, or to its key for random numbers."""
    if name == "adam_mini":
        return mini(groups, names, lr, betas, eps)
    if name.startswith("apollo"):
        keys = {key: number if isinstance(number, int) else key_of(number) for key, number in names.items()}
        return Apollo(groups, hidden, keys, lr, betas, eps, **APOLLO[name])
    if name == "adamw_torch":
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
    if name in ("adamw_torch_4bit", "adamw_torch_4bit_128"):
        size = 128 if name.endswith("_128") else 256
        return torchao.optim.AdamW4bit(groups, lr=lr, betas=betas, eps=eps, block_size=size)
    if name == "adamw_8bit":
        return bitsandbytes.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, optim_bits=8)
    if name in ("lion_32bit", "lion_8bit"):
        return bitsandbytes.optim.Lion(groups, lr=lr, betas=betas, optim_bits=32 if "32" in name else 8)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr)
    if name == "sgd_momentum":
        return torch.optim.SGD(groups, lr=lr, momentum=0.9, dampening=0.3)
    if name == "sgd_nesterov":
        return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True)
    if name == "adafactor":
        return transformers.Adafactor(groups, lr=lr, scale_parameter=False, relative_step=False)
    if name == "adafactor_scaled":
        options = dict(scale_parameter=True, relative_step=False, beta1=0.9, clip_threshold=0.5)
        return transformers.Adafactor(groups, lr=lr, **options)
    if name == "adafactor_relative":
        return transformers.Adafactor(groups, scale_parameter=True, relative_step=True, warmup_init=True)
    if name in ("muon", "muon_original"):
        fn = "original" if name == "muon_original" else "match_rms_adamw"
        return MuonAndAdamW(groups, hidden, lr, betas, eps, adjust_lr_fn=fn)
    raise ValueError(name)


# Recipe keys of each record, in addition to the common ones.
RECIPES = {
    "adamw_torch": dict(optim="adamw_torch"),
    "adamw_8bit": dict(optim="adamw_8bit"),
    "adamw_torch_4bit": dict(optim="adamw_torch_4bit"),
    "adamw_torch_4bit_128": dict(optim="adamw_torch_4bit", optim_args=dict(block_size="128")),
    "lion_32bit": dict(optim="lion_32bit"),
    "lion_8bit": dict(optim="lion_8bit"),
    "sgd": dict(optim="sgd"),
    "sgd_momentum": dict(optim="sgd", optim_args=dict(momentum="0.9", dampening="0.3")),
    "sgd_nesterov": dict(optim="sgd", optim_args=dict(momentum="0.9", nesterov="true")),
    "adafactor": dict(optim="adafactor"),
    "adafactor_scaled": dict(
        optim="adafactor", optim_args=dict(scale_parameter="true", beta1="0.9", clip_threshold="0.5")
    ),
    "adafactor_relative": dict(
        optim="adafactor", optim_args=dict(scale_parameter="true", relative_step="true", warmup_init="true")
    ),
    "muon": dict(optim="muon"),
    "muon_original": dict(optim="muon", optim_args=dict(adjust_lr_fn="original")),
    "adam_mini": dict(optim="adam_mini"),
    "apollo": dict(
        optim="apollo_adamw", optim_args=dict(rank="4", update_proj_gap="7", scale="32", scale_type="channel")
    ),
    "apollo_tensor": dict(
        optim="apollo_adamw", optim_args=dict(rank="1", scale="128", scale_type="tensor", scale_front="true")
    ),
}
# Learning rates of full tuning, for rules that need another one than loop.FULL's.
RATES = {"sgd": 0.1, "sgd_momentum": 0.02, "sgd_nesterov": 0.02, "lion_32bit": 1e-4, "lion_8bit": 1e-4, "adafactor_scaled": 5e-3}
# Rules that also have a record on models with fused modules.
FUSED = ("adafactor", "adafactor_scaled", "muon", "muon_original", "apollo")


def record_rule(name):
    """Returns the norm and the first values of each weight after STEPS steps."""
    weights = {key: torch.nn.Parameter(numbers(shape, 1 + i)) for i, (key, shape) in enumerate(SHAPES.items())}
    groups = [
        dict(params=[w for w in weights.values() if w.ndim > 1], weight_decay=DECAY),
        dict(params=[w for w in weights.values() if w.ndim == 1], weight_decay=0.0),
    ]
    names = {id(w): f"mlp.{key}" if w.ndim > 1 else "norm" for key, w in weights.items()}
    if name.startswith("apollo"):
        names = {id(w): 1 + i for i, w in enumerate(weights.values())}
    optimizer = make(name, groups, RATE, BETAS, EPSILON, names)
    for step in range(1, STEPS + 1):
        for i, (key, shape) in enumerate(SHAPES.items()):
            weights[key].grad = gradient(shape, 1 + i, step)
        optimizer.step()
    return {key: record.summary(key, weight) for key, weight in weights.items()}


def keep_embeddings(model):
    """Keeps 32-bit state for embeddings, as Trainer does. A later `manager.initialize()` would undo it."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})


def record_full(name, family="llama"):
    """Returns the losses and norms of loop.FULL with this rule instead of AdamW."""
    model = families.load_model(family)
    layers = re.compile(r"\.(layers|h)\.\d+\.")
    hidden = {id(p) for key, p in model.named_parameters() if p.ndim == 2 and layers.search(key)}
    if "8bit" in name:
        keep_embeddings(model)
    settings = loop.FULL | dict(learning_rate=RATES.get(name, loop.FULL["learning_rate"]))
    settings = loop.settings_of(family, settings)
    factory = lambda groups, lr, betas, eps: make(name, groups, lr, betas, eps, names, lambda p: id(p) in hidden)
    names = {id(p): key for key, p in model.named_parameters()}
    out = loop.train(model, families.load_rows(), settings, optimizer=factory)
    manager.initialize()
    return dict(learning_rate=settings["learning_rate"], loss=out["loss"], grad_norm=out["grad_norm"])


def main():
    torch.set_num_threads(1)
    maps = {
        "signed": bitsandbytes.functional.create_dynamic_map(signed=True).tolist(),
        "unsigned": bitsandbytes.functional.create_dynamic_map(signed=False).tolist(),
        "signed_4bit": list(torchao.optim.subclass_4bit.get_qmap_signed()),
        "unsigned_4bit": list(torchao.optim.subclass_4bit.get_qmap_unsigned()),
    }
    out = dict(
        versions={m.__name__: m.__version__ for m in (torch, transformers, bitsandbytes)} | {name: importlib.metadata.version(name) for name in ("adam-mini", "apollo-torch", "torchao")},
        steps=STEPS, learning_rate=RATE, weight_decay=DECAY, betas=BETAS, epsilon=EPSILON, shapes=SHAPES, maps=maps,
        rules={},
    )  # fmt: skip
    path = families.HERE / "optimizers.json"
    earlier = json.loads(path.read_text())["rules"] if sys.argv[1:] else {}
    if unknown := set(sys.argv[1:]) - set(RECIPES):
        sys.exit(f"no record is called {', '.join(unknown)}; wanted names among {', '.join(RECIPES)}")
    for name, keys in RECIPES.items():
        if name in earlier and name not in sys.argv[1:]:
            out["rules"][name] = earlier[name]
            continue
        full = {} if name == "adafactor_relative" else dict(full=record_full(name))
        if name in FUSED:
            full["fused"] = {family: record_full(name, family) for family in ("gpt2", "phi3")}
        out["rules"][name] = dict(recipe=keys, weights=record_rule(name), **full)
        print(name, *(f"{out['rules'][name]['full']['loss'][i]:.4f}" for i in ((0, -1) if full else ())))
    families.write_json(path, record.digits(out))


if __name__ == "__main__":
    main()
