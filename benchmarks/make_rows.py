"""Writes conversations about Debian packages, some with a system text, with one or two turns and replies of up to
LONGEST characters. Usage: make_rows.py COUNT OUT.jsonl [LONGEST=900] (reads `apt-cache dumpavail`)"""

import json
import random
import subprocess
import sys


def main(count, out, longest=900):
    random.seed(5)
    listing = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    texts = [
        block.split("\n")[0] + "\n" + block[block.index("Description") :][:1500]
        for block in listing.split("\n\n")
        if "Description" in block
    ]
    with open(out, "w", encoding="utf-8") as file:
        for i in range(count):
            messages = []
            if i % 3 == 0:
                messages.append({"role": "system", "content": "You answer questions about packages."})
            for _ in range(1 + i % 2):
                question = random.choice(texts)[: random.randint(40, longest // 3)]
                reply = random.choice(texts)[: random.randint(50, longest)]
                messages.append({"role": "user", "content": "What is this? " + question})
                messages.append({"role": "assistant", "content": f"{reply} ({i})"})
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
