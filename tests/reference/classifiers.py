"""Builds tiny classifiers (BERT, RoBERTa, ModernBERT, Llama) and records what Transformers and PEFT compute with them.

Each has a head with three outputs, which mean one label, several labels or three numbers. `reward` has 20 steps of
TRL's RewardTrainer on the llama model of record.py.

usage: classifiers.py [NAME ...]

Writes models/NAME/ and the entry of NAME in classifiers.json. Without a name, writes all of them, and also
models/llama/reward_init/ and the entry `reward`, for which it needs TRL.
"""

import argparse
import json
import math

import peft
import torch
import transformers
from transformers import get_scheduler

import families
import loop
import record

LABELS = 3
ENCODER = dict(
    vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=LABELS,
)  # fmt: skip
PROBLEMS = ["single_label_classification", "multi_label_classification", "regression"]
NAMES = ["bert", "roberta", "llama_classifier", "modernbert", "modernbert_mean"]
LORA, FULL = loop.LORA, loop.FULL
ROWS = LORA["per_device_train_batch_size"] * LORA["gradient_accumulation_steps"]
SHOWN = 6  # number of rows whose logits are recorded


def make_config(name):
    if name == "bert":
        return transformers.BertConfig(**ENCODER, max_position_embeddings=64, pad_token_id=0)
    if name == "roberta":  # with another activation than BERT
        return transformers.RobertaConfig(
            **ENCODER, max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
            layer_norm_eps=1e-5, hidden_act="gelu_new",
        )  # fmt: skip
    if name.startswith("modernbert"):
        return modernbert(name)
    keys = families.COMMON | dict(pad_token_id=0, num_labels=LABELS)
    return transformers.LlamaConfig(**keys, rms_norm_eps=1e-5)


def modernbert(name):  # the rows are longer than the range that layers 1 and 2 see
    keys = dict(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=128, local_attention=12, pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1,
        sep_token_id=1, num_labels=LABELS,
    )  # fmt: skip
    if name == "modernbert_mean":  # with all biases, and other activations
        keys |= dict(
            classifier_pooling="mean", attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True,
            hidden_activation="gelu_new", classifier_activation="silu",
        )  # fmt: skip
    return transformers.ModernBertConfig(**keys)


