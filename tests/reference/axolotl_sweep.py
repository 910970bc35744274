"""Converts Axolotl's example recipes with `fettle convert` and trains two steps of each result on a small random model.

usage: axolotl_sweep.py [--fettle PROGRAM] [--mirror GIT_DIRECTORY] [--only WORD] [--jobs N] [--seconds N]
                        [--work FOLDER] [--convert-only]

Recipes are fetched by commit; nothing of them is kept in this repository. Their data sets are replaced by 200 rows
with the columns that the recipe names. Needs PyYAML. Exit code 1: a recipe fails for a reason that is not in SUBSTANCE,
or fewer than FEWEST recipes run.
"""

import functools
import json
import re
import sys

import scaled_models
import sweep
import yaml

REPOSITORY, COMMIT = "axolotl-ai-cloud/axolotl", "067b021c8b87a9e5e380b9173c704cf7340e30f5"
FEWEST = 125
# The family of the small model, by a pattern for the model name in the recipe. The first pattern that fits counts.
# Values that are not folders of models/ are `model_type`s that Fettle does not have, except nvfp4 and onebit, which
# stand for quantised checkpoints. A name that no pattern fits gets llama2.
MODELS = {
    r"GPTQ": "qwen3_gptq", r"NVFP4": "nvfp4", r"prequantized": "onebit", r"Vision|mllama": "mllama", r"pixtral-12b|llava": "llava",
    r"Qwen2-VL": "qwen2_vl", r"Qwen2.5-VL": "qwen2_5_vl", r"InternVL": "internvl", r"PaddleOCR": "paddleocr_vl",
    r"SmolVLM": "smolvlm", r"Voxtral": "voxtral", r"LFM2-VL": "lfm2_vl", r"GLM-4.6V": "glm4v", r"GLM-5": "glm_moe_dsa",
    r"Llama-4": "llama4", r"gemma-3n": "gemma3n", r"gemma-4-E2B": "gemma4_e2b", r"[Gg]emma-4-26B": "gemma4_moe",
    r"gemma-4-12B": "gemma4_unified", r"gemma-4": "gemma4", r"gemma-3-(270m|1b)": "gemma3", r"gemma-3": "gemma3_wrapped",
    r"gemma-2": "gemma2", r"gemma-7b": "gemma", r"gpt-oss": "gpt_oss", r"Qwen3-Next": "qwen3_next",
    r"Qwen3.5.*-A\d+B": "qwen3_5_moe", r"Qwen3.5": "qwen3_5", r"Qwen3.*-A\d+B": "qwen3_moe", r"Qwen1.5-MoE": "qwen2_moe",
    r"Qwen3|Plano": "qwen3", r"Qwen2|qwen-14B|DeepCoder": "qwen2", r"Qwen-7B": "qwen", r"DeepSeek-V4": "deepseek_v4",
    r"DeepSeek-V2": "deepseek_v2", r"GLM-4.7": "glm4_moe_lite", r"GLM-4.5": "glm4_moe", r"GLM-4-": "glm4",
    r"Mistral-Small-4": "mistral4", r"Ministral-3-|Mistral-Medium-3.5": "mistral3", r"Mistral-Small-3|Magistral-Small-2509": "mistral3",
    r"Magistral|Devstral|Ministral-8B|Mistral-7B": "mistral", r"Mixtral": "mixtral", r"Falcon-H1": "falcon_h1", r"falcon-7b": "falcon",
    r"Nemotron-Mini": "nemotron", r"Nemotron": "nemotron_h", r"dbrx": "dbrx", r"stablelm": "stablelm", r"phi-1|phi-2": "phi",
    r"[Pp]hi-3": "phi3", r"[Jj]amba": "jamba", r"starcoder2": "starcoder2", r"pythia|RedPajama": "gpt_neox", r"gpt-j": "gptj",
    r"Cerebras-GPT": "gpt2", r"btlm": "btlm", r"mamba": "mamba", r"mpt": "mpt", r"replit": "mpt", r"xgen": "llama2",
    r"Seed-OSS": "seed_oss", r"command-r7b": "cohere2", r"Olmo-3": "olmo3", r"MiniMax": "minimax_m2", r"Apertus": "apertus",
    r"Hunyuan": "hunyuan_v1_dense", r"AFM": "arcee", r"Trinity": "afmoe", r"LFM2-8B": "lfm2_moe", r"LFM2": "lfm2",
    r"Kimi-Linear": "kimi_linear", r"granite-4": "granite4", r"MiMo": "mimo", r"SmolLM2|Yi-34B": "llama2",
    r"[Ll]lama-?3[.-]|cogito-v1-preview-llama|orpheus": "llama", r"[Ll]lama|LLaMA": "llama2",
}  # fmt: skip
SUBSTANCE = {
    "no such model": r"model_type '\w+' is not supported",
    "quantised checkpoint": r"quantised by|use_onebitllms is not available",
    "images or sound": r"processor_type is not available|chat_template: llava",
    "no such method": r"(qat|lisa_\w+|relora|peft|lr_quadratic_warmup|max_packed_sequence_len) is not available"
    r"|type '(ebft_\w+|rwd)\.\w+' is not available|the plugin '.*(Diffusion|LLMCompressor).*' is not available|step_separator",
    "no such rows": r"min_sample_len is not available|the data set type",
    "some parameters only": r"unfrozen_parameters is not available",
    "another tokenizer": r"tokenizer_config is not available",
    "misspelled there": r"unknown key 'context_parapllel_size'",
}
QUESTIONS = ["What is the capital of France?", "Name a prime number.", "How do I list files?", "Who wrote Hamlet?"]
ANSWERS = ["Paris is the capital of France.", "Seven is a prime number.", "Use ls to list files.", "Shakespeare wrote it."]


