"""Writes a Llama checkpoint of a given shape with random weights, and rows to train it on, for Fettle and its peers.

usage: make_model.py FOLDER [--hidden 576 ...]      the defaults are the 135M shape

A complete folder that was made with the same flags is left as it is.
"""

import argparse
import json
import pathlib
import random

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DEFAULT_SHAPE = {"hidden": 576, "layers": 30, "heads": 9, "kv-heads": 3, "mlp": 1536, "vocab": 49152}


def byte_tokenizer():
    """Returns a tokenizer.json of the 256 bytes and <|endoftext|>."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=256, content="<|endoftext|>", **flags)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                      fuse_unk=False, byte_fallback=False, ignore_merges=False,
                      vocab={letters[byte]: byte for byte in range(256)}, merges=[]),
    }  # fmt: skip


def write_rows(path, rows, length, vocab):
    """Writes `rows` rows of `length` random ids; every token except the first is trained."""
    draw = random.Random(1)
    with path.open("w") as out:
        for _ in range(rows):
            ids = [draw.randrange(vocab) for _ in range(length)]
            out.write(json.dumps(dict(input_ids=ids, labels=[-100, *ids[1:]])) + "\n")


def write_model(folder, shape):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, intermediate_size=shape.mlp, vocab_size=shape.vocab,
        max_position_embeddings=max(2048, shape.length), tie_word_embeddings=not shape.untied,
        bos_token_id=256, eos_token_id=256,
    )  # fmt: skip
    with torch.device(shape.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, shape.dtype))
    model.save_pretrained(folder, **({"max_shard_size": shape.shard} if shape.shard else {}))
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(), ensure_ascii=False))
    names = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return sum(p.numel() for p in model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in DEFAULT_SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--untied", action="store_true", help="untie the head from the embedding")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rows", type=int, default=64, help="rows in rows.jsonl")
    parser.add_argument("--length", type=int, default=512, help="ids per row")
    parser.add_argument("--shard", help="size of the largest weight file, such as 1GB")
    parser.add_argument("--device", default="cpu", help="where the weights are drawn; cuda is faster for large models")
    shape = parser.parse_args()
    said = {k: str(v) for k, v in vars(shape).items() if k not in ("folder", "device") and v is not None}
    stamp = shape.folder / "shape.json"
    if stamp.exists() and json.loads(stamp.read_text()) == said:
        return
    shape.folder.mkdir(parents=True, exist_ok=True)
    count = write_model(shape.folder, shape)
    write_rows(shape.folder / "rows.jsonl", shape.rows, shape.length, shape.vocab)
    stamp.write_text(json.dumps(said))
    print(f"{shape.folder}: {count / 1e6:.1f} M weights, {shape.rows} rows of {shape.length}")


if __name__ == "__main__":
    main()