def load(name, **options):
    return transformers.AutoModelForSequenceClassification.from_pretrained(
        families.MODELS / name, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def write_model(name):
    torch.manual_seed(2000 + NAMES.index(name))
    model = transformers.AutoModelForSequenceClassification.from_config(make_config(name), dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                value = 0.2 * noise + (0 if key.endswith("bias") else 1)
            elif "embed" in key:
                value = 0.5 * noise
            else:
                value = noise * (2.0 if key.startswith(("score", "classifier")) else 1.0) / math.sqrt(parameter.shape[-1])
            parameter.copy_(value.bfloat16().float())
    folder = families.MODELS / name
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)


def rows():
    """Returns rows made from rows.jsonl. Ids start at 2 (0 and 1 are padding), token types are 1 in the second half,
    and the ids determine the labels."""
    out = []
    for row in families.load_rows():
        ids = [max(i, 2) for i in row["input_ids"]]
        out.append(dict(
            input_ids=ids, token_types=[int(i >= len(ids) // 2) for i in range(len(ids))],
            single_label_classification=ids[1] % LABELS,
            multi_label_classification=[float(ids[0] % 2), float(ids[1] % 2), float(len(ids) % 2)],
            regression=[ids[0] / 254, ids[1] / 254 - 0.5, len(ids) / 40],
        ))  # fmt: skip
    return out


def collate(chosen, name, problem=None):
    pad = 1 if name == "roberta" else 0
    width = max(len(row["input_ids"]) for row in chosen)
    padded = lambda values, fill: values + [fill] * (width - len(values))
    batch = dict(
        input_ids=torch.tensor([padded(row["input_ids"], pad) for row in chosen]),
        attention_mask=torch.tensor([padded([1] * len(row["input_ids"]), 0) for row in chosen]),
    )
    if name == "bert":
        batch["token_type_ids"] = torch.tensor([padded(row["token_types"], 0) for row in chosen])
    if problem:
        batch["labels"] = torch.tensor([row[problem] for row in chosen])
    return batch


def logits(model, name):
    with torch.no_grad():
        return model(**collate(rows()[:SHOWN], name)).logits.tolist()


def train(model, name, problem, settings):
    model.train()
    model.config.problem_type = problem
    decayed = loop.decayed_names(model)
    named = [(key, p) for key, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [dict(params=[p for key, p in named if key in decayed], weight_decay=settings["weight_decay"]),
         dict(params=[p for key, p in named if key not in decayed], weight_decay=0.0)],
        lr=settings["learning_rate"],
    )  # fmt: skip
    schedule = get_scheduler(settings["lr_scheduler_type"], optimizer, settings["warmup_steps"], settings["max_steps"])
    out, all_rows = dict(loss=[], grad_norm=[]), rows()
    for step in range(settings["max_steps"]):
        loss = model(**collate(all_rows[step * ROWS : (step + 1) * ROWS], name, problem)).loss
        loss.backward()
        out["loss"].append(float(loss))
        out["grad_norm"].append(float(torch.nn.utils.clip_grad_norm_([p for _, p in named], settings["max_grad_norm"])))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    return out


def save_start(model, targets, folder, **options):
    """Writes a PEFT folder with new LoRA weights (B is zero) and the model's head."""
    torch.manual_seed(78)
    config = peft.LoraConfig(r=4, lora_alpha=8, task_type="SEQ_CLS", target_modules=targets, **options)
    record.save_adapter(peft.get_peft_model(model, config), folder)


def record_model(name):
    write_model(name)
    start = families.MODELS / name / "adapter_init"
    if name == "llama_classifier":
        save_start(load(name), ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], start)
    elif name.startswith("modernbert"):
        save_start(load(name), ["Wqkv", "Wo", "Wi"], start, modules_to_save=["head"])
    else:  # "dense" alone would also match the pooler and the head
        targets = ["query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense"]
        save_start(load(name), targets, start, **dict(modules_to_save=["pooler"]) if name == "bert" else {})
    out = dict(logits=logits(load(name), name), lora={}, full={})
    for problem in PROBLEMS:
        adapter = peft.PeftModel.from_pretrained(load(name), start, is_trainable=True)
        out["lora"][problem] = train(adapter, name, problem, LORA)
        out["full"][problem] = train(load(name), name, problem, FULL)
        print(name, problem, out["lora"][problem]["loss"][::19], out["full"][problem]["loss"][::19])
    return out


def record_reward():
    import trl
    from datasets import Dataset

    import preferences

    start = families.MODELS / "llama" / "reward_init"
    base = lambda: load("llama", num_labels=1)
    torch.manual_seed(79)
    save_start(base(), ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], start)
    pairs = [dict(chosen_ids=pair["prompt_ids"] + pair["chosen_ids"], rejected_ids=pair["prompt_ids"] + pair["rejected_ids"])
             for pair in preferences.pairs()]  # fmt: skip
    logs = []

    class Trainer(trl.RewardTrainer):
        def _prepare_dataset(self, dataset, *args, **kwargs):
            return dataset

        def _get_train_sampler(self, *args, **kwargs):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    args = trl.RewardConfig(
        output_dir="/tmp/rewards", report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
        logging_steps=1, save_strategy="no", max_length=None, disable_tqdm=True, max_steps=LORA["max_steps"],
        per_device_train_batch_size=1, gradient_accumulation_steps=2, learning_rate=LORA["learning_rate"],
        lr_scheduler_type=LORA["lr_scheduler_type"], warmup_steps=LORA["warmup_steps"],
        weight_decay=LORA["weight_decay"], max_grad_norm=LORA["max_grad_norm"],
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(families.MODELS / "llama")
    tokenizer.pad_token = tokenizer.eos_token
    model = peft.PeftModel.from_pretrained(base(), start, is_trainable=True)
    run = Trainer(model=model, args=args, train_dataset=Dataset.from_list(pairs), processing_class=tokenizer)
    run.train()
    logs = [entry for entry in run.state.log_history if "loss" in entry]
    print("reward", logs[0]["loss"], logs[-1]["loss"])
    return {key: [entry[key] for entry in logs] for key in ["loss", "grad_norm", "accuracy", "margin", "mean_reward"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", choices=[[], *NAMES])
    chosen = parser.parse_args().name
    torch.set_num_threads(1)
    path = families.HERE / "classifiers.json"
    if chosen:
        out = json.loads(path.read_text())
    else:
        import trl

        versions = dict(torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__, trl=trl.__version__)
        labels = {problem: [row[problem] for row in rows()] for problem in PROBLEMS}
        out = dict(versions=versions, labels=labels, reward=record_reward())
    for name in chosen or NAMES:
        out[name] = record_model(name)
    families.write_json(path, record.digits(out))


if __name__ == "__main__":
    main()
