"""python3 tokenizer_speed.py MODEL_DIR FILE: measures the same as bench_tokenizer, with the `tokenizers` library."""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (reads the setting above)

start = time.perf_counter()
tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
opened = time.perf_counter() - start
tokenizer.no_truncation()
tokenizer.no_padding()
with open(sys.argv[2], encoding="utf-8", newline="\n") as file:
    lines = file.readlines()
size = sum(len(line.encode()) for line in lines)
best, tokens = 1e9, 0
for _ in range(3):
    start = time.perf_counter()
    tokens = sum(len(row) for row in tokenizer.encode_batch_fast(lines, add_special_tokens=False))
    best = min(best, time.perf_counter() - start)
print(f"open {opened:.2f} s, encode {size / 1e6 / best:.1f} MB/s, {tokens / 1e6 / best:.2f} M tokens/s, "
      f"{tokens} tokens of {size} bytes")
