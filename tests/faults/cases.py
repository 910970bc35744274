"""The runs that sweep.py breaks: small models of tests/reference and rows for every stage and method."""
import json
import pathlib
import shutil

MODELS = pathlib.Path(__file__).resolve().parents[1] / "reference" / "models"
TEMPLATE = ("{% for m in messages %}{{ m.role[0] + '|' }}{% generation %}{{ m.content + '|' }}{% endgeneration %}"
            "{% endfor %}{% if add_generation_prompt %}a|{% endif %}")
STAGES = ["sft", "pt", "cls", "dpo", "kto", "rm"]
METHODS = {
    "lora": ["finetuning_type=lora", "lora_rank=4", "lora_dropout=0.1"],
    "full": ["finetuning_type=full"],
    "nf4": ["finetuning_type=lora", "lora_rank=4", "quantization_bit=4"],
    "freeze": ["finetuning_type=freeze", "freeze_trainable_layers=1"],
    "dora": ["finetuning_type=lora", "lora_rank=4", "use_dora=true"],
    "pissa": ["finetuning_type=lora", "lora_rank=4", "pissa_init=true"],
    "plus": ["finetuning_type=lora", "lora_rank=4", "use_rslora=true", "loraplus_lr_ratio=16"],
    "int8": ["finetuning_type=lora", "lora_rank=4", "quantization_bit=8"],
}
OPTIMIZERS = ["adamw_torch", "adafactor", "adamw_8bit", "adamw_torch_4bit", "sgd", "lion_32bit", "lion_8bit", "adam_mini", "muon", "apollo_adamw"]  # the last two are not used with adapters


def stage_cases():
    """Returns {name: words}: the command-line words of every stage with every method. The optimizers take turns."""
    cases = {}
    for s, stage in enumerate(STAGES):
        for m, (method, words) in enumerate(METHODS.items()):
            fitting = OPTIMIZERS if method in ["full", "freeze"] else OPTIMIZERS[:-2]
            optimizer = fitting[(s + m) % len(fitting)]
            if method == "pissa" and stage in ["dpo", "kto"]:  # PiSSA changes the base, so it cannot be the reference
                words = words + ["ref_model={disk}/model"]
            cases[f"{stage}-{method}-{optimizer}"] = ["model_name_or_path={disk}/model", f"stage={stage}", *words,
                                                     "dataset={disk}/" + stage + ".jsonl", f"optim={optimizer}"]
    return cases


# Short runs with two checkpoints. Their calls fail one by one.
SHORT = {f"short-{method}": ["model_name_or_path={disk}/model", "stage=sft", *METHODS[method], "max_steps=4",
                             "save_steps=2", "dataset={disk}/sft.jsonl"] for method in ["lora", "full"]}

# LoRA and full tuning of a model with some tensors of more than 1 MB.
LARGE = {
    "large-full": ["model_name_or_path={disk}/large", "stage=sft", "finetuning_type=full",
                   "dataset={disk}/sft.jsonl", "max_steps=3"],
    "large-lora": ["model_name_or_path={disk}/large", "stage=sft", "finetuning_type=lora", "lora_rank=16",
                   "dataset={disk}/sft.jsonl", "max_steps=3"],
}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_inputs(disk):
    """Writes the models' folders and the rows. sweep.py makes the weights of the large model."""
    disk.mkdir(parents=True, exist_ok=True)
    files = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    for name in ["model", "large"]:
        (disk / name).mkdir()
        for file in files:
            if name == "model" or file != "model.safetensors":
                shutil.copy(MODELS / "llama" / file, disk / name)
        (disk / name / "chat_template.jinja").write_text(TEMPLATE)
    config = json.loads((MODELS / "llama" / "config.json").read_text())
    config |= {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 1, "head_dim": 96,
               "num_attention_heads": 4, "num_key_value_heads": 4}
    (disk / "large" / "config.json").write_text(json.dumps(config))
    ask = [f"ab {i} {'xyz'[i % 3]}" for i in range(24)]
    say = ["cd" * (i % 5 + 1) for i in range(24)]
    write_lines(disk / "sft.jsonl", [{"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}
                                     for a, b in zip(ask, say)])
    write_lines(disk / "pt.jsonl", [{"text": f"{a} {b}"} for a, b in zip(ask, say)])
    write_lines(disk / "cls.jsonl", [{"text": a, "label": ["red", "green", "blue"][i % 3]} for i, a in enumerate(ask)])
    for stage in ["dpo", "rm"]:
        write_lines(disk / f"{stage}.jsonl", [{"prompt": a, "chosen": b, "rejected": "gh " + b}
                                              for a, b in zip(ask, say)])
    write_lines(disk / "kto.jsonl", [{"prompt": a, "completion": b, "label": i % 2 == 0}
                                     for i, (a, b) in enumerate(zip(ask, say))])
