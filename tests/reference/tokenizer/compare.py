"""Compares `fettle tokenize` with the reference library on 2,000 and more lines, for any model folder.

    python3 compare.py FETTLE MODEL_DIR...

The reference is `tokenizers` for tokenizer.json, `sentencepiece` for a tokenizer.model. Prints a line for each folder
and the first misses; the exit code is the number of folders with any.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from lines import LINES, random_lines

BLOCKS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x530, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF),
    (0x900, 0x97F), (0x980, 0xAFF), (0xB00, 0xCFF), (0xD00, 0xE7F), (0xE80, 0xFFF), (0x1000, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x13FF), (0x1780, 0x18AF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF), (0x2100, 0x27BF),
    (0x2E80, 0x30FF), (0x3130, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA7FF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF),
    (0xF900, 0xFEFF), (0xFF00, 0xFFFF), (0x10000, 0x1044F), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x2A6DF),
    (0xE0000, 0xE01FF)]


def many_lines() -> list[str]:
    source = random.Random(7)
    lines = LINES + random_lines(700)
    for first, last in BLOCKS * 20:
        words = ["".join(chr(source.randint(first, last)) for _ in range(source.randint(1, 9)))
                 + source.choice([" ", "  ", "\n", ".", ",", "-", "", "1", "_"]) for _ in range(source.randint(1, 6))]
        lines.append("".join(words))
    for _ in range(400):
        spans = [source.choice([(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)])
                 for _ in range(source.randint(1, 30))]
        lines.append("".join(chr(source.randint(*span)) for span in spans))
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


def reference(folder: pathlib.Path):
    """Encode, decode, and the strings that the two treat differently."""
    if (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return (lambda line: tokenizer.encode(line, add_special_tokens=False).ids,
                lambda ids: tokenizer.decode(ids, skip_special_tokens=False), [])
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    special = [pieces.id_to_piece(i) for i in range(len(pieces)) if pieces.is_control(i) or pieces.is_unknown(i)]
    return pieces.encode, lambda ids: pieces.decode(ids).replace(" \u2047 ", "<unk>"), special


def main() -> int:
    program, folders = sys.argv[1], sys.argv[2:]
    failed = 0
    for folder in folders:
        encode, decode, different = reference(pathlib.Path(folder))
        lines = [line for line in many_lines() if not any(symbol in line for symbol in different)]
        rows = [encode(line) for line in lines]
        ours = fettle(program, folder, ["--no-special"], lines)
        texts = fettle(program, folder, ["--decode"], rows)
        misses = [(line, row, own) for line, row, own in zip(lines, rows, ours) if row != own]
        undone = [(row, text) for row, text in zip(rows, texts) if decode(row) != text]
        print(f"{folder}: {len(lines)} lines, {len(misses)} with other ids, {len(undone)} with other texts")
        for line, row, own in misses[:5]:
            print(f"  {line!r}\n    reference {row[:40]}\n    fettle    {own[:40]}")
        for row, text in undone[:5]:
            print(f"  {row[:40]}\n    reference {decode(row)!r}\n    fettle    {text!r}")
        failed += bool(misses or undone)
    return failed


if __name__ == "__main__":
    sys.exit(main())
