"""Compares `fettle tokenize` with the reference libraries on many random tokenizers, which are trained on a small text.

    python3 random_configs.py FETTLE [--count N] [--seconds S] [--seed K] [--only I] [--keep FOLDER]

Most are a tokenizer.json with random normalizers, pre-tokenizers, model, added tokens, post-processor and decoders.
Every fourth is a SentencePiece model with random options. It compares the ids of over 2,000 lines with and without
special tokens, the texts of these ids, and the texts of random ids. Prints the first differences and their number per
component. The exit code is 1 if there are differences.
"""
import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ["RUST_BACKTRACE"] = "0"
import sentencepiece  # noqa: E402
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)  # noqa: E402

from compare import fettle, many_lines  # noqa: E402
from lines import LINES  # noqa: E402

BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PATTERNS = [
    r"\s+", r"\w+|[^\w\s]+", r"\d", r"\d{1,3}", r"[A-Z]", r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]+", r" ?\p{L}+", r"x*",
    r"(?i)the|and", r"[\p{Han}\p{Hiragana}]", r"\s+(?!\S)|\s+", r"(?<=a)b", r"^.|.$", r"[a-c&&[^b]]", r"[[:alpha:]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"[\p{P}\p{S}]", r"\bthe\b", r"\h+",
    r"(?:a|b|é)+", r"[^\r\n]+|\r?\n", r"\p{M}+", r"\p{Lu}\p{Ll}*", r"\p{Letter}+", r"[\P{L}]", r"[^\D]", r"\D{2}", r"\W+",
    r"[[:^alpha:]]+", r"[\w&&[^\d_]]+", r"[a-z&&aeiou]", r"[x[0-9]]+", r"(?m:.{1,4})", r".{1,4}", r"\A\w+", r"\w+\z", r"\v|\t",
    r"(?<q>[a-z])\k<q>", r"(?:ab|th)++", r"(?<!a)b|(?<=\s)t", r"(?!the)\w{3}", r"(?i:strasse|it's)", r"[é-ü]+", r"\Bt\B",
    r"[\p{Latin}\p{Cyrillic}]+|\p{Han}", r"\p{Alpha}+|\p{P}", r"[^\p{C}\s]+", r"[[:punct:]]+", r"$\n?|^", r"\b"]  # fmt: skip
STRINGS = [" ", "▁", "a", "e", "  ", "\n", "the", "é", "中", "😀", "'", "xx", "-", "''", "``"]
ADDED = ["<s>", "</s>", "<|im_end|>", "<|im_start|>", "[CLS]", "[SEP]", "LEFT", "BOTH", "solo", "Norm", "the", "he", "The",
         " sp ", "é", "e\u0301", "中", "😀", "Café", "İ", "ﬁ", "½", "\n\n", "'s", "ing", "<|", "|>", "x=1", "#", "a b", "▁a",
         "def", "self.", "\u00a0", "No", "Normal", "<0x0A>", "100"]  # fmt: skip
FAMILIES = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder")


