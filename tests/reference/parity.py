"""Compares Fettle with Transformers + PEFT on the models of this folder. First, the reference is computed again and
compared with the recorded one. Then `fettle train`, `export` and `generate` run on the same models.

Prints the largest differences per family. The exit code is 1 if one exceeds its bound or a command fails.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import peft
import safetensors.torch
import torch
import transformers

import families
import loop
import record
import trainer

ROOT = families.HERE.parent.parent
NAN = float("nan")


class Table:
    """Prints differences with their bounds as they are added."""

    def __init__(self):
        self.failed = 0
        print(f"{'family':8} {'quantity':40} {'difference':>11} {'bound':>9}", flush=True)

    def add(self, family, quantity, difference, bound, note=""):
        good = difference <= bound  # false for NaN
        self.failed += not good
        print(f"{family:8} {quantity:40} {difference:11.1e} {bound:9.0e} {'' if good else ' FAIL'} {note}", flush=True)


def relative(found, wanted):
    """Returns the largest relative difference between two lists, or NaN if their lengths differ."""
    if len(found) != len(wanted):
        return NAN
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(found, wanted))


def tensor_difference(found, wanted):
    """Returns the largest |found - wanted| / |wanted| (norms) of two sets of tensors, or NaN if their names differ."""
    if set(found) != set(wanted):
        return NAN
    gap = lambda name: (found[name].float() - wanted[name].float()).norm() / wanted[name].float().norm()
    return max(float(gap(name)) for name in wanted)


class Fettle:
    """Runs the program on recipes in its own folder."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, command, name, **keys):
        recipe = self.folder / f"{name}.yaml"
        recipe.write_text(json.dumps(keys, default=str, indent=1))  # JSON is YAML
        done = subprocess.run([self.program, command, recipe], capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-6:]
            raise RuntimeError(f"fettle {command} {recipe} gave {done.returncode}:\n  " + "\n  ".join(last))
        return done.stdout

    def train(self, name, settings, **keys):
        """Trains in file order. Returns the output folder and the loss of each step."""
        output = self.folder / name
        common = dict(dataset=[families.ROWS], disable_shuffling=True, output_dir=output, overwrite_output_dir=True)
        common |= dict(logging_steps=1, save_strategy="no", plot_loss=False)
        self.run("train", f"train-{name}", **settings, **common, **keys)
        lines = [json.loads(line) for line in (output / "trainer_log.jsonl").read_text().splitlines()]
        return output, [line["loss"] for line in lines if "loss" in line]


def check_recorded(table, family, recorded, live):
    """Compares the values that this machine's Transformers + PEFT compute with the recorded values."""
    folder = families.MODELS / family
    arrays = safetensors.torch.load_file(folder / "logits.safetensors")
    for length in record.SEQUENCES:
        found = record.logits(live["base"], record.sequence(length))
        difference = float((found - arrays[f"logits_{length}"]).abs().max())
        table.add(family, f"recorded: logits of {length} tokens", difference, 2e-5)
    table.add(family, "recorded: LoRA losses", relative(live["lora"]["loss"], recorded["lora_losses"]["loss"]), 1e-5)
    table.add(family, "recorded: full losses", relative(live["full"]["loss"], recorded["full_losses"]["loss"]), 1e-5)
    wanted = safetensors.torch.load_file(folder / "adapter_final" / "adapter_model.safetensors")
    table.add(family, "recorded: final adapter", tensor_difference(live["adapter"], wanted), 1e-4)
    for entry in recorded["greedy"]:
        ids, _ = record.greedy(live["base"], entry["prompt"])
        table.add(family, "recorded: greedy ids that differ", sum(a != b for a, b in zip(ids, entry["base"]["ids"])), 0)


def compute_live(family):
    start = families.MODELS / family / "adapter_init"
    lora, tuned = record.train_lora(family, start, loop.LORA)
    full_model = families.load_model(family)
    full = loop.train(full_model, families.load_rows(), loop.settings_of(family, loop.FULL))
    return dict(
        base=families.load_model(family), lora=lora, tuned=tuned, adapter=peft.get_peft_model_state_dict(tuned),
        full=full, full_weights=compared_weights({name: p.detach() for name, p in full_model.named_parameters()}),
    )  # fmt: skip


