"""Runs LLaMA-Factory's example recipes with Fettle. Each gets a small random model instead of its own, and trains two
steps on the demo data sets.

usage: llama_factory_sweep.py [--fettle PROGRAM] [--mirror GIT_DIRECTORY] [--only WORD] [--jobs N] [--seconds N]
                              [--work FOLDER]

Recipes are fetched by commit; nothing of them is kept in this repository. Recipes of inference, merging and prediction
run after those that train, because some need their results. Exit code 1: a recipe fails for a reason that is not in
SUBSTANCE, or fewer than FEWEST recipes run.
"""

import functools
import json
import re
import shutil
import sys

import scaled_models
import sweep

REPOSITORY, COMMIT = "hiyouga/LLaMA-Factory", "ff6d4d12eeb035d6ce06805a5733dd7b29f2ac30"
FEWEST = 58
# The family of the small model, by a pattern for the model name in the recipe. The first pattern that fits counts.
MODELS = {
    r"AQLM": "aqlm", r"AWQ": "qwen2_awq", r"GPTQ": "qwen3_gptq", r"MOSS-VL": "moss_vl", r"Qwen3-VL.*A3B": "qwen3_vl_moe",
    r"Qwen3-VL": "qwen3_vl", r"Qwen2.5-VL": "qwen2_5_vl", r"Qwen2-VL": "qwen2_vl", r"Qwen3.5.*-A\d+B": "qwen3_5_moe",
    r"Qwen3.5": "qwen3_5", r"Qwen3.*-A\d+B": "qwen3_moe", r"Qwen3|saves/qwen3-4b/full": "qwen3", r"Qwen2": "qwen2",
    r"DeepSeek-V3": "deepseek_v3", r"DeepSeek-V2": "deepseek_v2", r"Llama-2": "llama2", r"[Ll]lama-?3": "llama",
}  # fmt: skip
# Other recipes read the results of these recipes. All other recipes get an output folder of their own.
READ_LATER = (
    "train_lora/qwen3_lora_sft.yaml", "train_full/qwen3_full_sft.yaml", "v1/train_lora/train_lora_sft.yaml",
    "extras/loraplus/llama3_lora_sft.yaml",
)  # fmt: skip
QUANTISED = ("aqlm",)
SUBSTANCE = {
    "no such model": r"model_type '\w+' is not supported",
    "quantised checkpoint": r"the checkpoint is quantised by 'aqlm'",
    "images": r"only text is supported|trains on text only",
    "no offload for this model": r"offload_param is not implemented for",
    "no such method": r"(use_badam|use_galore|mixture_of_depths|finetuning_type: oft|export_quantization_\w+) is not available",
}


def model_folder(name, folder):
    family = next(family for pattern, family in MODELS.items() if re.search(pattern, name))
    to = folder / family
    if to.exists():
        return to
    if family in QUANTISED:
        return scaled_models.make("llama", to, quantization_config=dict(quant_method=family, bits=4))
    if family not in [path.name for path in scaled_models.MODELS.iterdir()]:  # Fettle has no such family
        return scaled_models.make("qwen3", to, model_type=family, architectures=["ForConditionalGeneration"])
    return scaled_models.make(family, to)


def command_of(recipe, text):
    if "inference/" in recipe:
        return "chat"
    if "export_dir" in text:
        return "export"
    if "do_predict: true" in text:
        return "eval"
    return "data" if "tokenized_path" in text else "train"


def words_of(recipe, command):
    """Returns the command-line words after the recipe: two steps, an output folder, and what a small model needs."""
    words = ["plugin=cpu"]
    folder = "out/" + recipe.replace("/", "-").removesuffix(".yaml")
    if command == "export":
        words += [f"export_dir={folder}"]
    elif command == "train" and recipe not in READ_LATER:
        words += [f"output_dir={folder}"]
    if command == "train":
        words += ["max_steps=2"]
    if "train_lora_dpo" in recipe:  # LLaMA-Factory v1 has one command per method
        words += ["stage=dpo"]
    if "llama_pro" in recipe:  # the recipe trains 8 of 40 layers
        words += ["freeze_trainable_layers=1"]
    if "_ray" in recipe:  # the data sets of the recipe are on the hub
        words += ["dataset_dir=data"]
    if "ulysses" in recipe or "ep_fsdp" in recipe or "megatron/qwen3_moe" in recipe:  # these recipes are for more devices
        words += ["device_count=2", "mesh={sp: 2}" if "ulysses" in recipe else "mesh={ep: 2}"]
    return words


def main():
    asked = sweep.arguments(__doc__).parse_args()
    work = sweep.work_folder(asked, "llama-factory")
    sweep.checkout(REPOSITORY, COMMIT, ["examples", "data"], work, asked.mirror)
    # The data sets that are not in the repository are replaced by demo sets that are.
    (work / "data" / "v1_dpo_demo.yaml").write_text("pairs:\n  path: data/v1_dpo_demo.jsonl\n  source: local\n")
    info = work / "data" / "dataset_info.json"
    entries = json.loads(info.read_text())
    entries |= {name: entries["alpaca_en_demo"] for name in ("med", "math")} | dict(alpaca_zh=entries["alpaca_zh_demo"])
    info.write_text(json.dumps(entries))

    recipes = []
    for path in sorted((work / "examples").rglob("*.yaml")):
        name = str(path.relative_to(work / "examples"))
        text = path.read_text()
        found = re.search(r"^(model_name_or_path|model): *(\S+)", text, re.M)
        if "accelerate/" in name or not found:
            continue
        small = model_folder(found[2], work / "models")
        folder = work / "saves" / "qwen3-4b" / "full" / "sft"
        adapter = re.search(r"^adapter_name_or_path: *(\S+)", text, re.M)
        if adapter and not (scaled_models.MODELS / small.name).exists():  # Fettle cannot tune the model of the adapter
            shutil.copytree(scaled_models.MODELS / "qwen3" / "adapter_init", work / adapter[1], dirs_exist_ok=True)
        path.write_text(text.replace(found[0], f"{found[1]}: {folder if found[2].startswith('saves/') else small}", 1))
        recipes.append((name, path, command_of(name, text)))
    print(f"{len(recipes)} recipes of {REPOSITORY} at {COMMIT[:7]}, in {work}", flush=True)

    results = sweep.Sweep(SUBSTANCE)

    def one(name, path, command):
        words = [str(asked.fettle), command, str(path.relative_to(work)), *words_of(name, command)]
        if command == "chat":  # one question; the answer of a random model is any text
            return sweep.run([*words, "max_new_tokens=8"], work, asked.seconds, "hello\n")
        return sweep.run(words, work, asked.seconds)

    for part in (("train", "data"), ("chat", "export", "eval")):
        wanted = [recipe for recipe in recipes if recipe[2] in part and asked.only in recipe[0]]
        tasks = [functools.partial(one, *recipe) for recipe in wanted]
        for (name, _, command), ((code, _, messages), seconds) in zip(wanted, sweep.all_at_once(tasks, asked.jobs)):
            results.add(f"{command} {name}", code, messages, seconds)
    return sweep.finish(results, asked, work, FEWEST)


if __name__ == "__main__":
    sys.exit(main())
