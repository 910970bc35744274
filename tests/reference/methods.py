"""Records 20 steps by Transformers + PEFT: each variant of LoRA, freeze-tuning and low precision, on the llama model,
or on the model that the record names as `family`.

usage: methods.py [METHOD ...]      (updates methods.json and models/*/variants/; README.md has the format)
"""

import json
import re
import sys

import peft
import torch

import families
import loop
import more_families
import record

FAMILY = "llama"
FOLDER = families.MODELS / FAMILY
FILE = families.HERE / "methods.json"
RATIO = 16.0
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def train(model, settings=loop.LORA, **options):
    out = loop.train(model, families.load_rows(), settings, **options)
    return dict(loss=out["loss"], grad_norm=out["grad_norm"])


def final_adapter(model):
    state = peft.get_peft_model_state_dict(model)
    text = [key for key in sorted(state) if not any(part in key for part in more_families.TOWER)]
    return {key: record.summary(key, state[key]) for key in text}


def started(name, family=FAMILY, **options):
    """Writes a PEFT folder with a new adapter to variants/ and loads it for training."""
    folder = families.MODELS / family / "variants" / name
    record.save_adapter(record.make_adapter(families.load_model(family), family, **options), folder)
    return record.load_adapter(family, folder, trainable=True)


def adapter(name, family=FAMILY, keep=False, **options):
    model = started(name, family, **options)
    settings = loop.settings_of(family, loop.LORA)
    out = train(model, settings)
    if keep:
        record.save_adapter(model, families.MODELS / family / "variants" / f"{name}_final")
    batch = {key: settings[key] for key in settings if settings[key] != loop.LORA[key]}
    return dict(start=f"variants/{name}", recipe=batch) | out | dict(final=final_adapter(model))


def all_linear(family, **options):
    return adapter("all_linear", family, keep=True, target_modules="all-linear", **options) | dict(family=family)


def lora_plus():
    """Trains with the parameter groups of peft.optimizers.create_loraplus_optimizer and the recipe's weight decay."""
    model = record.load_adapter(FAMILY, FOLDER / "adapter_init", trainable=True)
    fast = {id(p) for name, p in model.named_parameters() if "lora_B" in name}

    def optimizer(groups, lr, betas, eps):
        split = [
            dict(params=part, weight_decay=group["weight_decay"], lr=rate)
            for group in groups
            for rate, part in (
                (lr, [p for p in group["params"] if id(p) not in fast]),
                (lr * RATIO, [p for p in group["params"] if id(p) in fast]),
            )
            if part
        ]
        return torch.optim.AdamW(split, lr=lr, betas=betas, eps=eps)

    settings = loop.LORA | dict(learning_rate=5e-4)
    out = train(model, settings, optimizer=optimizer)
    recipe = dict(loraplus_lr_ratio=RATIO)
    return dict(start="adapter_init", recipe=recipe, learning_rate=5e-4) | out | dict(final=final_adapter(model))


def pissa():
    """Trains exact PiSSA. Records the change of each base weight, for which PEFT saves an adapter of rank 2 r."""
    base = families.load_model(FAMILY)
    model = record.make_adapter(base, FAMILY, init_lora_weights="pissa")
    out = train(model)
    changes = {}
    weights = {name: p for name, p in families.load_model(FAMILY).named_parameters()}
    for name, module in model.base_model.model.named_modules():
        if hasattr(module, "lora_A"):
            change = module.get_delta_weight("default") + module.base_layer.weight - weights[f"{name}.weight"]
            changes[f"{name}.weight"] = record.summary(name, change)
    return dict(recipe=dict(pissa_init=True, pissa_iter=-1, lora_rank=4, lora_alpha=8)) | out | dict(changes=changes)