def compared_weights(weights):
    """Returns `weights` without those that only rounding noise changes: key biases without rope (see README.md)."""
    d = families.COMMON["hidden_size"]
    less_keys = lambda bias: torch.cat([bias[:d], bias[d + (len(bias) - d) // 2 :]])
    return {name: less_keys(w) if name.endswith("attn.c_attn.bias") else w for name, w in weights.items()}


def check_lora(table, family, fettle, live):
    model = families.MODELS / family
    adapter = dict(model_name_or_path=model, adapter_name_or_path=[model / "adapter_init"], finetuning_type="lora")
    output, losses = fettle.train(f"{family}-lora", loop.LORA, **adapter)
    table.add(family, "LoRA losses, 20 steps", relative(losses, live["lora"]["loss"]), 1e-4)
    found = safetensors.torch.load_file(output / "adapter_model.safetensors")
    table.add(family, "final adapter", tensor_difference(found, live["adapter"]), 1e-3)
    loaded = record.load_adapter(family, output)
    wanted = record.logits(live["tuned"], record.sequence(40))
    logits = record.logits(loaded, record.sequence(40))
    table.add(family, "logits: Fettle's adapter in PEFT", float((logits - wanted).abs().max()), 1e-3)
    merged = fettle.folder / f"{family}-merged"
    fettle.run("export", f"export-{family}", model_name_or_path=model, adapter_name_or_path=[output], export_dir=merged)
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        merged, dtype=torch.float32, **families.config_of(family)
    ).eval()
    difference = float((record.logits(exported, record.sequence(40)) - logits).abs().max())
    table.add(family, "logits: Fettle's merge in Transformers", difference, 1e-4)


def check_full(table, family, fettle, live):
    output, losses = fettle.train(
        f"{family}-full", loop.FULL, model_name_or_path=families.MODELS / family, finetuning_type="full"
    )
    table.add(family, "full losses, 20 steps", relative(losses, live["full"]["loss"]), 1e-4)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        output, dtype=torch.float32, **families.config_of(family)
    )
    weights = compared_weights({name: p.detach() for name, p in model.named_parameters()})
    table.add(family, "final weights of full tuning", tensor_difference(weights, live["full_weights"]), 1e-3)


def check_greedy(table, family, fettle, recorded):
    model = families.MODELS / family
    for i, entry in enumerate(recorded["greedy"]):
        for kind, adapters in (("base", []), ("tuned", [model / "adapter_final"])):
            keys = dict(model_name_or_path=model, adapter_name_or_path=adapters, do_sample=False)
            keys |= dict(prompt=entry["text"], max_new_tokens=record.NEW_TOKENS)
            text = fettle.run("generate", f"generate-{family}-{kind}-{i}", **keys).rstrip("\n")
            wanted = entry[kind]["text"].rstrip("\n")
            note = "" if text.endswith(wanted) else f"got {text!r}, wanted {wanted!r}"
            table.add(family, f"greedy text of {kind}, prompt {i + 1}", float(bool(note)), 0, note)


def check_variants(table, family, fettle, recorded):
    """Tests bfloat16, rsLoRA, DoRA and a subset of the targets, if the family has records of them."""
    folder = families.MODELS / family
    keys = dict(model_name_or_path=folder, finetuning_type="lora")
    if "lora_losses_bf16" in recorded:
        start = [folder / "adapter_init"]
        _, losses = fettle.train(f"{family}-bf16", loop.LORA, **keys, adapter_name_or_path=start, bf16=True)
        table.add(family, "LoRA losses, bfloat16", relative(losses, recorded["lora_losses_bf16"]["loss"]), 3e-3)
    for name, wanted in recorded.get("variants", {}).items():
        method = dict(use_rslora=name == "rslora")
        start = [folder / "variants" / name]
        _, losses = fettle.train(f"{family}-{name}", loop.VARIANT, **keys, **method, adapter_name_or_path=start)
        table.add(family, f"LoRA losses, {name}", relative(losses, wanted["loss"]), 1e-4)


def check_family(table, family, program, folder):
    recorded = json.loads((families.MODELS / family / "reference.json").read_text())
    live = compute_live(family)
    check_recorded(table, family, recorded, live)
    for kind, losses in trainer.losses(family, folder).items():
        difference = relative(losses, recorded[f"{kind}_losses"]["loss"])
        table.add(family, f"recorded: {kind} losses, HF Trainer", difference, 1e-5)
    if not program:
        return
    fettle = Fettle(program, folder)
    for check, given in ((check_lora, live), (check_full, live), (check_greedy, recorded), (check_variants, recorded)):
        try:
            check(table, family, fettle, given)
        except (RuntimeError, OSError, KeyError, ValueError) as problem:
            table.add(family, check.__name__, NAN, 0, str(problem))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", choices=[[], *families.FAMILIES])
    parser.add_argument("--fettle", default=ROOT / "build" / "fettle", type=pathlib.Path, help="the program to check")
    parser.add_argument("--reference-only", action="store_true", help="only the recorded values, without the program")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for recipes and outputs (else a temporary one)")
    options = parser.parse_args()
    program = None if options.reference_only else options.fettle.resolve()
    if program and not os.access(program, os.X_OK):
        sys.exit(f"parity.py: no program at {program}; build it first: make build")
    torch.set_num_threads(1)
    table = Table()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for family in options.family or families.FAMILIES:
            check_family(table, family, program, folder.resolve())
    print(f"{table.failed} beyond their bounds" if table.failed else "all within their bounds")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
