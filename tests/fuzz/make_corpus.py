"""Writes the seed inputs of three fuzz targets: small tokenizers that use every part of the format
(corpus/tokenizer_json and corpus/sentencepiece), and small models (corpus/gguf).

Needs `sentencepiece`.
"""
import io
import json
import os
import pathlib
import struct

import sentencepiece

HERE = pathlib.Path(__file__).parent / "corpus"
TEXT = ["the thing is the thing", "a the in thing on", "é ½ the 中文 thing"] * 30
VOCAB = ["<unk>", "<s>", "</s>", "a", "b", "c", "e", "l", "o", "▁", "Ġ", "ab", "▁ab", "##b", "b</w>", "<0xFF>", "<0x01>", "é"]


def added(**flags) -> list:
    return [{"id": 1, "content": "<s>", "special": True, "normalized": False, **flags},
            {"id": 40, "content": "E\u0301", "special": False, "normalized": True, "single_word": True}]


def bpe(**options) -> dict:
    ids = {token: i for i, token in enumerate(VOCAB)}
    return {"type": "BPE", "vocab": ids, "merges": [["a", "b"], ["▁", "ab"]], "unk_token": "<unk>", **options}


def sequence(kind: str, *steps: dict) -> dict:
    return {"type": "Sequence", kind: list(steps)}


def seeds():
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}  # fmt: skip
    yield "bpe", {"model": bpe(byte_fallback=True, fuse_unk=True), "added_tokens": added(lstrip=True), "post_processor": template,
                  "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
                  "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})}  # fmt: skip
    yield "bytes", {"model": bpe(ignore_merges=True, continuing_subword_prefix="##"), "added_tokens": added(rstrip=True),
                    "normalizer": {"type": "NFC"}, "decoder": {"type": "ByteLevel"}, "post_processor": {"type": "ByteLevel"},
                    "pre_tokenizer": sequence("pretokenizers", {"type": "Split", "pattern": {"Regex": "\\p{L}+|[\\s&&[^a]]+|\\w{1,3}"}, "behavior": "Isolated", "invert": True},
                                              {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True})}  # fmt: skip
    yield "wordpiece", {"model": {"type": "WordPiece", "vocab": {t: i for i, t in enumerate(VOCAB)}, "unk_token": "<unk>", "max_input_chars_per_word": 5},
                        "normalizer": {"type": "BertNormalizer", "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
                        "decoder": {"type": "WordPiece"}, "post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}}  # fmt: skip
    yield "unigram", {"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [[t, -float(i)] for i, t in enumerate(VOCAB)]},
                      "normalizer": sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": "DAAAAAAAAAABAAAAAgAAAGFiAA=="},
                                             {"type": "Nmt"}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Strip"}, {"type": "Lowercase"}),
                      "pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "MergedWithNext"},
                                                {"type": "WhitespaceSplit"}, {"type": "Whitespace"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}),
                      "decoder": sequence("decoders", {"type": "Metaspace", "replacement": "▁"}, {"type": "BPEDecoder", "suffix": "</w>"})}  # fmt: skip


def models():
    os.chdir(HERE)  # the model stores the path of rules.tsv, which must not depend on the machine
    rules = HERE / "rules.tsv"
    rules.write_text("BD\t31 2044 32\n65 301\tE9\n")
    for name, options in {
        "bpe": dict(model_type="bpe", byte_fallback=True, vocab_size=300, normalization_rule_name="identity"),
        "unigram": dict(model_type="unigram", vocab_size=40, normalization_rule_tsv=rules.name, user_defined_symbols=["ing"]),
        "plain": dict(model_type="bpe", vocab_size=40, normalization_rule_name="identity", add_dummy_prefix=False,
                      remove_extra_whitespaces=False, user_defined_symbols=["the", "▁▁"]),
    }.items():  # fmt: skip
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, minloglevel=2,
                                                 hard_vocab_limit=False, **options)
        yield name, model.getvalue()
    rules.unlink()
    yield "ranks", b"".join(b"%s %d\n" % (token, i) for i, token in enumerate([b"YQ==", b"Yg==", b"YWI="]))


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value) -> bytes:
    """Returns the bytes of a GGUF value: its type, then the value."""
    if isinstance(value, list):
        items = [gguf_value(item) for item in value]
        return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
    for kind, number, form in ((bool, 7, "<?"), (int, 4, "<I"), (float, 6, "<f")):
        if isinstance(value, kind):
            return struct.pack("<I", number) + struct.pack(form, value)
    return struct.pack("<I", 8) + gguf_text(value)


def gguf_model(architecture: str, tensors: dict, **values) -> bytes:
    """Returns a GGUF file. Each tensor is given as (dims in the order of the file, type, size in bytes)."""
    values = {"general.architecture": architecture, **{f"{architecture}.{key}": value for key, value in {
        "block_count": 1, "context_length": 16, "embedding_length": 32, "feed_forward_length": 32,
        "attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-5}.items()}, **values}  # fmt: skip
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    out += b"".join(gguf_text(key) + gguf_value(value) for key, value in values.items())
    data = b""
    for name, (dims, kind, size) in tensors.items():
        out += gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += bytes(i * 37 % 251 for i in range(size)) + bytes(-size % 32)
    return out + bytes(-len(out) % 32) + data


def gguf_models():
    tokens = {"tokenizer.ggml.tokens": ["<s>", "a", "b", "ab", "\u0120", "<0x0A>"], "tokenizer.ggml.bos_token_id": 0,
              "tokenizer.chat_template": "{{ messages }}"}  # fmt: skip
    table = {"token_embd.weight": ([32, 6], 8, 6 * 34), "blk.0.attn_q.weight": ([32, 32], 2, 32 * 18), "rope_freqs.weight": ([8], 0, 32)}
    yield "llama", gguf_model("llama", table, **tokens, **{
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.token_type": [3, 1, 1, 1, 4, 6], "tokenizer.ggml.scores": [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]})  # fmt: skip
    yield "gpt2", gguf_model("gpt2", {"token_embd.weight": ([32, 6], 1, 6 * 64), "blk.0.attn_qkv.weight": ([32, 96], 3, 96 * 20)}, **tokens, **{
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1], "tokenizer.ggml.merges": ["a b"]})  # fmt: skip
    yield "mixtral", gguf_model("llama", {"token_embd.weight": ([256, 2], 12, 2 * 144), "blk.0.ffn_gate_exps.weight": ([256, 1, 2], 14, 2 * 210)},
                                **{"llama.expert_count": 2, "llama.expert_used_count": 1})  # fmt: skip


def main() -> None:
    (HERE / "gguf").mkdir(exist_ok=True)
    for name, seed in gguf_models():
        (HERE / "gguf" / name).write_bytes(seed)
    for folder in ("tokenizer_json", "sentencepiece"):
        (HERE / folder).mkdir(exist_ok=True)
    for name, seed in seeds():
        (HERE / "tokenizer_json" / name).write_text(json.dumps(seed, ensure_ascii=False) + "\n")
    (HERE / "tokenizer_json" / "too_large").write_text('{"model": 1e999}\n')
    for name, seed in models():
        (HERE / "sentencepiece" / name).write_bytes(seed)


if __name__ == "__main__":
    main()