class Sampler:
    """Draws the parts of one random tokenizer, and records the names of the parts that were drawn."""

    def __init__(self, seed, charsmaps):
        self.random = random.Random(seed)
        self.charsmaps = charsmaps
        self.parts = []

    def one(self, choices):
        return self.random.choice(choices)

    def maybe(self, chance=0.5):
        return self.random.random() < chance

    def note(self, family, part):
        self.parts.append(f"{family} {type(part).__name__}")
        return part

    def pattern(self):
        return Regex(self.one(PATTERNS)) if self.maybe() else self.one(STRINGS)

    def normalizer(self, depth=0):
        kind = self.random.randrange(16 if depth == 0 else 14)
        if kind >= 14:
            steps = [self.normalizer(1) for _ in range(self.random.randint(1, 4))]
            return self.note("normalizer", normalizers.Sequence(steps))
        return self.note("normalizer", [
            normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase,
            normalizers.StripAccents, normalizers.Nmt, normalizers.ByteLevel,
            lambda: normalizers.Replace(self.pattern(), self.one(["", " ", "▁", "-", "ab", "É"])),
            lambda: normalizers.Prepend(self.one(["▁", " ", "x", "é"])),
            lambda: normalizers.Strip(left=self.maybe(), right=self.maybe()),
            lambda: normalizers.BertNormalizer(self.maybe(), self.maybe(), self.one([None, True, False]), self.maybe()),
            lambda: normalizers.Precompiled(self.one(self.charsmaps)),
            lambda: normalizers.Replace(Regex(r" {2,}"), " "),
        ][kind]())  # fmt: skip

    def pre_tokenizer(self, depth=0):
        kind = self.random.randrange(13 if depth == 0 else 9)
        if kind >= 9:
            steps = [self.pre_tokenizer(1) for _ in range(self.random.randint(1, 3))]
            return self.note("pre_tokenizer", pre_tokenizers.Sequence(steps))
        return self.note("pre_tokenizer", [
            lambda: pre_tokenizers.ByteLevel(add_prefix_space=self.maybe(), use_regex=self.maybe(0.7)),
            lambda: pre_tokenizers.Split(self.pattern(), self.one(BEHAVIORS), invert=self.maybe(0.4)),
            lambda: pre_tokenizers.Split(self.pattern(), self.one(BEHAVIORS), invert=self.maybe(0.4)),
            lambda: pre_tokenizers.Metaspace(self.one(["▁", "▁", "_"]), self.one(["always", "first", "never"]),
                                             self.maybe(0.7)),
            pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer,
            lambda: pre_tokenizers.Digits(individual_digits=self.maybe()),
            lambda: pre_tokenizers.Punctuation(self.one(BEHAVIORS)),
        ][kind]())  # fmt: skip

    def decoder(self, depth=0):
        kind = self.random.randrange(12 if depth == 0 else 8)
        if kind >= 8:
            return self.note("decoder", decoders.Sequence([self.decoder(1) for _ in range(self.random.randint(1, 4))]))
        return self.note("decoder", [
            decoders.ByteLevel, decoders.ByteFallback, decoders.Fuse,
            lambda: decoders.Replace(self.pattern(), self.one(["", " ", "-"])),
            lambda: decoders.Metaspace(self.one(["▁", "_"]), self.one(["always", "first", "never"])),
            lambda: decoders.WordPiece(self.one(["##", "#", "@@"]), self.maybe()),
            lambda: decoders.BPEDecoder(self.one(["</w>", "a"])),
            lambda: decoders.Strip(self.one([" ", "▁", "a"]), self.random.randint(0, 3), self.random.randint(0, 2)),
        ][kind]())  # fmt: skip

    def model(self, byte_level, lines):
        """Returns a tokenizer with a model that is trained on `lines`. Its options are then changed at random."""
        kind = self.one(["BPE"] * 5 + ["WordPiece"] * 2 + ["Unigram"] * 3)
        special = ["<unk>", *self.random.sample(["<s>", "</s>", "[CLS]", "<pad>"], 2)]
        alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level or self.maybe(0.2) else []
        common = dict(vocab_size=self.random.randint(300, 1200), show_progress=False, special_tokens=special)
        bytes_too = self.maybe(0.4)
        if kind == "BPE":
            prefix = self.one(["", "", "", "##"])
            suffix = self.one(["", "", "", "</w>"])
            spelling = dict(continuing_subword_prefix=prefix, end_of_word_suffix=suffix)
            spelling = {key: value for key, value in spelling.items() if value}
            unknown = self.one([{}, dict(unk_token="<unk>"), dict(unk_token="<unk>")])
            model = models.BPE(fuse_unk=self.maybe(), **unknown, **spelling)
            limit = self.one([{}, dict(limit_alphabet=150), dict(limit_alphabet=400)])
            trainer = trainers.BpeTrainer(**common, initial_alphabet=alphabet, **limit, **spelling)
        elif kind == "WordPiece":
            model = models.WordPiece(unk_token="<unk>", max_input_chars_per_word=self.one([3, 20, 100]))
            trainer = trainers.WordPieceTrainer(**common, initial_alphabet=alphabet, limit_alphabet=self.one([150, 400]))
        else:
            model = models.Unigram()
            trainer = trainers.UnigramTrainer(**common, initial_alphabet=alphabet, unk_token="<unk>",
                                              max_piece_length=self.one([3, 16]))
        tokenizer = Tokenizer(self.note("model", model))
        if self.maybe(0.75):
            tokenizer.normalizer = self.normalizer()
        if self.maybe(0.85):
            tokenizer.pre_tokenizer = self.pre_tokenizer()
        tokenizer.train_from_iterator(lines, trainer)
        content = json.loads(tokenizer.to_str())
        settings = content["model"]
        if bytes_too and kind != "WordPiece":
            settings["byte_fallback"] = True
            self.parts.append("model byte_fallback")
            spelled = [f"<0x{i:02X}>" for i in range(256) if self.maybe(0.98) or i < 128]
            if kind == "BPE":
                for piece in spelled:
                    settings["vocab"].setdefault(piece, len(settings["vocab"]))
            else:
                settings["vocab"] += [[piece, -20.0] for piece in spelled]
        if kind == "BPE":
            settings["ignore_merges"] = self.maybe(0.3)
            if self.maybe(0.2):
                settings["merges"] = [" ".join(pair) for pair in settings["merges"]]
                settings["merges"] = [m for m in settings["merges"] if m.count(" ") == 1]
        return Tokenizer.from_str(json.dumps(content))

    def added_tokens(self, tokenizer):
        tokens = [AddedToken(text, single_word=self.maybe(0.3), lstrip=self.maybe(0.3), rstrip=self.maybe(0.3),
                             normalized=self.maybe(), special=self.maybe(0.4))
                  for text in self.random.sample(ADDED, self.random.randint(0, 8))]  # fmt: skip
        # If an added token is normalized to an empty text, the reference finds it everywhere. If two tokens are
        # normalized to the same text, the reference may choose either.
        spell = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
        tokens = {spell(t.content) if t.normalized else t.content: t for t in tokens}
        tokens = [token for spelling, token in tokens.items() if spelling]
        tokenizer.add_tokens([token for token in tokens if not token.special])
        tokenizer.add_special_tokens([token for token in tokens if token.special])

    def post_processor(self, tokenizer, depth=0):
        known = [(text, tokenizer.token_to_id(text)) for text in ("<unk>", "<s>", "</s>", "[CLS]", "<pad>")]
        known = [pair for pair in known if pair[1] is not None]
        kind = self.random.randrange(7 if depth == 0 else 6)
        if kind == 6:
            steps = [self.post_processor(tokenizer, 1) for _ in range(self.random.randint(1, 3))]
            return self.note("post_processor", processors.Sequence(steps))
        begin, end = self.one(known), self.one(known)
        single = self.one(["B $A E", "B $A", "$A E", "$A", "B B $A:0 E", "B:1 $0 E:1", "B $A E $A"])
        single = single.replace("B", begin[0]).replace("E", end[0])
        template = lambda: processors.TemplateProcessing(single=single, pair="$A $B:1", special_tokens=known)
        return self.note("post_processor", [
            template, template, template, lambda: processors.ByteLevel(trim_offsets=self.maybe()),
            lambda: processors.BertProcessing(end, begin),
            lambda: processors.RobertaProcessing(end, begin, self.maybe(), self.maybe()),
        ][kind]())  # fmt: skip


