#!/usr/bin/env python3
"""Records gguf/words.json: how llama.cpp cuts texts by each method that tokenizer.ggml.pre can name.

The vocabulary has merges across words, so that another cut gives other ids. Its tokens are the 256 bytes in GPT-2's
alphabet, what each merge makes, and "<s>". No file says whether a text begins with "<s>", so the ids show what a method
does by itself. usage: gguf_words.py (with the packages of requirements-llama-cpp.txt)
"""
import collections
import ctypes
import importlib.util
import json
import pathlib
import tempfile

import gguf

HERE = pathlib.Path(__file__).resolve().parent
NAMES = """gpt-2 phi-2 granite-docling olmo mpt smollm starcoder refact codeshell command-r llama-bpe llama3
llama-v3 lfm2 falcon-h1 falcon3 pixtral midm-2.0 smaug-bpe glm4 dbrx chatglm-bpe qwen2 deepseek-r1-qwen qwen35 deepseek-v3
deepseek-llm deepseek-coder kimi-k2 tekken gpt-4o llama4 kanana2 minimax-m2 seed-coder""".split()
MERGES = 900
LINES = [
    "Hello, world! I'm here; you're THERE, we'Ve it's don't.",
    "tabs\tand\t\ttabs  two   three    \n\n\n lines\r\n end   ",
    "1 12 123 1234 12345 and 3.14 or x12 a1b2 ½ ² ٣٤٥",
    "snake_case kebab-case PASCAL URLs don't URL's 'twas",
    "getUserName iPhone's don'tStop",
    "def f(x: int) -> str:\n    return f\"{x:>10}\"  # !!!\n\n\nclass A:\n\tpass",
    "Größe, façade, Ångström, étude",
    "e\u0301tude a\u0301\u0302b हिन्दी",
    "Привет, мир! Съешь же ещё этих",
    "你好，世界。我想在苹果公司工作abc。１２３文字ABC",
    "こんにちは世界、カタカナと漢字x ｶﾅ",
    " 々〆",
    "안녕하세요 세계! 한국어x",
    "مرحبا بالعالم! Ελλάδα ไทย",
    "🚀 emoji 👩‍👩‍👧 ✅ → ∑x²",
    "c\u3000d b\u2003c\u200be",
    "a\u00a0b /path/to//x \\n\n\n/y",
    "https://example.org/a_b?c=d&e=%20#frag ______ ====\n----\r\n",
    " 'tis  's 'LL \n \n  \t x\n",
]


def alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}
    return dict(sorted(letters.items()))


def train() -> list[tuple[str, str]]:
    """Returns merges: each joins the most frequent pair of neighbours, in whole lines. The shortest pair comes first."""
    letters = alphabet()
    rows = [[letters[b] for b in line.encode()] for line in LINES]
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter(pair for row in rows for pair in zip(row, row[1:]))
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], len(pair[0] + pair[1]), pair))
        merges.append((left, right))
        for row in rows:
            i = 0
            while i + 1 < len(row):
                if (row[i], row[i + 1]) == (left, right):
                    row[i:i + 2] = [left + right]
                i += 1
    return merges


class Params(ctypes.Structure):
    """llama_model_params: passed in memory, so room for more fields does no harm."""
    _fields_ = [("before", ctypes.c_char * 72), ("vocab_only", ctypes.c_bool), ("after", ctypes.c_char * 439)]


class Llama:
    def __init__(self):
        self.library = library = ctypes.CDLL(importlib.util.find_spec("xllamacpp.xllamacpp").origin)
        library.llama_model_default_params.restype = Params
        library.llama_model_load_from_file.restype = ctypes.c_void_p
        library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
        library.llama_model_get_vocab.restype = ctypes.c_void_p
        library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        library.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32,
                                           ctypes.c_bool, ctypes.c_bool]
        library.llama_backend_init()

    def ids(self, file: pathlib.Path) -> list[list[int]]:
        params = self.library.llama_model_default_params()
        params.vocab_only = True
        model = self.library.llama_model_load_from_file(str(file).encode(), params)
        vocab = self.library.llama_model_get_vocab(model)
        rows = []
        for line in LINES:
            text, out = line.encode(), (ctypes.c_int32 * 4096)()
            count = self.library.llama_tokenize(vocab, text, len(text), out, len(out), True, True)
            rows.append(list(out[:count]))
        return rows


def main() -> None:
    merges = train()
    tokens = list(alphabet().values()) + list(dict.fromkeys(left + right for left, right in merges)) + ["<s>"]
    llama, groups = Llama(), {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "vocab.gguf"
            writer = gguf.GGUFWriter(file, "llama")
            for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "head_count"):
                getattr(writer, f"add_{key}")(32)
            writer.add_layer_norm_rms_eps(1e-5)
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre(name)
            writer.add_token_list(tokens)
            writer.add_token_types([gguf.TokenType.NORMAL] * (len(tokens) - 1) + [gguf.TokenType.CONTROL])
            writer.add_token_merges([f"{left} {right}" for left, right in merges])
            writer.add_bos_token_id(len(tokens) - 1)
            writer.add_eos_token_id(len(tokens) - 1)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.close()
            groups.setdefault(json.dumps(llama.ids(file)), []).append(name)
    methods = [{"names": names, "ids": json.loads(ids)} for ids, names in groups.items()]
    text = json.dumps({"merges": [" ".join(merge) for merge in merges], "lines": LINES, "methods": methods},
                      ensure_ascii=False, separators=(",", ":"))
    (HERE / "gguf" / "words.json").write_text(text.replace('{"names"', '\n{"names"') + "\n")


if __name__ == "__main__":
    main()
