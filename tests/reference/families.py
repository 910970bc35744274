"""Builds the tiny random models of the reference (one per family), their byte-level tokenizer and the training rows.

Every weight is a bfloat16 value stored in float32, so a bfloat16 copy of a model has exactly the same weights.
"""

import json
import math
import pathlib
import random
import re
import string

import torch
import transformers

import baichuan
import grouped
import more_families

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
baichuan.register()

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE / "models"
ROWS = MODELS / "rows.jsonl"
VOCAB = 256
BOS, EOS = 254, 255

COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=BOS,
    eos_token_id=EOS,
    tie_word_embeddings=False,
)


def make_config(family):
    """Returns the config of `family`. It has values that reveal errors in how the config is read."""
    if family == "llama":  # 8 frequencies: one kept, one blended, six divided by `factor`
        rope = dict(
            rope_type="llama3",
            rope_theta=10000.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        )
        return transformers.LlamaConfig(**COMMON, rope_parameters=rope, rms_norm_eps=1e-5)
    if family == "llama2":
        keys = COMMON | dict(num_key_value_heads=4, tie_word_embeddings=True)
        return transformers.LlamaConfig(**keys, rms_norm_eps=1e-5)
    if family == "mistral":
        return transformers.MistralConfig(**COMMON, sliding_window=16, rms_norm_eps=1e-5)
    if family == "qwen2":
        return transformers.Qwen2Config(**COMMON | dict(tie_word_embeddings=True), rms_norm_eps=1e-6)
    if family == "qwen3":
        rope = dict(rope_type="default", rope_theta=1000000.0)
        return transformers.Qwen3Config(**COMMON, head_dim=32, rope_parameters=rope, rms_norm_eps=1e-6)
    if family == "gemma2":  # a window on the first layer; caps that are small enough to limit scores and logits
        return transformers.Gemma2Config(
            **COMMON | dict(tie_word_embeddings=True), head_dim=32, query_pre_attn_scalar=24, sliding_window=16,
            attn_logit_softcapping=4.0, final_logit_softcapping=8.0, pad_token_id=None,
        )  # fmt: skip
    if family == "gemma3":  # windows on two of three layers; windowed and full layers have different rope frequencies
        rope = dict(
            full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=4.0),
            sliding_attention=dict(rope_type="default", rope_theta=1000.0),
        )
        return transformers.Gemma3TextConfig(
            **COMMON | dict(tie_word_embeddings=True, num_hidden_layers=3, num_key_value_heads=1), head_dim=32,
            query_pre_attn_scalar=24, sliding_window=12, sliding_window_pattern=3, rope_parameters=rope,
            pad_token_id=None,
        )  # fmt: skip
    if family == "phi3":  # 12 of a head's 16 dims are rotated; other frequencies if a row has more than 32 positions
        rope = dict(
            rope_type="longrope",
            rope_theta=10000.0,
            partial_rotary_factor=0.75,
            short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
            long_factor=[1.2, 1.5, 2.0, 3.0, 4.0, 6.0],
        )
        return transformers.Phi3Config(
            **COMMON, rope_parameters=rope, original_max_position_embeddings=32, sliding_window=24, rms_norm_eps=1e-5,
            pad_token_id=None,
        )  # fmt: skip
    if family == "starcoder2":
        return transformers.Starcoder2Config(**COMMON | dict(tie_word_embeddings=True), sliding_window=16)
    if family == "gpt2":
        return transformers.GPT2Config(
            vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128, n_inner=96,
            bos_token_id=BOS, eos_token_id=EOS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
    if family == "baichuan7b":
        keys = {key: value for key, value in COMMON.items() if key != "num_key_value_heads"}
        return baichuan.Config(**keys)
    if family == "baichuan13b":  # 6 heads: the slopes of 4 heads and two slopes of 8 heads
        drop = ("num_key_value_heads", "max_position_embeddings")
        keys = {key: value for key, value in COMMON.items() if key not in drop}
        keys |= dict(hidden_size=48, num_attention_heads=6, model_max_length=128)
        return baichuan.Config(**keys)
    if family == "gpt_bigcode":
        return transformers.GPTBigCodeConfig(
            vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128, n_inner=96, bos_token_id=BOS,
            eos_token_id=EOS, activation_function="gelu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
    if family == "mixtral":  # with the loss that balances the experts
        return transformers.MixtralConfig(
            **COMMON, num_local_experts=8, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.05,
        )  # fmt: skip
    if family == "qwen3_moe":  # the weights of a token's experts do not sum to 1
        return transformers.Qwen3MoeConfig(
            **COMMON, head_dim=32, moe_intermediate_size=32, num_experts=16, num_experts_per_tok=4,
            norm_topk_prob=False,
        )  # fmt: skip
    if family in more_families.CONFIGS:
        return more_families.CONFIGS[family](COMMON)
    raise ValueError(f"unknown family {family}")


FAMILIES = [
    "llama", "llama2", "mistral", "qwen2", "qwen3", "gpt2", "gemma2", "phi3", "starcoder2", "gemma3", "gpt_bigcode",
    "baichuan7b", "baichuan13b", "mixtral", "qwen3_moe", *more_families.CONFIGS,
]  # fmt: skip
# If one row of a batch is long, Transformers uses phi3's long frequencies for the whole batch. Fettle decides per row.
ROW_BY_ROW = ["phi3"]
OF_EXPERTS = [
    "mixtral", "qwen3_moe", "gpt_oss", "qwen2_moe", "glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5_moe",
    "gpt_oss_mxfp4", "deepseek_v2", "glm4_moe_lite", "minimax_m2", "gemma4_moe", "llama4", "lfm2_moe", "granite4",
    "nemotron_h_moe", "qwen3_moe_packed", "qwen2_moe_sparse", "deepseek_r1", "qwen3_next_sparse",
    "qwen3_5_moe_small", "glm4_moe_air", "moonlight", "kimi_k2", "nemotron_h_nano", "deepseek_v2_lite", "llama4_scout",
    "llama4_maverick", "ernie4_5_moe", "granitemoe",
]  # fmt: skip
# The balancing loss of experts is computed per micro-batch, not per row.
AT_ONCE = ["mixtral"]
# Families that are published as pytorch_model*.bin, with the number of shards of our copy.
IN_BIN = {"baichuan7b": 1, "baichuan13b": 2}


def auto_class(family):
    wrapped = family in more_families.WRAPPED
    return transformers.AutoModelForImageTextToText if wrapped else transformers.AutoModelForCausalLM


def make_model(family):
    """Returns a random model. Matrices preserve the scale of their input. Norms and biases are random, not neutral."""
    torch.manual_seed(1000 + FAMILIES.index(family))
    config = make_config(family)
    model = auto_class(family).from_config(config, dtype=torch.float32, attn_implementation="eager")
    conv_inputs_first = family == "gpt2"
    norm_of_zero = family.startswith(("gemma", *more_families.NORMS_OF_ZERO)) and not family.startswith("gemma4")  # norms multiply by 1 + weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if name.endswith("e_score_correction_bias"):  # as below, where it is a buffer
                value = 0.1 * noise
            elif parameter.ndim == 1 and name.endswith("bias"):
                value = 0.2 * noise
            elif parameter.ndim == 1:
                value = 0.2 * noise + (0 if norm_of_zero else 1)
                if family.startswith("gemma4") and name.endswith("q_norm.weight"):  # nothing else scales the scores
                    value = value / 4
            elif "embed_tokens" in name or "wte" in name or "embed_in" in name:  # tied heads give logits of a few units
                value = noise * (0.3 if model.config.tie_word_embeddings else 1.0)
            elif "wpe" in name:
                value = 0.1 * noise
            else:
                first = family.startswith(more_families.IN_FIRST) and parameter.ndim == 3
                inputs = 0 if conv_inputs_first else 1 if first else -1
                width = parameter.shape[inputs]
                gain = 2.0 if name.startswith("lm_head") else 1.0
                value = noise * gain / math.sqrt(width)
            if family == more_families.MXFP4 and parameter.ndim == 3:
                *parts, value = more_families.random_mxfp4(parameter)
                model.mxfp4 = getattr(model, "mxfp4", {}) | {name: parts}
            value = value.bfloat16().float()
            if family == more_families.FLOAT8 and parameter.ndim == 2 and ".layers." in name:
                *parts, value = more_families.random_float8(value)
                model.float8 = getattr(model, "float8", {}) | {name: parts}
            if family in grouped.CONFIGS and grouped.has_groups(name, parameter):
                parts, value = grouped.random_groups(family, value)
                model.grouped = getattr(model, "grouped", {}) | {name: parts}
            parameter.copy_(value)
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):  # changes which experts are chosen
                buffer.copy_((0.1 * torch.randn_like(buffer)).bfloat16().float())
            if name.endswith("layer_scalar"):
                buffer.copy_((1 + 0.2 * torch.randn_like(buffer)).bfloat16().float())
    return model.eval()


def stored_tensors(model):
    """Yields the parameters by checkpoint name. Where only Transformers fuses experts, yields a tensor per expert."""
    mixtral = model.config.model_type in ("mixtral", "minimax_m2")
    short = mixtral or model.config.model_type == "lfm2_moe"
    gate, up, down = ("w1", "w3", "w2") if short else ("gate_proj", "up_proj", "down_proj")
    for name, parameter in model.named_parameters():
        if any(part in name for part in more_families.TOWER) or name.endswith("e_score_correction_bias"):
            continue
        if model.config.model_type == "gpt_neox":  # Transformers renames the head when it loads a checkpoint
            name = name.replace("lm_head.", "embed_out.")
        stored = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
        for module, file in more_families.IN_FILES.get(model.config.model_type, {}).items():
            stored = stored.replace(module, file)
        head, _, kind = stored.rpartition(".")
        if not head.endswith(".experts") or model.config.model_type in more_families.FUSED:
            yield stored, parameter
            continue
        for expert, weight in enumerate(parameter):
            parts = {down: weight} if kind == "down_proj" else {up: weight} if kind == "up_proj" else dict(zip((gate, up), weight.chunk(2)))
            for part, value in parts.items():
                yield f"{head}.{expert}.{part}.weight", value


def old_spelling(config):
    """Returns config.json as Transformers 4 wrote it, with `torch_dtype`, `rope_theta` and `rope_scaling`."""
    config = dict(config)
    config["torch_dtype"] = config.pop("dtype")
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config.pop("layer_types", None)
    config["transformers_version"] = "4.46.0"
    return config


def tokenizer_json():
    """Returns a byte-level BPE of printable ASCII: 96 characters, 158 merges, <|bos|>, <|eos|>. Every id prints."""
    letters = [c for c in string.printable[:94]] + ["Ġ", "Ċ"]
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = []
    shuffled = random.Random(5)
    pairs = [(a, b) for a in "Ġ" + string.ascii_lowercase for b in string.ascii_lowercase]
    for a, b in shuffled.sample(pairs, BOS - len(vocab)):
        merges.append([a, b])
        vocab[a + b] = len(vocab)
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=BOS, content="<|bos|>", **special), dict(id=EOS, content="<|eos|>", **special)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                      fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=merges),
    }  # fmt: skip


