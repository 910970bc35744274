"""Records the results of reference implementations of the update rules. README.md has the file format.

usage: optimizers.py [RECORD ...]
Writes the named records, or all, to optimizers.json. Other records stay. Needs bitsandbytes
(requirements-optimizers.txt).

Each rule has two records: the rule alone on made-up gradients, and full tuning of the llama model. Rules that depend on
rows and columns also have full tuning of models whose weights Fettle stores in another shape. The references are
torch.optim, transformers.Adafactor and bitsandbytes on the CPU, with embeddings in 32 bits as in the Trainer.
bitsandbytes' fast quantiser on the CPU is an approximation that never gives the map's small values. Its general
quantiser gives the nearest value, like its GPU kernels, and is used here.
"""

import json
import re
import sys

import bitsandbytes
import torch
import transformers

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
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, blocksize)  # not float32
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


def make(name, groups, lr, betas, eps, hidden=lambda p: p.ndim == 2):
    """Returns the reference optimizer of a record. `groups` have their own weight_decay."""
    if name == "adamw_torch":
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
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
}
# Learning rates with which full tuning is stable for each rule.
RATES = {"sgd": 0.1, "sgd_momentum": 0.02, "sgd_nesterov": 0.02, "lion_32bit": 1e-4, "lion_8bit": 1e-4, "adafactor_scaled": 5e-3}
# Rules that also have a record on models with fused modules.
FUSED = ("adafactor", "adafactor_scaled", "muon", "muon_original")


def record_rule(name):
    """Returns the norm and the first values of each weight after STEPS steps."""
    weights = {key: torch.nn.Parameter(numbers(shape, 1 + i)) for i, (key, shape) in enumerate(SHAPES.items())}
    groups = [
        dict(params=[w for w in weights.values() if w.ndim > 1], weight_decay=DECAY),
        dict(params=[w for w in weights.values() if w.ndim == 1], weight_decay=0.0),
    ]
    optimizer = make(name, groups, RATE, BETAS, EPSILON)
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
    factory = lambda groups, lr, betas, eps: make(name, groups, lr, betas, eps, lambda p: id(p) in hidden)
    out = loop.train(model, families.load_rows(), settings, optimizer=factory)
    manager.initialize()
    return dict(learning_rate=settings["learning_rate"], loss=out["loss"], grad_norm=out["grad_norm"])


def main():
    torch.set_num_threads(1)
    maps = {
        "signed": bitsandbytes.functional.create_dynamic_map(signed=True).tolist(),
        "unsigned": bitsandbytes.functional.create_dynamic_map(signed=False).tolist(),
    }
    out = dict(
        versions={m.__name__: m.__version__ for m in (torch, transformers, bitsandbytes)},
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
