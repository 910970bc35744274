"""Writes gguf/: GGUF files that llama.cpp's converter makes from models/ and tokenizer/, and blocks of every type.

    python3 gguf_files.py LLAMA_CPP LIBRARY [blocks | MODEL...]

LLAMA_CPP is llama.cpp's source folder, such as vendor/llama.cpp of llama_cpp_python-0.3.36.tar.gz from PyPI. LIBRARY is
a library with llama.cpp's encoders, such as xllamacpp/xllamacpp.abi3.so of xllamacpp's wheel
(requirements-llama-cpp.txt). The script needs what tests/reference/python_env.sh installs and the packages pyyaml,
requests and tqdm. With `blocks`, only the blocks are written; with names of models, only these models.

models/NAME.gguf has Q8_0 weights, tokenizer/NAME.gguf only a vocabulary. For each type, blocks.safetensors has a few
random blocks and the values to which the `gguf` library decodes them. encoded.safetensors has random values of several
distributions and the blocks to which the `gguf` library encodes them (llama.cpp for the K types).
"""
import ctypes
import json
import logging
import pathlib
import shutil
import sys
import tempfile

import numpy
import torch
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]

import gguf  # noqa: E402
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402
from conversion.base import TextModel  # noqa: E402

MODELS = ("llama llama2 mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3 phi3 starcoder2 gpt_bigcode gpt2 gpt_neox olmo2 olmo3 smollm3 "
          "granite seed_oss ernie4_5 glm glm4 cohere2 ministral3 phi lfm2 nemotron_h nemotron_h_moe "
          "falcon_h1 falcon_h1_gated qwen2_moe_sparse lfm2_moe minimax_m2 glm4_moe qwen3_5_small deepseek_r1 glm4_moe_lite qwen3_next_sparse qwen3_5_moe_small "
          "gpt_oss gpt_oss_mxfp4 gemma4 gemma4_e2b gemma4_moe gemma4_unified llama4 granite4 granite4_dense baichuan7b").split()  # fmt: skip
# For each tokenizer, the model whose config it gets, and the name of its word pattern. llama.cpp recognises tokenizers
# by a hash, which these small ones do not have, so the script gives the pattern.
TOKENIZERS = {"llama3": ("llama", "llama-bpe"), "qwen2": ("qwen3", "qwen2"), "gpt2": ("gpt2", "gpt-2"), "sp_bpe": ("llama", "default")}
ENCODED = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 MXFP4".split()
ENCODED_BY_LLAMA_CPP = "Q4_K Q5_K Q6_K Q2_K Q3_K".split()
TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4").split()


load_hparams = ModelBase.load_hparams


def all_hparams(folder: pathlib.Path, is_mistral_format: bool) -> dict:
    """Returns the fields of a config. Adds fields that the converter reads and Transformers 5 no longer writes."""
    found = load_hparams(folder, is_mistral_format)
    found.setdefault("n_ctx", found.get("n_positions"))
    found.setdefault("rotary_pct", (found.get("rope_parameters") or {}).get("partial_rotary_factor", 1.0))
    if found.get("model_type") in ("minimax_m2", "deepseek_v3", "glm4_moe_lite"):
        found["scoring_func"] = "sigmoid"  # as in the published configs
    if "sparse" in found.get("mlp_layer_types", []):
        found["first_k_dense_replace"] = found["mlp_layer_types"].index("sparse")
    if found.get("model_type") == "minimax_m2":
        found["rotary_dim"] = int(found["head_dim"] * found["rope_parameters"]["partial_rotary_factor"])
    if found.get("model_type") == "nemotron_h":
        # The converter assumes Mamba heads of 64, and takes a model for one with experts if their fields are present.
        found["mamba_d_head"] = found["mamba_head_dim"]
        kinds = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        found["hybrid_override_pattern"] = "".join(kinds[kind] for kind in found["layers_block_type"])
        if "moe" not in found["layers_block_type"]:
            for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"):
                found.pop(key, None)
    if found.get("model_type") == "granitemoehybrid":  # Transformers 5 writes other names
        kinds = {"linear_attention": "mamba", "full_attention": "attention"}
        found["layer_types"] = [kinds.get(kind, kind) for kind in found["layer_types"]]
    if found.get("model_type") == "llama4":  # as in the published models
        found["text_config"]["rope_parameters"]["original_max_position_embeddings"] = 8192
    if found.get("model_type") == "gemma4_unified":
        found["text_config"].setdefault("moe_intermediate_size", None)
    return found


def baichuan_tensors(self, data, name: str, layer: int | None):
    if not name.endswith("W_pack.weight"):
        return [(self.map_tensor_name(name), data)]
    heads = self.hparams["num_attention_heads"]
    q, k = (self._reverse_hf_permute_part(data, part, heads, heads) for part in (0, 1))
    kinds = (gguf.MODEL_TENSOR.ATTN_Q, gguf.MODEL_TENSOR.ATTN_K, gguf.MODEL_TENSOR.ATTN_V)
    return [(self.format_tensor_name(kind, layer), part) for kind, part in zip(kinds, (q, k, self._reverse_hf_part(data, 2)))]


