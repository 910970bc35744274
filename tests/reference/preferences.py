"""Records 20 steps of the llama model with each preference loss, by TRL.

The losses of pairs with a reference model and KTO run in TRL's own trainers, which get the pairs as tokens. ORPO, SimPO, label
smoothing and the loss of the chosen reply run in a loop like loop.py, with the losses of TRL's ORPOTrainer and
CPOTrainer. In ORPO and SimPO, the log-probability of a reply is the mean over its tokens. Label smoothing and the loss
of the chosen reply belong to the sigmoid loss, in which it is the sum, and the initial model is the reference.

usage: preferences.py      (writes preferences.json; README.md has the format)
"""

import types

import torch
import trl
from datasets import Dataset
from transformers import AutoTokenizer, get_scheduler
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

import families
import loop
import record

FAMILY = "llama"
FOLDER = families.MODELS / FAMILY
LONGEST = 40
SETTINGS = loop.LORA
FULL = loop.FULL
KTO_MICRO = 4
PAIR_LOSSES = ["nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "sigmoid_norm"]
SMOOTHED_LOSSES = ["robust", "exo_pair"]


def pairs():
    """Returns the pairs. Pair i is row 2i with its own reply and with the reply of row 2i + 1, cut to LONGEST."""
    rows = families.load_rows()
    out = []
    for mine, other in zip(rows[0::2], rows[1::2]):
        cut = lambda row: next(i for i, label in enumerate(row["labels"]) if label != -100)
        prompt, chosen = mine["input_ids"][: cut(mine)], mine["input_ids"][cut(mine) :]
        rejected = other["input_ids"][cut(other) :]
        room = LONGEST - len(prompt)
        out.append(dict(prompt_ids=prompt, chosen_ids=chosen[:room], rejected_ids=rejected[:room]))
    return out


def rated():
    """Goes over the pairs twice. Returns each prompt with the chosen reply (good) or the rejected reply (bad): good,
    bad, good, good, and so on. Each row also has the reply of the next row in its step; the last row of a step has the
    reply of the first."""
    rows = []
    for i, pair in enumerate(pairs() * 2):
        good = i % 4 != 1
        rows.append(dict(prompt_ids=pair["prompt_ids"], label=good,
                         completion_ids=pair["chosen_ids" if good else "rejected_ids"]))  # fmt: skip
    for first in range(0, len(rows), KTO_MICRO):
        for i in range(KTO_MICRO):
            row, after = rows[first + i], rows[first + (i + 1) % KTO_MICRO]
            row["KL_completion_ids"] = after["completion_ids"][: LONGEST - len(row["prompt_ids"])]
    return rows


def started(folder):
    if folder is None:
        return families.load_model(FAMILY)
    return record.load_adapter(FAMILY, FOLDER / folder, trainable=True)


def trained_by_trl(trainer, config, rows, folder, settings, micro, accumulation, **options):
    """Runs TRL's trainer over `rows` in the given order."""

    class InOrder(trainer):
        def _prepare_dataset(self, dataset, *args, **kwargs):
            return dataset

        def _get_train_sampler(self, *args, **kwargs):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    args = config(
        output_dir="/tmp/preferences", report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
        logging_steps=1, save_strategy="no", max_length=None, disable_tqdm=True,
        max_steps=settings["max_steps"], per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation,
        learning_rate=settings["learning_rate"], lr_scheduler_type=settings["lr_scheduler_type"],
        warmup_steps=settings["warmup_steps"], weight_decay=settings["weight_decay"],
        max_grad_norm=settings["max_grad_norm"], **options,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    tokenizer.pad_token = tokenizer.eos_token
    run = InOrder(model=started(folder), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    run.train()
    logs = [entry for entry in run.state.log_history if "loss" in entry]
    wanted = ["loss", "grad_norm", "kl"] + [key for key in logs[0] if key.startswith(("rewards/", "logps/"))]
    return {key: [entry[key] for entry in logs] for key in wanted if key in logs[0]}


def logps(model, batch):
    """Returns the sum of the log-probabilities of each reply's tokens, and the number of these tokens."""
    scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].log_softmax(-1)
    labels = batch["labels"][:, 1:]
    mask = labels != -100
    return (scores.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * mask).sum(-1), mask.sum(-1)


def trained_by_loss(loss_of, folder="adapter_init"):
    """Runs a loop like that in loop.py. `loss_of` gets the model, the initial model, and a batch with the chosen rows
    first and then the rejected ones."""
    model, start = started(folder), families.load_model(FAMILY)
    rows, settings = pairs(), SETTINGS
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings["learning_rate"], weight_decay=settings["weight_decay"])
    schedule = get_scheduler(settings["lr_scheduler_type"], optimizer, settings["warmup_steps"], settings["max_steps"])
    out = dict(loss=[], grad_norm=[])
    for step in range(settings["max_steps"]):
        two = rows[2 * step : 2 * step + 2]
        example = lambda pair, side: dict(
            input_ids=pair["prompt_ids"] + pair[side], labels=[-100] * len(pair["prompt_ids"]) + pair[side]
        )
        batch = loop.collate([example(pair, side) for side in ("chosen_ids", "rejected_ids") for pair in two])
        loss = loss_of(model, start, batch)
        loss.backward()
        out["loss"].append(float(loss))
        out["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_(parameters, settings["max_grad_norm"])))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return out


def orpo(beta):
    trainer = types.SimpleNamespace(beta=beta, accelerator=types.SimpleNamespace(device="cpu"))

    def loss(model, start, batch):
        sums, counts = logps(model, batch)
        chosen, rejected = (sums / counts).chunk(2)
        return -chosen.mean() - ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)[0].mean()

    return loss


def contrastive(beta, kind, gamma=0.0, smoothing=0.0, own=0.0):
    trainer = types.SimpleNamespace(beta=beta, alpha=0.0, loss_type=kind, simpo_gamma=gamma, label_smoothing=smoothing,
                                    accelerator=types.SimpleNamespace(device="cpu"))  # fmt: skip

    def loss(model, start, batch):
        sums, counts = logps(model, batch)
        if kind == "simpo":
            scores = sums / counts
        else:
            with torch.no_grad():
                before, _ = logps(start, batch)
            scores = sums - before
        losses = CPOTrainer.cpo_loss(trainer, *scores.chunk(2))[0]
        return losses.mean() - own * (sums / counts).chunk(2)[0].mean()

    return loss


def main():
    torch.set_num_threads(1)
    dpo = lambda folder, settings=SETTINGS, **options: trained_by_trl(
        trl.DPOTrainer, trl.DPOConfig, pairs(), folder, settings, 1, 2, **options
    )
    kto = trained_by_trl(trl.KTOTrainer, trl.KTOConfig, rated(), "adapter_init", SETTINGS, KTO_MICRO, 1, beta=0.5,
                         desirable_weight=1.0, undesirable_weight=1.5)  # fmt: skip
    out = dict(
        versions=dict(torch=torch.__version__, trl=trl.__version__),
        sigmoid=dict(start="adapter_init", recipe=dict(pref_beta=0.5)) | dpo("adapter_init", beta=0.5),
        sigmoid_again=dict(start="adapter_final", recipe=dict(pref_beta=0.5)) | dpo("adapter_final", beta=0.5),
        sigmoid_full=dict(recipe=dict(pref_beta=0.5, finetuning_type="full"), learning_rate=FULL["learning_rate"])
        | dpo(None, FULL, beta=0.5),
        hinge=dict(start="adapter_init", recipe=dict(pref_loss="hinge", pref_beta=0.2))
        | dpo("adapter_init", beta=0.2, loss_type=["hinge"]),
        ipo=dict(start="adapter_init", recipe=dict(pref_loss="ipo", pref_beta=0.5))
        | dpo("adapter_init", beta=0.5, loss_type=["ipo"]),
        **{name: dict(start="adapter_init", recipe=dict(pref_loss=name, pref_beta=0.5))
           | dpo("adapter_init", beta=0.5, loss_type=[name]) for name in PAIR_LOSSES},
        # The slope of this loss changes fast around 0. With a larger beta, differences of rounding grow with each step.
        discopop=dict(start="adapter_init", recipe=dict(pref_loss="discopop", pref_beta=0.1))
        | dpo("adapter_init", beta=0.1, loss_type=["discopop"]),
        **{name: dict(start="adapter_init", recipe=dict(pref_loss=name, pref_beta=0.5, dpo_label_smoothing=0.1))
           | dpo("adapter_init", beta=0.5, loss_type=[name], label_smoothing=0.1) for name in SMOOTHED_LOSSES},
        smoothed=dict(start="adapter_init", recipe=dict(pref_beta=0.5, dpo_label_smoothing=0.2))
        | trained_by_loss(contrastive(0.5, "sigmoid", smoothing=0.2)),
        own=dict(start="adapter_init", recipe=dict(pref_beta=0.5, pref_ftx=0.3))
        | trained_by_loss(contrastive(0.5, "sigmoid", own=0.3)),
        orpo=dict(start="adapter_init", recipe=dict(pref_loss="orpo", pref_beta=0.3)) | trained_by_loss(orpo(0.3)),
        simpo=dict(start="adapter_init", recipe=dict(pref_loss="simpo", pref_beta=2.0, simpo_gamma=0.4))
        | trained_by_loss(contrastive(2.0, "simpo", gamma=0.4)),
        kto=dict(start="adapter_init", recipe=dict(stage="kto", pref_beta=0.5, kto_rejected_weight=1.5)) | kto,
    )
    families.write_json(families.HERE / "preferences.json", record.digits(out))


if __name__ == "__main__":
    main()