def model_folder(name, folder):
    family = next((family for pattern, family in MODELS.items() if re.search(pattern, name)), "llama2")
    to = folder / family
    if to.exists():
        return to
    if family in ("nvfp4", "onebit"):
        method = dict(nvfp4="modelopt", onebit="bitnet")[family]
        return scaled_models.make("llama", to, quantization_config=dict(quant_method=method, bits=4))
    if not (scaled_models.MODELS / family).exists():
        return scaled_models.make("qwen3", to, model_type=family, architectures=["ForCausalLM"])
    return scaled_models.make(family, to)


def rows_of(entry, recipe):
    """Yields 200 rows with the columns that an entry of `datasets` names, as in the published sets."""
    kind = entry.get("type") if isinstance(entry.get("type"), str) else "map"
    path = entry["path"]
    mapping = entry.get("message_property_mappings") or {}
    role = mapping.get("role") or entry.get("message_field_role") or "role"
    content = mapping.get("content") or entry.get("message_field_content") or "content"
    words = dict(user="human", assistant="gpt") if role == "from" else dict(user="user", assistant="assistant")
    words |= {name: known[0] for name, known in (entry.get("roles") or {}).items()}

    def message(who, text, **more):
        return {role: words.get(who, who), content: text} | more

    for i in range(200):
        question, answer = f"{QUESTIONS[i % 4]} ({i})", ANSWERS[i % 4] * (1 + i // 4 % 3)
        if "text" in (entry.get("text_column"), entry.get("field")) or kind in ("completion", "pretrain"):
            yield {entry.get("field") or entry.get("text_column") or "text": question + " " + answer}
        elif kind == "bradley_terry.chat_template":
            yield dict(system="", input=question, chosen=answer, rejected="I do not know.")
        elif kind in ("chat_template.argilla", "chatml.ultra") or recipe.get("rl") == "orpo":
            talk = [dict(role="user", content=question)]
            chosen, rejected = (talk + [dict(role="assistant", content=text)] for text in (answer, "I do not know."))
            yield dict(prompt=question, chosen=chosen, rejected=rejected)
        elif recipe.get("rl") == "kto":
            yield dict(prompt=question, completion=answer, label=i % 2 == 0)
        elif recipe.get("rl") == "dpo":
            names = entry.get("field_chosen", "chosen"), entry.get("field_rejected", "rejected")
            replies = message("assistant", answer), message("assistant", "I do not know.")
            yield {entry.get("field_messages", "messages"): [message("user", question)]} | dict(zip(names, replies))
        elif kind.startswith("chat_template"):
            more = {entry["field_thinking"]: "Let me think."} if entry.get("field_thinking") else {}
            yield {entry.get("field_messages", "messages"): [message("user", question), message("assistant", answer, **more)]}
        elif kind == "jeopardy":
            yield dict(question=question, answer=answer, category="general")
        elif kind == "stepwise_supervised":
            yield dict(prompt=question, completions=[answer, "So it is."], labels=[True, False])
        else:
            yield dict(instruction=question, input="", output=answer)


def local_set(entry, recipe, folder):
    """Writes rows for the entry to `folder`, laid out as on the hub. Returns the entry with the path of these rows."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows_of(entry, recipe))
    split = re.sub(r"\[.*", "", str(entry.get("split") or "train"))
    files = entry.get("data_files") or []
    files = files if isinstance(files, list) else [files]
    name = "json" if entry["path"] in ("json", "csv") else None
    for file in files or [f"{split}.jsonl"]:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    if entry.get("name"):
        part = dict(config_name=entry["name"], data_files=[dict(split=split, path=f"{split}.jsonl")])
        (folder / "README.md").write_text("---\n" + yaml.safe_dump(dict(configs=[part])) + "---\n")
    return entry | dict(path=name or str(folder))


def small(text, number, work):
    """Returns the text of the recipe with a small model and small data sets. Everything else stays as it is written."""
    recipe = yaml.safe_load(text)
    text = re.sub(r"^base_model:.*$", f"base_model: {model_folder(recipe['base_model'], work / 'models')}", text, count=1, flags=re.M)
    for key in ("datasets", "test_datasets", "pretraining_dataset"):
        for i, entry in enumerate(recipe.get(key) or []):
            if not isinstance(entry, dict):
                continue
            local = local_set(entry, recipe, work / "rows" / f"{number}-{key}-{i}")
            line = re.compile(rf"(\bpath: *){re.escape(entry['path'])}(?=\s)")
            text = line.sub(lambda found: found[1] + local["path"], text, count=1)
    return text


def main():
    parser = sweep.arguments(__doc__)
    parser.add_argument("--convert-only", action="store_true", help="convert, and read the rows, but train nothing")
    asked = parser.parse_args()
    work = sweep.work_folder(asked, "axolotl")
    sweep.checkout(REPOSITORY, COMMIT, ["examples", "deepspeed_configs"], work, asked.mirror)

    recipes = []
    for number, path in enumerate(sorted((work / "examples").rglob("*.y*ml"))):
        text = path.read_text()
        if not re.search(r"^base_model:", text, re.M):
            continue
        name = str(path.relative_to(work / "examples"))
        if asked.only in name:
            path.write_text(small(text, number, work))
            recipes.append((name, path))
    print(f"{len(recipes)} recipes of {REPOSITORY} at {COMMIT[:7]}, in {work}", flush=True)

    results = sweep.Sweep(SUBSTANCE)

    def one(name, path):
        code, output, messages = sweep.run([str(asked.fettle), "convert", str(path.relative_to(work))], work, asked.seconds)
        if code != 0:
            return code, output, messages
        converted = path.with_suffix(".fettle.yaml")
        converted.write_text(output)
        words = [str(converted.relative_to(work)), "plugin=cpu", f"output_dir=out/{path.stem}-{path.parent.name}"]
        if asked.convert_only:
            return sweep.run([str(asked.fettle), "data", *words], work, asked.seconds)
        return sweep.run([str(asked.fettle), "train", *words, "max_steps=2"], work, asked.seconds)

    tasks = [functools.partial(one, *recipe) for recipe in recipes]
    for (name, _), ((code, _, messages), seconds) in zip(recipes, sweep.all_at_once(tasks, asked.jobs)):
        results.add(name, code, messages, seconds)
    return sweep.finish(results, asked, work, FEWEST)


if __name__ == "__main__":
    sys.exit(main())
