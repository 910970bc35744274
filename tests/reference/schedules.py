"""Tabulates the learning-rate multipliers of Transformers' schedules, step by step."""

import torch
import transformers

STEPS = 50
SCHEDULES = {
    "linear": {},
    "cosine": {},
    "constant": {},
    "constant_with_warmup": {},
    "cosine_with_restarts": dict(num_cycles=3),
    "polynomial": dict(lr_end=0.1, power=2.0),
    "inverse_sqrt": {},
    "cosine_with_min_lr": dict(min_lr_rate=0.1),
    "warmup_stable_decay": dict(num_decay_steps=10),
}
LATER = [
    ("warmup_stable_decay", 7, dict(num_stable_steps=20, num_decay_steps=10, min_lr_ratio=0.1)),
    ("warmup_stable_decay", 7, dict(num_decay_steps=46)),
]


def multipliers(name, warmup, options, rate=1.0):
    """Returns the factors on the learning rate `rate` at steps 0, 1, ... 49."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    schedule = transformers.get_scheduler(name, optimizer, warmup, STEPS, scheduler_specific_kwargs=options)
    out = []
    for _ in range(STEPS):
        out.append(float(schedule.get_last_lr()[0]) / rate)
        optimizer.step()
        schedule.step()
    return out


def tabulate():
    rows = [
        dict(name=name, warmup_steps=warmup, options=options, multipliers=multipliers(name, warmup, options))
        for name, options in SCHEDULES.items()
        for warmup in (0, 7)
    ]
    rows += [
        dict(name=name, warmup_steps=warmup, options=options, multipliers=multipliers(name, warmup, options))
        for name, warmup, options in LATER
    ]
    return dict(steps=STEPS, schedules=rows, polynomial_by_default=multipliers("polynomial", 0, {}, 1e-6))
