"""Runs LLaMA-Factory's example recipes on small random models, and prints which run and why the others are refused.

    "$(tests/reference/python_env.sh)" tests/reference/llama_factory_recipes.py [--source FOLDER] [NAME ...]

Each recipe of the pinned commit is given to Fettle as it is. The command line replaces only the model by a random one of
the same family and the sizes by small ones: `train` takes two steps, recipes of inference and export their own command.
FOLDER is a checkout of LLaMA-Factory; without it, the commit is fetched into the cache. NAME picks recipes by a part of
their path.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
COMMIT = "ff6d4d12eeb035d6ce06805a5733dd7b29f2ac30"
# A part of the model's name, and the family of models/ that stands for it. The first that fits counts.
FAMILIES = [
    ("MOSS-VL", "moss_vl"), ("Qwen3-VL-30B", "qwen3_vl_moe"), ("Qwen3-VL", "qwen3_vl"), ("Qwen2.5-VL", "qwen2_5_vl"), ("Qwen2-VL", "qwen2_vl"),
    ("Qwen3.5-35B", "qwen3_5_moe"), ("Qwen3.5-397B", "qwen3_5_moe"), ("Qwen3.5", "qwen3_5"), ("Qwen3-30B", "qwen3_moe"), ("Qwen3-235B", "qwen3_moe"),
    ("Qwen3", "qwen3"), ("qwen3-4b", "qwen3"), ("Qwen2", "qwen2"), ("DeepSeek-V2", "deepseek_v2"), ("DeepSeek-V3", "deepseek_v3"),
    ("AWQ", "llama awq"), ("GPTQ", "llama gptq"), ("AQLM", "llama aqlm"), ("Llama-2", "llama2"), ("lama", "llama"),
]  # fmt: skip
TOKENS = ("<|im_start|> <|im_end|> <|endoftext|> <|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> "
          "<|eom_id|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <think> </think>").split()  # fmt: skip
SMALL = ("max_steps=2 max_samples=16 cutoff_len=200 save_steps=100 logging_steps=1 per_device_train_batch_size=1 "
         "gradient_accumulation_steps=1 plugin=cpu overwrite_output_dir=true").split()  # fmt: skip


def stand_in(folder: pathlib.Path, family: str) -> pathlib.Path:
    """A random model of the family whose tokenizer has the tokens of all templates."""
    base, *quantised = family.split()
    out = folder / family.replace(" ", "-")
    if out.exists():
        return out
    out.mkdir(parents=True)
    source = HERE / "models" / base
    tokenizer = json.loads((HERE / "tokenizer/qwen2/tokenizer.json").read_text())
    known = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    size = max([*tokenizer["model"]["vocab"].values(), *known.values()]) + 1
    for token in TOKENS:
        if token not in known:
            tokenizer["added_tokens"].append({"id": size, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
            size += 1
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    end = "<|eot_id|>" if base.startswith("llama") else "<｜end▁of▁sentence｜>" if base.startswith("deepseek") else "<|im_end|>"
    (out / "tokenizer_config.json").write_text(json.dumps({"eos_token": end, "pad_token": "<|endoftext|>", "bos_token": "<|begin_of_text|>"}))
    if not source.exists():  # a family that Fettle does not have
        (out / "config.json").write_text(json.dumps({"model_type": base, "vocab_size": size}))
        return out
    config = json.loads((source / "config.json").read_text())
    for level in (config, config.get("text_config", {})):
        if "vocab_size" in level:
            level["vocab_size"] = size
        level.pop("pad_token_id", None)
        level.pop("max_window_layers", None)
        if "max_position_embeddings" in level:
            level["max_position_embeddings"] = 4096
    if quantised:
        config["quantization_config"] = {"quant_method": quantised[0], "bits": 4}
    (out / "config.json").write_text(json.dumps(config))
    tensors = load_file(source / "model.safetensors")
    noise = numpy.random.default_rng(1)
    for name, values in tensors.items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight")):
            rows = noise.normal(0, 0.02, (size - len(values), values.shape[1])).astype(values.dtype)
            tensors[name] = numpy.concatenate([values, rows])
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    return out


def fetched(cache: pathlib.Path) -> pathlib.Path:
    folder = cache / f"LLaMA-Factory-{COMMIT[:12]}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        git = ["git", "-C", str(part)]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "fetch", "--quiet", "--depth", "1", "https://github.com/hiyouga/LLaMA-Factory", COMMIT], check=True)
        subprocess.run([*git, "checkout", "--quiet", COMMIT], check=True)
        part.rename(folder)
    return folder


def words_of(recipe: pathlib.Path, text: str, models: pathlib.Path, out: pathlib.Path):
    """The command and its words for a recipe."""
    keys = dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith((" ", "#", "-")))
    name = keys.get("model_name_or_path", keys.get("model", "")).split("#")[0].strip()
    family = next((family for part, family in FAMILIES if part in name), "")
    words = [str(recipe), f"model_name_or_path={stand_in(models, family)}", "plugin=cpu"]
    if "adapter_name_or_path" in keys or "peft_config" in keys and "adapter_name_or_path" in text:
        words.append(f"adapter_name_or_path={out}/examples_train_lora_qwen3_lora_sft")
    here = out / "_".join(recipe.with_suffix("").parts[-3 if "examples/train" not in str(recipe) else -3 :])
    if "export_dir" in text:
        return family, "export", [*words, f"export_dir={here}"]
    if "do_predict" in keys:
        return family, "eval", [w for w in words if not w.startswith("adapter")] + ["max_samples=2", "max_new_tokens=4", f"output_dir={here}"]
    if "do_train" not in keys and "model" not in keys:
        return family, "generate", [*words, "prompt=Hello", "max_new_tokens=4"]
    if "tokenized_path" in keys:
        return family, "data", [*words, "max_samples=16"]
    return family, "train", [*words, *SMALL, f"output_dir={here}", *(["fp8=false", "bf16=true"] if False else [])]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--source")
    arguments.add_argument("--keep", help="folder for the runs' files")
    arguments.add_argument("names", nargs="*")
    asked = arguments.parse_args()
    cache = pathlib.Path(os.environ.get("FETTLE_CACHE", pathlib.Path.home() / ".cache/fettle"))
    source = pathlib.Path(asked.source) if asked.source else fetched(cache)
    fettle = os.environ.get("FETTLE", str(HERE.parents[1] / "build/fettle"))
    recipes = [file for file in sorted(source.glob("examples/**/*.yaml"))
               if "accelerate" not in file.parts and "multi_tokens" not in file.parts]  # fmt: skip
    # The adapter of this recipe is what those of inference and export read.
    recipes.sort(key=lambda file: file.name != "qwen3_lora_sft.yaml" or file.parts[-2] != "train_lora")
    recipes = [file for file in recipes if not asked.names or any(name in str(file) for name in asked.names)]
    work = pathlib.Path(asked.keep or tempfile.mkdtemp())
    counts = {"runs": 0, "refused": 0}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    for recipe in recipes:
        family, command, words = words_of(recipe.relative_to(source), recipe.read_text(), work / "models", work / "out")
        v1 = "/v1/" in str(recipe)
        if v1 and "dpo" in recipe.name:
            words.append("stage=dpo")
        try:
            run = subprocess.run([fettle, command, *words], cwd=source, env=environment, capture_output=True, text=True, timeout=300)
            code, lines = run.returncode, run.stderr.strip().splitlines()
        except subprocess.TimeoutExpired:
            code, lines = -1, ["it took more than 300 seconds"]
        counts["runs" if code == 0 else "refused"] += 1
        reason = "" if code == 0 else next((line for line in lines if line.startswith("error")), lines[-1] if lines else "?")
        reason = reason.replace(str(work), "").replace(str(source), "")
        print(f"{recipe.relative_to(source / 'examples')} | {family} | {command} | {'runs' if code == 0 else f'refused ({code}): {reason}'}", flush=True)
    print(f"{counts['runs']} run, {counts['refused']} are refused")
    if not asked.keep:
        shutil.rmtree(work)


sys.exit(main())
