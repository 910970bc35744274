"""Small models for sweeps over other tools' recipes: the random models of `models/`, with a tokenizer that knows the
special tokens of chat templates.

The last merges of the tokenizer make room for the special tokens, so the weights stay as they are.
"""

import json
import pathlib
import shutil

MODELS = pathlib.Path(__file__).resolve().parent / "models"

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content + eos_token }}"
    "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
)
# Special tokens of the models that the recipes name. Each small tokenizer gets all of them.
LLAMA3_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"]
CHATML_TOKENS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
GEMMA_TOKENS = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>"]
OTHER_TOKENS = [
    "[INST]", "[/INST]", "<s>", "</s>", "<unk>", "<pad>", "[PAD]", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|eot|>",
    "<|start|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "[gMASK]", "<sop>", "<|observation|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>",
]  # fmt: skip
TOKENS = [*LLAMA3_TOKENS, *CHATML_TOKENS, *GEMMA_TOKENS, *OTHER_TOKENS]
# Chat template, bos and eos of some families. The other families have ChatML's template and eos, and no bos.
# qwen2_awq and qwen3_gptq stand for any model in their formats, which is most often a Llama 3.
OWN = {
    "llama": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2_awq": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen3_gptq": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama2": (INST, "<s>", "</s>"),
    "mistral": (INST, "<s>", "</s>"),
    "mixtral": (INST, "<s>", "</s>"),
    "deepseek_v2": (CHATML, TOKENS[-4], TOKENS[-3]),
    "deepseek_v3": (CHATML, TOKENS[-4], TOKENS[-3]),
    "gpt_oss": (CHATML, "<s>", "<|return|>"),
}


def tokenizer(text):
    """Returns the tokenizer with TOKENS in place of its last merges. `text` is the content of tokenizer.json."""
    out = json.loads(text)
    first = 254 - len(TOKENS)
    model = out["model"]
    lost = [name for name, number in model["vocab"].items() if number >= first]
    model["merges"] = model["merges"][: len(model["merges"]) - len(lost)]
    for name in lost:
        del model["vocab"][name]
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    added = [dict(id=first + i, content=token, **flags) for i, token in enumerate(TOKENS)]
    out["added_tokens"] = [*added, *out["added_tokens"]]
    return out


def make(family, folder, template=True, **config):
    """Writes the model of `family` to `folder`. `config` changes fields of config.json. If `template` is false, the
    model has no chat template."""
    folder = pathlib.Path(folder)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for path in (MODELS / family).iterdir():
        if path.is_file() and path.name not in ("reference.json", "logits.safetensors", "config_v4.json"):
            shutil.copy(path, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # one family shares the tokenizer of another
        if not (folder / name).exists():
            shutil.copy(MODELS / "llama" / name, folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer((folder / "tokenizer.json").read_text())))
    text, bos, eos = OWN.get(family, (CHATML, "", "<|im_end|>"))
    if family.startswith("gemma"):
        text, bos, eos = CHATML.replace("<|im_start|>", "<start_of_turn>").replace("<|im_end|>", "<end_of_turn>"), "<bos>", "<eos>"
    about = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=eos, pad_token="<pad>", model_max_length=4096)
    if bos:
        about["bos_token"] = bos
    if template:
        about["chat_template"] = text
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    fields = json.loads((folder / "config.json").read_text())
    for part in (fields, fields.get("text_config")):
        if part and part.get("max_position_embeddings") and family not in ("gpt2", "gpt_bigcode", "starcoder2"):
            part["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(fields | config))
    return folder
