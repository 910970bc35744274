"""Tests that Transformers and PEFT load the classifiers that Fettle writes, and give the same results as Fettle on the
same texts.

All causal families for which Transformers has a classifier, BERT and RoBERTa are tested with a random head. BERT,
RoBERTa and Llama are also trained from models without a head for a few steps: in full and with an adapter, which is
also merged. The tokenizer is that of the reference models. It adds no special tokens, which does not matter, because
both programs get the same ids.

usage: classifiers_live.py FETTLE
"""

import json
import pathlib
import random
import shutil
import sys
import tempfile

import peft
import torch
import transformers

import families
import parity

transformers.logging.set_verbosity_error()
Auto = transformers.AutoModelForSequenceClassification
NAMES = ["blue", "green", "red"]
CAUSAL = [name for name in families.FAMILIES if not name.startswith("baichuan")]
READ = CAUSAL + ["bert", "roberta"]
TAUGHT = ["bert", "roberta", "llama"]
BOUND = 1e-5  # bound for the difference of two probabilities


def write_texts(folder, count):
    draw = random.Random(4)
    rows = []
    for _ in range(count):
        label = draw.choice(NAMES)
        rows.append(dict(text=" ".join(draw.choice("ab cd ef gh ij kl".split()) for _ in range(4)) + f" {label}", label=label))
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bare = folder / "texts.jsonl"
    bare.write_text("".join(json.dumps(dict(text=row["text"])) + "\n" for row in rows))
    return path, bare, rows


def add_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(families.MODELS / "llama" / name, folder / name)


def with_head(family, folder):
    """Writes the family's reference model with a random head for three labels."""
    torch.manual_seed(5)
    source = families.MODELS / ("llama_classifier" if family == "llama" else family)
    model = Auto.from_pretrained(source, num_labels=len(NAMES), dtype=torch.float32)
    if family in CAUSAL:
        with torch.no_grad():
            model.score.weight.copy_(0.3 * torch.randn_like(model.score.weight))
    model.config.pad_token_id = None if family in CAUSAL else model.config.pad_token_id
    model.save_pretrained(folder)
    add_tokenizer(folder)


def without_head(family, folder):
    """Writes the model as after pre-training: BERT as an encoder alone, RoBERTa as a masked language model."""
    auto = dict(bert=transformers.AutoModel, roberta=transformers.AutoModelForMaskedLM)
    auto.get(family, transformers.AutoModelForCausalLM).from_pretrained(families.MODELS / family).save_pretrained(folder)
    add_tokenizer(folder)


def difference(model, tokenizer, rows, predictions):
    """Returns the largest difference between the probabilities of `model` and those in predictions.jsonl."""
    largest = 0.0
    for row, line in zip(rows, predictions.read_text().splitlines()):
        ids = torch.tensor([tokenizer(row["text"])["input_ids"]])
        with torch.no_grad():
            wanted = sorted(model.eval()(input_ids=ids).logits[0].softmax(-1).tolist())
        found = sorted(json.loads(line)["probabilities"].values())
        largest = max([largest] + [abs(a - b) for a, b in zip(found, wanted)])
    return largest


def main():
    torch.set_num_threads(1)
    table = parity.Table()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        fettle = parity.Fettle(pathlib.Path(sys.argv[1]).resolve(), folder)
        path, texts_path, rows = write_texts(folder, 32)
        common = dict(stage="cls", plugin="cpu", data_cache="off")

        def predictions(name, **model):
            fettle.run("eval", f"eval-{name}", eval_dataset=[texts_path], output_dir=folder / f"said-{name}", **common, **model)
            return folder / f"said-{name}" / "predictions.jsonl"

        def compare(family, what, model, tokenizer, said):
            table.add(family, what, difference(model, tokenizer, rows, said), BOUND)

        for family in READ:
            source = folder / family
            with_head(family, source)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            compare(family, "probabilities", Auto.from_pretrained(source), tokenizer,
                    predictions(family, model_name_or_path=source))  # fmt: skip
        for family in TAUGHT:
            base = folder / f"{family}-base"
            without_head(family, base)
            tokenizer = transformers.AutoTokenizer.from_pretrained(base)
            out = {}
            for kind in ("full", "lora"):
                out[kind] = folder / f"{family}-{kind}"
                fettle.run("train", f"train-{family}-{kind}", model_name_or_path=base, finetuning_type=kind, dataset=[path],
                           output_dir=out[kind], max_steps=8, learning_rate=5e-3, save_strategy="no", cutoff_len=48,
                           **common)  # fmt: skip
            model, info = Auto.from_pretrained(out["full"], output_loading_info=True)
            strange = sum(len(names) for names in info.values())
            table.add(family, "weights that Transformers misses", strange + (model.config.label2id["red"] != 2), 0)
            compare(family, "full tuning in Transformers", model, tokenizer,
                    predictions(f"{family}-full", model_name_or_path=out["full"]))  # fmt: skip
            said = predictions(f"{family}-lora", model_name_or_path=base, adapter_name_or_path=[out["lora"]])
            bare = Auto.from_pretrained(base, num_labels=len(NAMES))
            compare(family, "adapter in PEFT", peft.PeftModel.from_pretrained(bare, out["lora"]), tokenizer, said)
            compare(family, "adapter in Transformers", Auto.from_pretrained(out["lora"], num_labels=len(NAMES)), tokenizer, said)
            merged = folder / f"{family}-merged"
            fettle.run("export", f"export-{family}", model_name_or_path=base, adapter_name_or_path=[out["lora"]],
                       export_dir=merged, plugin="cpu")  # fmt: skip
            model = Auto.from_pretrained(merged)
            table.add(family, "names lost in the merge", int(model.config.label2id.get("red") != 2), 0)
            compare(family, "merge in Transformers", model, tokenizer, said)
    sys.exit(table.failed > 0)


if __name__ == "__main__":
    main()