def write_json(path, value):
    """Writes `value` as JSON. Each list of numbers is on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    one_line = lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]")
    path.write_text(re.sub(r"\[[-+\d.,e\s]+\]", one_line, text) + "\n")


def write_bin(state, folder, shards):
    """Writes pytorch_model.bin, or several shards and their index."""
    names = ["pytorch_model.bin"]
    if shards > 1:
        names = [f"pytorch_model-{i + 1:05d}-of-{shards:05d}.bin" for i in range(shards)]
    of = {key: names[i * shards // len(state)] for i, key in enumerate(state)}
    for name in names:
        torch.save({key: value.clone() for key, value in state.items() if of[key] == name}, folder / name)
    if shards > 1:
        size = sum(value.nbytes for value in state.values())
        write_json(folder / "pytorch_model.bin.index.json", dict(metadata=dict(total_size=size), weight_map=of))


def read_bin(folder):
    state = {}
    for path in sorted(folder.glob("pytorch_model*.bin")):
        state |= torch.load(path, weights_only=True)
    return state


def write_model(family):
    """Writes models/<family>: config.json (llama: also config_v4.json), weights (safetensors or .bin), tokenizer."""
    folder = MODELS / family
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(family)
    if family in IN_BIN:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
        write_bin(model.state_dict(), folder, IN_BIN[family])
    else:
        model.save_pretrained(folder)
        if family.startswith("qwen3_5_moe"):
            more_families.store_fused(model, folder)
        if family == more_families.MXFP4:
            more_families.store_in_mxfp4(model, folder)
        if family == more_families.FLOAT8:
            more_families.store_in_float8(model, folder)
        if family in grouped.CONFIGS:
            grouped.store(model, family, folder)
        (folder / "model.safetensors").chmod(0o644)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if family == more_families.MXFP4:
        config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    if family == more_families.FLOAT8:
        config["quantization_config"] = dict(
            quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128]
        )
    if family in grouped.CONFIGS:
        config["quantization_config"] = grouped.CONFIGS[family]
    if family == "qwen2":  # the published config has a window that is switched off
        config |= dict(use_sliding_window=False, sliding_window=16, max_window_layers=1)
    if family in ("llama2", "qwen2"):
        config = old_spelling(config)
    if family in more_families.UNKNOWN_TYPES:
        config["model_type"] = family
    more_families.as_published(config)
    write_json(path, config)
    if family == "llama":
        write_json(folder / "config_v4.json", old_spelling(config))
    write_json(folder / "tokenizer.json", tokenizer_json())
    names = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|bos|>", eos_token="<|eos|>")
    write_json(folder / "tokenizer_config.json", names | dict(model_max_length=128, clean_up_tokenization_spaces=False))
    if family == more_families.FLOAT8:
        more_families.check_float8(model, folder)


def write_rows():
    """Writes 80 rows of 5 to 40 ids, which follow a noisy rule and so can be learned. Prompts are masked with -100."""
    draw = random.Random(11)
    lines = []
    for _ in range(80):
        length = draw.randint(5, 40)
        ids = [draw.randrange(BOS)]
        while len(ids) < length:
            follow = (3 * ids[-1] + 7) % 64
            ids.append(follow if draw.random() < 0.8 else draw.randrange(BOS))
        masked = draw.randint(1, max(1, length // 2))
        lines.append(json.dumps(dict(input_ids=ids, labels=[-100] * masked + ids[masked:])))
    ROWS.write_text("\n".join(lines) + "\n")


def load_rows():
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def config_of(family):
    """Returns the arguments of from_pretrained for a model whose config.json has a type that Transformers does not know."""
    return dict(config=make_config(family)) if family in more_families.UNKNOWN_TYPES else {}


def load_model(family, dtype=torch.float32):
    if family in IN_BIN:
        folder = MODELS / family
        model = baichuan.Model(baichuan.Config.from_pretrained(folder))
        model.load_state_dict(read_bin(folder))
        return model.to(dtype).eval()
    if family in (more_families.MXFP4, more_families.FLOAT8, *grouped.CONFIGS):  # their readers need a GPU or packages
        return make_model(family).to(dtype)
    return auto_class(family).from_pretrained(
        MODELS / family, dtype=dtype, attn_implementation="eager", **config_of(family)
    ).eval()