def convert(folder: pathlib.Path, out: pathlib.Path, pattern: str, pieces: bool = False, vocabulary_only: bool = False):
    ModelBase.load_hparams = staticmethod(all_hparams)
    hparams = all_hparams(folder, False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    if not vocabulary_only:  # read from the file, because Transformers adds a token to Qwen 2's small vocabulary
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        added = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
        tokens = {**{i: token for token, i in tokenizer["model"]["vocab"].items()}, **added}
        kinds = [gguf.TokenType.CONTROL if i in added else gguf.TokenType.NORMAL for i in range(len(tokens))]
        TextModel.get_vocab_base = lambda self: ([tokens[i] for i in range(len(tokens))], kinds, pattern)
    kind.no_mtp = True  # the models have no layer that predicts a second token
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pattern

    def set_vocab(self):
        self._set_vocab_sentencepiece() if pieces else self._set_vocab_gpt2()
        if pieces:  # the converter does not write this field for Llama's own models
            self.gguf_writer.add_remove_extra_whitespaces(True)

    kind.set_vocab = set_vocab
    if kind.__name__ == "BaichuanModel":  # its own method recurses without end
        kind.modify_tensors = baichuan_tensors
    with torch.inference_mode():
        model = kind(folder, gguf.LlamaFileType.MOSTLY_Q8_0, out)
        model.write_vocab() if vocabulary_only else model.write()


def write_models(names):
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / name
            shutil.copytree(HERE / "models" / name, folder, ignore=shutil.ignore_patterns("adapter*", "variants", "logits*"))
            (folder / "config.json").write_text(json.dumps(all_hparams(folder, False)))  # some classes read the file itself
            convert(folder, HERE / "gguf/models" / f"{name}.gguf", "gpt-2")


def write_tokenizers():
    for name, (model, pattern) in TOKENIZERS.items():
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / name
            shutil.copytree(HERE / "tokenizer" / name, folder)
            pieces = (folder / "tokenizer.model").exists()
            config = json.loads((HERE / "models" / model / "config.json").read_text())
            if pieces:
                from sentencepiece import SentencePieceProcessor
                config["vocab_size"] = SentencePieceProcessor(str(folder / "tokenizer.model")).vocab_size()
            else:
                tokenizer = json.loads((folder / "tokenizer.json").read_text())
                config["vocab_size"] = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
            for key in ("bos_token_id", "eos_token_id", "pad_token_id"):  # these ids belong to another tokenizer
                config.pop(key, None)
            (folder / "config.json").write_text(json.dumps(config))
            shutil.copy(HERE / "models" / model / "model.safetensors", folder)
            convert(folder, HERE / "gguf/tokenizer" / f"{name}.gguf", pattern, pieces, vocabulary_only=True)


def write_blocks():
    random = numpy.random.default_rng(15)
    tensors = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (max(4, 64 // elements), size), dtype=numpy.uint8)
        values = gguf.dequantize(blocks.reshape(-1), kind).reshape(-1).astype(numpy.float32)
        finite = numpy.isfinite(values.reshape(len(blocks), -1)).all(axis=1)
        tensors[f"{name}.blocks"] = numpy.ascontiguousarray(blocks[finite])
        tensors[f"{name}.values"] = numpy.ascontiguousarray(values.reshape(len(blocks), -1)[finite])
        assert finite.sum() >= 3, name
    save_file(tensors, HERE / "gguf/blocks.safetensors")


def values_to_encode() -> numpy.ndarray:
    """Returns rows of 256 values of several kinds: normal, heavy-tailed, positive, shifted, sparse, all zero, constant,
    one nonzero, large and small."""
    random = numpy.random.default_rng(17)
    normal = random.standard_normal((8, 256)) * 0.02
    sparse = random.standard_normal((2, 256)) * (random.random((2, 256)) < 0.3)
    single = numpy.zeros((1, 256))
    single[0, 77] = -3.5
    rows = [normal, random.standard_t(3, (6, 256)) * 0.02, abs(random.standard_normal((2, 256))), random.laplace(0.5, 1, (2, 256)),
            -abs(random.standard_normal((1, 256))) - 2, sparse, numpy.zeros((1, 256)), numpy.full((1, 256), 0.125), single,
            random.standard_normal((1, 256)) * 1e4, random.standard_normal((1, 256)) * 1e-4]  # fmt: skip
    return numpy.ascontiguousarray(numpy.concatenate(rows).astype(numpy.float32))


def write_encoded(library: str):
    values = values_to_encode()
    tensors = {"values": values}
    for name in ENCODED:
        tensors[name] = numpy.ascontiguousarray(gguf.quantize(values, gguf.GGMLQuantizationType[name]).reshape(-1).view(numpy.uint8))
    encoders = ctypes.CDLL(library)
    encoders.ggml_quantize_chunk.restype = ctypes.c_size_t
    encoders.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    for name in ENCODED_BY_LLAMA_CPP:
        kind = gguf.GGMLQuantizationType[name]
        blocks = numpy.zeros(len(values) * gguf.GGML_QUANT_SIZES[kind][1], numpy.uint8)
        encoders.ggml_quantize_chunk(int(kind), values.ctypes.data, blocks.ctypes.data, 0, *values.shape, None)
        tensors[name] = blocks
    save_file(tensors, HERE / "gguf/encoded.safetensors")


if __name__ == "__main__":
    if sys.argv[3:] == ["blocks"]:
        write_blocks()
        write_encoded(sys.argv[2])
        sys.exit()
    logging.disable(logging.WARNING)
    if sys.argv[3:]:
        write_models(sys.argv[3:])
        sys.exit()
    for folder in ("models", "tokenizer"):
        shutil.rmtree(HERE / "gguf" / folder, ignore_errors=True)
        (HERE / "gguf" / folder).mkdir(parents=True)
    write_blocks()
    write_encoded(sys.argv[2])
    write_tokenizers()
    write_models(MODELS)