def two_adapters():
    """Merges adapter_final into the base and trains adapter_init on the merged base."""
    base = record.load_adapter(FAMILY, FOLDER / "adapter_final").merge_and_unload()
    model = peft.PeftModel.from_pretrained(base, FOLDER / "adapter_init", is_trainable=True)
    out = train(model)
    return dict(start=["adapter_final", "adapter_init"], recipe={}) | out | dict(final=final_adapter(model))


def freeze(recipe, trained):
    """Does LLaMA-Factory's freeze-tuning: only parameters whose names contain an entry of `trained` are trained."""
    model = families.load_model(FAMILY)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in trained))
    out = train(model, loop.FULL)
    final = {name: record.summary(name, p) for name, p in model.named_parameters() if p.requires_grad}
    return dict(recipe=dict(finetuning_type="freeze") | recipe) | out | dict(final=final)


def full(family=FAMILY, optimizer=loop.adamw, **recipe):
    """Does full tuning with the recipe's keys. `optimizer` gets the groups of loop.train."""
    model = families.load_model(family)
    if recipe.get("output_router_logits"):
        config = model.config.get_text_config()
        config.output_router_logits = True
        config.router_aux_loss_coef = model.router_aux_loss_coef = recipe["moe_aux_loss_coef"]
    out = train(model, loop.FULL | {key: recipe[key] for key in recipe if key in loop.FULL}, optimizer=optimizer)
    final = {name: record.summary(name, p) for name, p in families.stored_tensors(model)}
    return dict(family=family, recipe=dict(finetuning_type="full") | recipe) | out | dict(final=final)


def balanced(family):
    """Does full tuning with the loss that balances the experts. Transformers adds the loss of each micro-batch, Fettle
    their mean, so each step has one micro-batch."""
    at_once = dict(per_device_train_batch_size=4, gradient_accumulation_steps=1)
    out = full(family, output_router_logits=True, moe_aux_loss_coef=0.05, **at_once)
    # The test reads no tensors of single experts.
    final = {name: value for name, value in out["final"].items() if not re.search(r"\.experts\.\d", name)}
    return out | dict(final=final)


def slow_embeddings(rate):
    """Returns an AdamW with another learning rate for the token embedding and the head, which have a row per token."""

    def optimizer(groups, lr, betas, eps):
        tables = lambda p: p.dim() == 2 and p.shape[0] == families.COMMON["vocab_size"]
        split = [
            dict(params=[p for p in group["params"] if tables(p) == slow], weight_decay=group["weight_decay"], lr=each)
            for group in groups
            for slow, each in ((False, lr), (True, rate))
        ]
        return torch.optim.AdamW([group for group in split if group["params"]], lr=lr, betas=betas, eps=eps)

    return optimizer