def json_tokenizer(sampler, lines):
    byte_level = sampler.maybe(0.3)
    tokenizer = sampler.model(byte_level, lines)
    if byte_level and sampler.maybe():
        split = pre_tokenizers.Split(Regex(sampler.one(PATTERNS)), "isolated", invert=sampler.maybe(0.2))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=sampler.maybe(0.3), use_regex=sampler.maybe(0.3))])
        sampler.parts.append("pre_tokenizer ByteLevel over Split")
    sampler.added_tokens(tokenizer)
    if sampler.maybe(0.8):
        tokenizer.post_processor = sampler.post_processor(tokenizer)
    if sampler.maybe(0.85):
        tokenizer.decoder = sampler.decoder()
    return tokenizer


def sentencepiece_model(sampler, lines):
    options = dict(
        model_type=sampler.one(["bpe", "unigram"]), vocab_size=sampler.random.randint(600, 1500),
        byte_fallback=sampler.maybe(), add_dummy_prefix=sampler.maybe(0.8), remove_extra_whitespaces=sampler.maybe(),
        normalization_rule_name=sampler.one(["identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf"]),
        split_digits=sampler.maybe(), split_by_whitespace=sampler.maybe(0.8), split_by_unicode_script=sampler.maybe(),
        allow_whitespace_only_pieces=sampler.maybe(), pad_id=sampler.one([-1, 3]),
        user_defined_symbols=sampler.random.sample(["<sep>", "the", "  ", "中", "<|im_end|>", "ing"], sampler.one([0, 2, 4])),
        character_coverage=sampler.one([0.98, 0.99]))  # fmt: skip
    sampler.parts += [f"sentencepiece {key}={value}" for key, value in options.items() if isinstance(value, (str, bool))]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2,
                                             hard_vocab_limit=False, **options)
    return model.getvalue()


