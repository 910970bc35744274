"""Trains the small tokenizers of this folder and records what the reference library does with the difficult lines.

    python3 make_tokenizers.py [record]

It needs `tokenizers` 0.23, `sentencepiece`, `protobuf` and `tiktoken`; training also needs `apt-cache dumpavail`.
With `record`, it keeps the tokenizers and only writes ids.json and steps.json.
The regular expressions are those in the named models' files.
"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from lines import all_lines

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def special(*contents: str) -> list[AddedToken]:
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def training_text() -> list[str]:
    available = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in available.split("\n") if line.startswith(" ")][:60000]
    return lines[::3] + all_lines() * 3


def train_bpe(tokenizer: Tokenizer, size: int, specials=(), alphabet=True, **options) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [], **options)
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


def byte_level(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])


def gpt2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train_bpe(tokenizer, 700)
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    return tokenizer


def llama3() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = byte_level(LLAMA3)
    tokenizer.decoder = decoders.ByteLevel()
    train_bpe(tokenizer, 900)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                         "<|end_header_id|>", "<|eot_id|>"))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
    return tokenizer


def qwen2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = byte_level(QWEN2)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train_bpe(tokenizer, 900)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def edges() -> Tokenizer:
    """Returns a tokenizer with added tokens of every kind, a normalizer that changes lengths, a prefix space and an
    unknown token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"\d{2}"), "#"), normalizers.Replace("tt", "T")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train_bpe(tokenizer, 500, specials=["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([
        AddedToken("LEFT", lstrip=True, normalized=False), AddedToken("RIGHT", rstrip=True, normalized=False),
        AddedToken("BOTH", lstrip=True, rstrip=True, normalized=False),
        AddedToken("solo", single_word=True, normalized=False), AddedToken("Norm", normalized=True),
        AddedToken("e\u0301norm", normalized=True), AddedToken("<|im_end|>", special=True, normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def llama2() -> Tokenizer:
    """Returns a tokenizer like those converted from SentencePiece: the whole text is one word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    train_bpe(tokenizer, 900, ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)], alphabet=False,
              limit_alphabet=200)
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = None
    content["added_tokens"] = content["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def bert() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=900, show_progress=False, limit_alphabet=250,
                                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def unigram() -> Tokenizer:
    """Returns the SentencePiece model in sp_unigram, with its charsmap, as a tokenizer.json."""
    proto = sentencepiece_proto("sp_unigram")
    tokenizer = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Nmt(),
        normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(special("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


def sentencepiece_proto(name: str):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((HERE / name / "tokenizer.model").read_bytes())
    return proto


def train_sentencepiece(name: str, **options) -> None:
    """Trains a SentencePiece model. Its charsmap has only a few rules, because the usual charsmap has 240 KB."""
    import sentencepiece

    (HERE / name).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text("".join("\t".join(" ".join(f"{ord(c):X}" for c in part) for part in rule) + "\n" for rule in [
            ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u2003", " "), ("ﬁ", "fi"),
            ("ﬂ", "fl"), ("ﬃ", "ffi"), ("½", "1⁄2"), ("²", "2"), ("①", "1"), ("™", "TM"), ("…", "..."), ("e\u0301", "é"),
            ("n\u0303", "ñ"), ("a\u0308", "ä"), ("Ａ", "A"), ("１", "1"), ("ｱ", "ア"), ("㎏", "kg"), ("\u200b", " "),
            ("\u1100\u1161", "가"), ("\u1100\u1161\u11a8", "각")]))
        text = pathlib.Path(folder) / "text.txt"
        lines = [part.strip() for line in training_text() for part in line.replace("\0", "").splitlines()]
        text.write_text("\n".join(line for line in lines if line))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=folder + "/m", minloglevel=2, character_coverage=0.98, byte_fallback=True,
            normalization_rule_tsv=str(rules), user_defined_symbols=["<user>", "[X]"], control_symbols=["<ctl>"],
            vocab_size=700, **options)
        (HERE / name / "tokenizer.model").write_bytes(pathlib.Path(folder, "m.model").read_bytes())


def record_sentencepiece(name: str) -> None:
    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_file=str(HERE / name / "tokenizer.model"))
    ids, decoded = [], []
    for line in all_lines()[::EVERY]:
        # Fettle finds control symbols in a text, as Transformers does. The sentencepiece library treats them as plain
        # text.
        plain = not any(symbol in line for symbol in ("<s>", "</s>", "<unk>", "<ctl>"))
        row = reference.encode(line) if plain else None
        text = reference.decode(row) if plain else None
        ids.append(row)
        decoded.append(None if text == line else text)
    write(HERE / name / "ids.json", {"every": EVERY, "ids": ids, "decoded": decoded})


def make_ranks() -> None:
    """Writes the vocabulary of llama3 in the file layout of Llama 3's tokenizer.model."""
    byte_of = {c: b for b, c in pre_alphabet().items()}
    vocab = json.loads((HERE / "llama3" / "tokenizer.json").read_text())["model"]["vocab"]
    folder = HERE / "ranks"
    folder.mkdir(exist_ok=True)
    with open(folder / "tokenizer.model", "w") as file:
        for token, rank in sorted(vocab.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(bytes(byte_of[c] for c in token)).decode() + f" {rank}\n")


def pre_alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def record_ranks() -> None:
    import tiktoken

    pairs = [line.split() for line in (HERE / "ranks" / "tokenizer.model").read_text().splitlines()]
    reference = tiktoken.Encoding("ranks", pat_str=LLAMA3, special_tokens={},
                                  mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in pairs})
    ids = [reference.encode_ordinary(line) for line in all_lines()[::EVERY]]
    write(HERE / "ranks" / "ids.json", {"every": EVERY, "ids": ids, "decoded": [None] * len(ids)})


EVERY = 3  # some tokenizers record only every third line, so that the folder stays small
TOKENIZERS = {"gpt2": (gpt2, 1), "llama3": (llama3, 1), "qwen2": (qwen2, 1), "edges": (edges, 1),
              "llama2": (llama2, EVERY), "bert": (bert, EVERY), "unigram": (unigram, EVERY)}


def legacy_merges(path: pathlib.Path) -> None:
    """Spells the merges as "a b", like files from before 2024."""
    content = json.loads(path.read_text())
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    write(path, content)


def write(path: pathlib.Path, content) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def record(name: str, every: int) -> None:
    folder = HERE / name
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids, decoded = [], []
    for line in all_lines()[::every]:
        row = tokenizer.encode(line, add_special_tokens=False).ids
        text = tokenizer.decode(row, skip_special_tokens=False)
        ids.append(row)
        decoded.append(None if text == line else text)
    added = tokenizer.get_added_tokens_decoder()
    write(folder / "ids.json", {
        "every": every, "ids": ids, "decoded": decoded,
        "with_special": [tokenizer.encode(line).ids for line in all_lines()[:6]],
        "decoded_without_special": [tokenizer.decode(row) for row in ids[-30:]],
        "tokens": [added[i].content if i in added else tokenizer.id_to_token(i)
                   for i in range(tokenizer.get_vocab_size())][-12:]})


BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def steps() -> dict:
    """Returns the results of single normalizers, pre-tokenizers and decoders."""
    pre = [pre_tokenizers.Split(Regex(r"[\s,]+|x"), behavior, invert=invert)
           for behavior in BEHAVIORS for invert in (False, True)]
    pre += [pre_tokenizers.Split("a", behavior) for behavior in BEHAVIORS]
    pre += [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (
        LLAMA3, QWEN2, O200K, r"\w+|[^\w\s]+", r"\p{N}{3}(?=\p{N})|\u0061", r"^.|.$", r"[^\S\n]+|\n", r"x*",
        r"[[:alpha:]]+", r"\d|\D{3}", r"[\p{L}&&[^\p{Han}]]+", r"[一-龥]+|\p{^L}", r"(?<=a)b|\bc\b")]
    pre += [pre_tokenizers.Digits(), pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.ByteLevel(use_regex=False),
            pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Metaspace(prepend_scheme="never", split=False)]
    pre += [pre_tokenizers.Punctuation(behavior) for behavior in BEHAVIORS]
    norm = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(),
            normalizers.StripAccents(), normalizers.Strip(), normalizers.Strip(right=False), normalizers.Prepend("▁"),
            normalizers.Replace(" ", "▁"), normalizers.Replace(Regex(r"\s+"), ""), normalizers.Replace(Regex("x*"), "-"),
            normalizers.ByteLevel()]
    few = [line for i, line in enumerate(all_lines()) if i % 6 == 0 and len(line) < 80]
    tokens = ["▁Hello", "▁▁wor", "##ld", "<0xE4>", "<0xB8>", "<0xAD>", "<0xE4>", "a", "<0xF0>", "Ġx", "Ċ", "é", "中",
              "▁", " .", "n't", "</w>", "e</w>", "don 't"]
    dec = [decoders.ByteLevel(), decoders.ByteFallback(), decoders.Fuse(), decoders.Metaspace(),
           decoders.Metaspace(prepend_scheme="never"), decoders.WordPiece(), decoders.WordPiece(cleanup=False),
           decoders.BPEDecoder(), decoders.Replace("▁", " "), decoders.Strip("▁", 1, 0), decoders.Strip("a", 0, 1),
           decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])]

    def config(step) -> dict:
        return json.loads(step.__getstate__())

    return {
        "lines": few, "tokens": tokens,
        "pre_tokenizers": [{"config": config(s), "pieces": [
            [piece for piece, _ in s.pre_tokenize_str(line)] for line in few[:: 2 if i >= 15 else 5]],
            "every": 2 if i >= 15 else 5} for i, s in enumerate(pre)],
        "normalizers": [{"config": config(s), "changed": {
            str(i): s.normalize_str(line) for i, line in enumerate(few) if s.normalize_str(line) != line}}
            for s in norm],
        "decoders": [{"config": config(s), "text": s.decode(tokens), "first": s.decode(tokens[:1])} for s in dec],
    }


def main() -> None:
    recording = "record" in sys.argv
    if not recording:
        train_sentencepiece("sp_bpe", model_type="bpe")
        train_sentencepiece("sp_unigram", model_type="unigram")
    for name, (build, every) in TOKENIZERS.items():
        path = HERE / name / "tokenizer.json"
        if not recording:
            path.parent.mkdir(exist_ok=True)
            build().save(str(path), pretty=False)
            if name == "gpt2":
                legacy_merges(path)
        record(name, every)
    if not recording:
        make_ranks()
    for name in ("sp_bpe", "sp_unigram"):
        record_sentencepiece(name)
    record_ranks()
    write(HERE / "steps.json", steps())


if __name__ == "__main__":
    main()