class Bfloat16AdamW(torch.optim.Optimizer):
    """AdamW on bfloat16 weights. State and arithmetic are float32, and each new weight is rounded to bfloat16."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, dict(lr=lr))
        self.betas, self.eps, self.steps = betas, eps, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p, dtype=torch.float32), torch.zeros_like(p, dtype=torch.float32)
                gradient = p.grad.float()
                state["m"].lerp_(gradient, 1 - self.betas[0])
                state["v"].lerp_(gradient * gradient, 1 - self.betas[1])
                m, v = state["m"] / (1 - self.betas[0] ** self.steps), state["v"] / (1 - self.betas[1] ** self.steps)
                p.copy_(p.float() * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * m / (v.sqrt() + self.eps))


def bfloat16_weights(lora):
    """Trains with bfloat16 weights without autocast, so the arithmetic is bfloat16, too. If `lora` is true, trains a
    bfloat16 adapter on a bfloat16 base. Otherwise, trains the whole model."""
    if not lora:
        model = families.load_model(FAMILY, torch.bfloat16)
        out = train(model, loop.FULL, optimizer=Bfloat16AdamW)
        final = {name: record.summary(name, p) for name, p in families.stored_tensors(model)}
        return dict(recipe=dict(finetuning_type="full", pure_bf16=True)) | out | dict(final=final)
    base = families.load_model(FAMILY, torch.bfloat16)
    model = peft.PeftModel.from_pretrained(base, FOLDER / "adapter_init", is_trainable=True, autocast_adapter_dtype=False)
    model.to(torch.bfloat16)
    out = train(model, optimizer=Bfloat16AdamW)
    recipe = dict(bf16=True, lora_dtype="bfloat16")
    return dict(start="adapter_init", recipe=recipe) | out | dict(final=final_adapter(model))


def low_precision(dtype, full):
    if full:
        return dict(recipe=dict(finetuning_type="full")) | train(families.load_model(FAMILY), loop.FULL, autocast=dtype)
    model = record.load_adapter(FAMILY, FOLDER / "adapter_init", dtype, trainable=True)
    return dict(start="adapter_init", recipe={}) | train(model, autocast=dtype)


METHODS = {
    "dora": lambda: adapter("dora", use_dora=True),
    "dora_gpt2": lambda: adapter("dora", "gpt2", use_dora=True) | dict(family="gpt2"),
    "saved": lambda: adapter("saved", modules_to_save=["lm_head", "model.norm"]),
    "layers": lambda: adapter("layers", target_modules=["q_proj", "down_proj"], layers_to_transform=[1]),
    "experts": lambda: adapter(
        "experts", "mixtral", keep=True, target_modules=["q_proj", "v_proj"], target_parameters=PARAMETERS
    )
    | dict(family="mixtral"),
    "experts_qwen3_moe": lambda: adapter(
        "experts", "qwen3_moe", target_modules=[], target_parameters=PARAMETERS, use_rslora=True
    )
    | dict(family="qwen3_moe"),
    "experts_down": lambda: adapter("experts_down", "mixtral", target_modules=[], target_parameters=PARAMETERS[1:])
    | dict(family="mixtral"),
    "experts_gpt_oss": lambda: adapter(
        "experts", "gpt_oss", keep=True, target_modules=["q_proj"], target_parameters=PARAMETERS
    )
    | dict(family="gpt_oss"),
    "experts_qwen3_5_moe": lambda: adapter(
        "experts", "qwen3_5_moe", keep=True, target_modules=["linear_attn.out_proj"],
        target_parameters=[*PARAMETERS, "mlp.gate.weight"],
    )
    | dict(family="qwen3_5_moe"),
    # These experts have no gate.
    "experts_nemotron_h_moe": lambda: adapter(
        "experts", "nemotron_h_moe", keep=True, target_modules=["q_proj"],
        target_parameters=["mixer.experts.up_proj", "mixer.experts.down_proj", "mixer.gate.weight"],
    )
    | dict(family="nemotron_h_moe"),
    "experts_lfm2_moe": lambda: adapter(
        "experts", "lfm2_moe", keep=True, target_modules=["q_proj"],
        target_parameters=["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj", "feed_forward.gate.weight"],
    )
    | dict(family="lfm2_moe"),
    "experts_llama4": lambda: adapter(
        "experts", "llama4", keep=True, target_modules=r"language_model\.model\.layers\.\d+\.self_attn\.q_proj",
        target_parameters=["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"],
    )
    | dict(family="llama4"),
    "experts_granite4": lambda: adapter(
        "experts", "granite4", keep=True, target_modules=["q_proj"],
        target_parameters=[
            "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj", "block_sparse_moe.router.weight",
        ],
    )
    | dict(family="granite4"),
    "experts_qwen2_moe": lambda: adapter(
        "experts", "qwen2_moe", keep=True, target_modules=["q_proj"], target_parameters=[*PARAMETERS, "mlp.gate.weight"]
    )
    | dict(family="qwen2_moe"),
    "experts_gemma4_moe": lambda: adapter(
        "experts", "gemma4_moe", keep=True,
        target_modules=r"model\.language_model\.layers\.\d+\.(self_attn\.q_proj|router\.proj)",
        target_parameters=["experts.gate_up_proj", "experts.down_proj"],
    )
    | dict(family="gemma4_moe"),
    "experts_granitemoe": lambda: adapter(
        "experts", "granitemoe", keep=True, target_modules=["q_proj"],
        target_parameters=[
            "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj", "block_sparse_moe.router.weight",
        ],
    )
    | dict(family="granitemoe"),
    # PEFT adapts the experts' gate and up with one pair of twice the rank, and it also adapts the router.
    "all_linear_glm4_moe": lambda: adapter(
        "all_linear", "glm4_moe", keep=True, target_modules="all-linear", use_rslora=True
    )
    | dict(family="glm4_moe"),
    "all_linear_deepseek_v2": lambda: all_linear("deepseek_v2"),
    "all_linear_deepseek_v3": lambda: all_linear("deepseek_v3"),
    "all_linear_glm4_moe_lite": lambda: all_linear("glm4_moe_lite"),
    "all_linear_qwen2_moe": lambda: all_linear("qwen2_moe"),
    "all_linear_qwen3_next": lambda: all_linear("qwen3_next"),
    "all_linear_minimax_m2": lambda: all_linear("minimax_m2"),
    "all_linear_ernie4_5_moe": lambda: all_linear("ernie4_5_moe"),
    "all_linear_gemma4_moe": lambda: all_linear("gemma4_moe"),
    "all_linear_gemma4_e2b": lambda: all_linear("gemma4_e2b"),
    "all_linear_gpt_oss": lambda: all_linear("gpt_oss"),
    "all_linear_qwen3_5_moe": lambda: all_linear("qwen3_5_moe"),
    "all_linear_qwen3_moe": lambda: all_linear("qwen3_moe"),
    "all_linear_mixtral": lambda: all_linear("mixtral"),
    # PEFT cannot compute Llama 4's router with LoRA weights, and refuses out_proj of Mamba2.
    "all_linear_llama4": lambda: all_linear("llama4", exclude_modules=r".*\.router"),
    "all_linear_granite4": lambda: all_linear("granite4"),
    "all_linear_nemotron_h_moe": lambda: all_linear("nemotron_h_moe", exclude_modules=r".*\.out_proj"),
    "all_linear_lfm2_moe": lambda: all_linear("lfm2_moe"),
    "lora_plus": lora_plus,
    "pissa": pissa,
    "two_adapters": two_adapters,
    "freeze_last": lambda: freeze(dict(freeze_trainable_layers=1), [".1."]),
    "freeze_first": lambda: freeze(
        dict(freeze_trainable_layers=-1, freeze_trainable_modules=["mlp", "input_layernorm"], freeze_extra_modules=["lm_head"]),
        [".0.mlp", ".0.input_layernorm", "lm_head"],
    ),
    "lora_fp16": lambda: low_precision(torch.float16, False),
    "full_fp16": lambda: low_precision(torch.float16, True),
    "full_bf16": lambda: low_precision(torch.bfloat16, True),
    "full_decay": lambda: full("gpt2", weight_decay=2.0),
    "embedding_lr": lambda: full(optimizer=slow_embeddings(5e-5), embedding_lr=5e-5, learning_rate=5e-4),
    "balanced_qwen2_moe": lambda: balanced("qwen2_moe"),
    "balanced_gpt_oss": lambda: balanced("gpt_oss"),
    "balanced_granite4": lambda: balanced("granite4"),
    "balanced_qwen3_5_moe": lambda: balanced("qwen3_5_moe"),
    "pure_bf16": lambda: bfloat16_weights(lora=False),
    "lora_dtype": lambda: bfloat16_weights(lora=True),
}


def main():
    torch.set_num_threads(1)
    out = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sys.argv[1:] or METHODS:
        out[name] = record.digits(METHODS[name]())
        print(f"{name}: {out[name]['loss'][0]:.4f} -> {out[name]['loss'][-1]:.4f}")
    families.write_json(FILE, {name: out[name] for name in METHODS if name in out})


if __name__ == "__main__":
    main()
