"""Records the values of Transformers + PEFT that the parity tests compare with. README.md has the file formats.

usage: record.py [FAMILY ...] [--schedules]      (no argument: everything)
"""

import argparse
import json
import random
import shutil
import warnings

import peft
import safetensors.torch
import torch
import transformers

import families
import loop
import more_families
import schedules

warnings.filterwarnings("ignore", category=FutureWarning)

SEQUENCES = {17: 21, 40: 22}  # length -> seed
NEW_TOKENS = 24
MARGIN = 0.02  # if two logits are closer than this, correct programs could choose differently
VARIANTS = {
    "rslora": dict(use_rslora=True),
    "qv": dict(target_modules=["q_proj", "v_proj"]),
    "dora": dict(use_dora=True),
}


def sequence(length):
    draw = random.Random(SEQUENCES[length])
    return [draw.randrange(families.BOS) for _ in range(length)]


def digits(value):
    """Returns `value` with every float rounded to 9 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: digits(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [digits(each) for each in value]
    return value


def make_adapter(model, family, **options):
    """Returns `model` with new LoRA weights (rank 4, alpha 8) on all linear layers of its blocks: A random, B 0."""
    torch.manual_seed(77)
    keys = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    keys |= dict(fan_in_fan_out=family == "gpt2")
    if family in (*families.OF_EXPERTS, *more_families.TARGETS):  # PEFT's all-linear adds LoRA weights to the experts, too
        keys |= dict(target_modules=more_families.TARGETS.get(family, ["q_proj", "k_proj", "v_proj", "o_proj"]))
    elif family in more_families.WRAPPED:  # the tower's layers have the same names
        keys |= dict(target_modules=r"model\.language_model\.layers\.\d+\.(self_attn|linear_attn|mlp)\.\w+_proj\w*")
    return peft.get_peft_model(model, peft.LoraConfig(**keys | options))


def save_adapter(model, folder):
    """Writes a PEFT folder without the fields that differ between two runs of this script."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "adapter_model.safetensors").chmod(0o644)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = None
    if isinstance(config["target_modules"], list):
        config["target_modules"] = sorted(config["target_modules"])
    families.write_json(path, dict(sorted(config.items())))


def load_adapter(family, folder, dtype=torch.float32, trainable=False):
    base = families.load_model(family, dtype)
    return peft.PeftModel.from_pretrained(base, folder, is_trainable=trainable)


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().contiguous()


def greedy(model, prompt):
    """Returns the greedy continuation of `prompt` and the smallest gap between the best and the second logit."""
    ids, margin = list(prompt), float("inf")
    for _ in range(NEW_TOKENS):
        best = logits(model, ids)[-1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :], margin


def pick_prompts(tokenizer, models):
    """Returns two prompts for which the greedy continuation of each of `models` is unambiguous and has no end token."""
    words = [text for text in tokenizer.get_vocab() if text.isascii() and text.isalpha() and len(text) == 2]
    draw, found = random.Random(3), []
    while len(found) < 2:
        text = " ".join("".join(draw.sample(sorted(words), 2)) for _ in range(3 + 2 * len(found)))
        prompt = tokenizer(text)["input_ids"]
        runs = {name: greedy(model, prompt) for name, model in models.items()}
        if all(margin > MARGIN and max(ids) < families.BOS for ids, margin in runs.values()):
            entry = dict(text=text, prompt=prompt)
            for name, (ids, margin) in runs.items():
                entry[name] = dict(ids=ids, text=tokenizer.decode(ids), margin=margin)
            found.append(entry)
    return found


def summary(name, tensor, family=""):
    """Returns shape, norm and first values of a weight. Leaves out key biases without rope, which are noise."""
    flat = tensor.detach().float().flatten()
    if name.endswith("query_key_value.bias") or (name.endswith("k_proj.bias") and "glm" in family):
        flat = flat[:16]  # glm: the rotated dims of the first head; gpt_neox: the query part of the first head
    if name.endswith("k_layernorm.bias") or (name.endswith("k_proj.bias") and family == "phi"):
        flat = flat[:8]  # phi: the rotated dims of the first head
    if name.endswith("attn.c_attn.bias"):
        flat = flat[: families.COMMON["hidden_size"]]
    return dict(shape=list(tensor.shape), count=len(flat), norm=float(flat.norm()), first=flat[:8].tolist())


def train_lora(family, folder, settings, bf16=False):
    """Trains the adapter in `folder`. With bf16, the base is bfloat16 and the adapter float32, under autocast."""
    model = load_adapter(family, folder, torch.bfloat16 if bf16 else torch.float32, trainable=True)
    autocast = torch.bfloat16 if bf16 else None
    return loop.train(model, families.load_rows(), loop.settings_of(family, settings), autocast=autocast), model


def train_full(family):
    model = families.load_model(family)
    record = loop.train(model, families.load_rows(), loop.settings_of(family, loop.FULL))
    return record, {name: summary(name, p, family) for name, p in families.stored_tensors(model)}


def record_variants(family, folder):
    out = {}
    for name, options in VARIANTS.items():
        start = folder / "variants" / name
        save_adapter(make_adapter(families.load_model(family), family, **options), start)
        record, model = train_lora(family, start, loop.VARIANT)
        state = peft.get_peft_model_state_dict(model)
        out[name] = record | dict(final={key: summary(key, state[key]) for key in sorted(state)})
    return out


def record_family(family):
    families.write_model(family)
    folder = families.MODELS / family
    start, end = folder / "adapter_init", folder / "adapter_final"
    save_adapter(make_adapter(families.load_model(family), family), start)
    lora_losses, tuned = train_lora(family, start, loop.LORA)
    save_adapter(tuned, end)
    full_losses, full_final = train_full(family)
    base = families.load_model(family)
    tuned = load_adapter(family, end)
    arrays = {f"logits_{length}": logits(base, sequence(length)) for length in SEQUENCES}
    arrays["lora_logits_17"] = logits(tuned, sequence(17))
    safetensors.torch.save_file(arrays, folder / "logits.safetensors")
    (folder / "logits.safetensors").chmod(0o644)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = dict(
        family=family,
        versions=dict(torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__),
        sequences={str(length): sequence(length) for length in SEQUENCES},
        settings=dict(lora=loop.LORA, full=loop.FULL, variants=loop.VARIANT),
        lora_losses=lora_losses,
        full_losses=full_losses,
        full_final=full_final,
        greedy=pick_prompts(tokenizer, dict(base=base, tuned=tuned)),
    )
    if family == "llama":
        out["lora_losses_bf16"], _ = train_lora(family, start, loop.LORA, bf16=True)
        out["variants"] = record_variants(family, folder)
    families.write_json(folder / "reference.json", digits(out))
    print(f"{family}: lora {lora_losses['loss'][0]:.4f} -> {lora_losses['loss'][-1]:.4f}, "
          f"full {full_losses['loss'][0]:.4f} -> {full_losses['loss'][-1]:.4f}, "
          f"gradient norms {min(lora_losses['grad_norm']):.3f}..{max(lora_losses['grad_norm']):.3f}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", choices=[[], *families.FAMILIES])
    parser.add_argument("--schedules", action="store_true", help="only schedules.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.schedules or not options.family:
        families.write_json(families.HERE / "schedules.json", digits(schedules.tabulate()))
    if options.schedules:
        return
    families.MODELS.mkdir(exist_ok=True)
    families.write_rows()
    for family in options.family or families.FAMILIES:
        record_family(family)


if __name__ == "__main__":
    main()
