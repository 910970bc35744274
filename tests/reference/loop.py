"""The training loop of the reference: what Hugging Face's Trainer does, on one page and in a fixed row order."""

import contextlib

import torch
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

import families

LORA = dict(
    max_steps=20, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=2e-3,
    lr_scheduler_type="cosine", warmup_steps=5, weight_decay=0.01, adam_beta1=0.9, adam_beta2=0.999,
    adam_epsilon=1e-8, max_grad_norm=0.5,
)  # fmt: skip
FULL = LORA | dict(learning_rate=5e-4)
VARIANT = LORA | dict(max_steps=10, warmup_steps=3)


def settings_of(family, settings):
    """Returns `settings`, changed for some families: micro-batches have one row (ROW_BY_ROW), or all rows of the step
    (AT_ONCE). The rows of each step stay the same."""
    rows = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    if family in families.AT_ONCE:
        return settings | dict(per_device_train_batch_size=rows, gradient_accumulation_steps=1)
    if family not in families.ROW_BY_ROW:
        return settings
    return settings | dict(per_device_train_batch_size=1, gradient_accumulation_steps=rows)


def collate(rows):
    """Returns input_ids, attention_mask and labels of `rows`, padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    pad = lambda values, fill: values + [fill] * (width - len(values))
    return dict(
        input_ids=torch.tensor([pad(row["input_ids"], 0) for row in rows]),
        attention_mask=torch.tensor([pad([1] * len(row["input_ids"]), 0) for row in rows]),
        labels=torch.tensor([pad(row["labels"], -100) for row in rows]),
    )


def decayed_names(model):
    """Returns the names of the weights that decay under the Trainer's rule: all except biases and norms.

    The Trainer finds norms by patterns for their names. No pattern fits Nemotron-H's last norm, so norm_f is added."""
    forbidden = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)", r"norm_f"]
    return set(get_parameter_names(model, [torch.nn.LayerNorm], forbidden))


def adamw(groups, lr, betas, eps):
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)


def train(model, rows, settings, autocast=None, optimizer=adamw):
    """Trains `model` in place. Returns for each step the loss, the gradient norm before clipping, the learning rate and
    the number of trained tokens.

    `autocast`: None, torch.bfloat16 or torch.float16 (with a loss scale)."""
    model.train()
    decayed = decayed_names(model)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        dict(params=[p for name, p in named if name in decayed], weight_decay=settings["weight_decay"]),
        dict(params=[p for name, p in named if name not in decayed], weight_decay=0.0),
    ]
    betas = (settings["adam_beta1"], settings["adam_beta2"])
    optimizer = optimizer(groups, lr=settings["learning_rate"], betas=betas, eps=settings["adam_epsilon"])
    schedule = get_scheduler(
        settings["lr_scheduler_type"], optimizer, settings["warmup_steps"], settings["max_steps"]
    )
    scaler = torch.amp.GradScaler("cpu", enabled=autocast == torch.float16)
    micro = settings["per_device_train_batch_size"]
    accumulation = settings["gradient_accumulation_steps"]
    record = dict(loss=[], grad_norm=[], learning_rate=[], trained_tokens=[])
    for step in range(settings["max_steps"]):
        first = step * micro * accumulation
        batches = [collate(rows[first + i * micro : first + (i + 1) * micro]) for i in range(accumulation)]
        trained = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            with torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext():
                loss = model(**batch, num_items_in_batch=trained).loss
            scaler.scale(loss).backward()
            total += float(loss.detach())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in named], settings["max_grad_norm"])
        record["loss"].append(total)
        record["grad_norm"].append(float(norm))
        record["learning_rate"].append(schedule.get_last_lr()[0])
        record["trained_tokens"].append(trained)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    if scaler.is_enabled() and scaler.get_scale() != 65536:
        raise ValueError("a step was skipped: the record would not be comparable")
    return record