def charsmaps(lines):
    """Returns the replacement tables that SentencePiece builds from its rules, in the form of tokenizer.json."""
    found = []
    for rule in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf"):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2,
                                                 hard_vocab_limit=False, vocab_size=400, model_type="char",
                                                 character_coverage=0.98, normalization_rule_name=rule)
        normalizer_spec = field(model.getvalue(), 3)
        found.append(field(normalizer_spec, 2))
    return found


def field(message, wanted):
    """Returns the bytes of the first field with number `wanted` of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        size = {1: 8, 5: 4}.get(kind) or varint()
        if kind == 2 and key >> 3 == wanted:
            return message[at : at + size]
        at += size if kind else 0
    raise ValueError(f"no field {wanted}")


@contextlib.contextmanager
def quiet():
    """Keeps panic messages off stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Reference:
    """Gives the reference library's results for lines and ids. A result is None if the library fails."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def each(self, one, rows):
        found = []
        with quiet():
            for row in rows:
                try:
                    found.append(one(row))
                except BaseException as failure:  # a panic in Rust is not an Exception
                    if isinstance(failure, KeyboardInterrupt):
                        raise
                    found.append(None)
        return found

    def encode(self, lines, special):
        return self.each(lambda row: self.tokenizer.encode(row, add_special_tokens=special).ids, lines)

    def decode(self, rows, skip):
        return self.each(lambda row: self.tokenizer.decode(row, skip_special_tokens=skip), rows)


class SentencePieceReference:
    def __init__(self, path):
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
        count = len(self.pieces)
        self.special = [self.pieces.id_to_piece(i) for i in range(count)
                        if self.pieces.is_control(i) or self.pieces.is_unknown(i)]  # fmt: skip
        self.size = count

    def encode(self, lines):
        return self.pieces.encode(lines)

    def decode(self, rows):
        return [text.replace(" \u2047 ", "<unk>") for text in self.pieces.decode(rows)]


class Refused(Exception):
    """Fettle refused the tokenizer and named the unsupported part."""


def misses(program, folder, checks):
    """Yields (what, input, wanted, got) for every difference. `checks` are (what, options, rows, wanted)."""
    for what, options, rows, wanted in checks:
        known = [i for i, each in enumerate(wanted) if each is not None]
        try:
            found = fettle(program, str(folder), options, [rows[i] for i in known])
        except SystemExit as failure:
            if "is not supported" in str(failure):
                raise Refused(str(failure).strip()) from None
            yield what, "", "", f"refused: {failure}"
            continue
        for i, got in zip(known, found):
            if got != wanted[i]:
                yield what, rows[i], wanted[i], got


def checks_of_json(tokenizer, lines, source):
    reference = Reference(tokenizer)
    plain = reference.encode(lines, False)
    size = tokenizer.get_vocab_size()
    rows = [row for row in plain if row is not None]
    rows += [[source.randrange(size) for _ in range(source.randint(1, 12))] for _ in range(300)]
    return [
        ("ids", ["--no-special"], lines, plain), ("ids with special tokens", [], lines, reference.encode(lines, True)),
        ("text", ["--decode"], rows, reference.decode(rows, False)),
        ("text without special tokens", ["--decode", "--no-special"], rows, reference.decode(rows, True)),
    ]  # fmt: skip


def checks_of_model(folder, lines, source):
    reference = SentencePieceReference(folder / "tokenizer.model")
    lines = [line for line in lines if not any(symbol in line for symbol in reference.special)]
    ids = reference.encode(lines)
    rows = ids + [[source.randrange(reference.size) for _ in range(source.randint(1, 12))] for _ in range(300)]
    rows = [row for row in rows if not any(reference.pieces.is_control(i) for i in row)]
    return [("ids", ["--no-special"], lines, ids), ("text", ["--decode"], rows, reference.decode(rows))]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("fettle")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="test only this one")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for tokenizers with differences")
    given = parser.parse_args()

    lines = many_lines()
    training = [line[:300] for line in random.Random(3).sample(lines, 900) if line.strip()]
    ascii_lines = [line for line in lines if line.isascii() and line.strip()]
    few_scripts = LINES + ascii_lines * 3
    maps = charsmaps(few_scripts)
    used, missed, reasons = collections.Counter(), collections.Counter(), collections.Counter()
    done = failed = skipped = 0
    start = time.monotonic()
    for i in range(given.count) if given.only is None else [given.only]:
        if time.monotonic() - start > given.seconds:
            break
        sampler = Sampler(given.seed * 1_000_003 + i, maps)
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            if i % 4 == 3:
                (folder / "tokenizer.model").write_bytes(sentencepiece_model(sampler, few_scripts))
                checks = checks_of_model(folder, lines, sampler.random)
            else:
                try:
                    tokenizer = json_tokenizer(sampler, training + ascii_lines)
                except BaseException as failure:  # some parts cannot be trained together
                    if isinstance(failure, KeyboardInterrupt):
                        raise
                    if given.only is not None:
                        raise
                    reasons[str(failure)[:60]] += 1
                    skipped += 1
                    continue
                tokenizer.save(str(folder / "tokenizer.json"))
                tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
                checks = checks_of_json(tokenizer, lines, sampler.random)
            try:
                found = list(misses(given.fettle, folder, checks))
            except Refused as reason:
                reasons["refused:" + str(reason).rsplit(":", 1)[-1]] += 1
                skipped += 1
                continue
            if found and given.keep:
                to = given.keep / f"{given.seed}-{i}"
                to.mkdir(parents=True, exist_ok=True)
                for file in folder.iterdir():
                    (to / file.name).write_bytes(file.read_bytes())
        done += 1
        used.update(set(sampler.parts))
        if found:
            failed += 1
            missed.update(set(sampler.parts))
            print(f"{i}: {len(found)} misses with {', '.join(sampler.parts)}")
            for what, row, wanted, got in found[:3]:
                print(f"  {what} of {row!r:.300}\n    reference {wanted!r:.300}\n    fettle    {got!r:.300}", flush=True)
    print(f"{done} random tokenizers ({skipped} not compared), {len(lines)} lines each: {failed} with misses")
    for reason, count in reasons.items():
        print(f"  {count} not compared: {reason}")
    for part, count in sorted(used.items()):
        if missed[part]:
            print(f"  {part}: {missed[part]} of {count} with misses")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
