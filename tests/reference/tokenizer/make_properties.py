"""Records properties.json: which Unicode characters each property and class matches in the patterns of `tokenizers`.

    python3 make_properties.py

For each pattern, it records the number of matching characters and the 64-bit FNV-1a hash of their code points (4 bytes
each, little endian, ascending).
"""
import json
import pathlib

import tokenizers
from tokenizers import Regex, pre_tokenizers

HERE = pathlib.Path(__file__).parent
PATTERNS = [r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{Mn}", r"\p{N}", r"\p{Nd}", r"\p{P}",
            r"\p{S}", r"\p{Z}", r"\p{C}", r"\p{Cn}", r"\P{L}", r"\s", r"\S", r"\w", r"\W", r"\d", r"[\w]", r"[\s\S]", r"[^\s\p{L}\p{N}]",
            r"[[:alpha:]]", r"[[:punct:]]", r"[[:upper:]]", r"[[:lower:]]", r"[[:space:]]", r"\p{Han}", r"\p{Latin}", r"\p{Cyrillic}",
            r"\p{Alphabetic}", r"\p{Emoji}"]  # fmt: skip
MARK = "\x01"  # separates the characters, so that no match contains two of them
CHUNK = 4000


def matched(pattern: str, characters: list[int]) -> list[int]:
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})(?={MARK})|{MARK}"), "removed", invert=True)
    found = []
    for at in range(0, len(characters), CHUNK):
        text = "".join(chr(c) + MARK for c in characters[at:at + CHUNK])
        found += [ord(piece) for piece, _ in split.pre_tokenize_str(text) if piece != MARK]
    return found


def fnv1a(characters: list[int]) -> int:
    value = 0xCBF29CE484222325
    for character in characters:
        for byte in character.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main() -> None:
    characters = [c for c in range(2, 0x110000) if not 0xD800 <= c < 0xE000]
    rows = []
    for pattern in PATTERNS:
        found = matched(pattern, characters)
        rows.append({"pattern": pattern, "characters": len(found), "fnv1a": fnv1a(found)})
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "properties.json").write_text(f'{{"tokenizers": "{tokenizers.__version__}", "properties": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
