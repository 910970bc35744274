"""Compares rows per second from a file to packed token rows: `fettle data`, first without and then with its cache, and
a plain loop of Transformers and tokenizers. Usage: data_speed.py FETTLE MODEL_DIR ROWS.jsonl [--fettle-only]

The loop does what most training scripts do, for a thousand rows at a time: json.loads, apply_chat_template to text,
encode_batch on all cores (the text, and each turn's prompt for the mask), labels. It does not pack, check or store
anything."""

import json
import os
import subprocess
import sys
import tempfile
import time

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BATCH = 1000


def prepare(rows, tokenizer):
    texts, prompts, of_row = [], [], []
    for number, row in enumerate(rows):
        messages = row["messages"]
        texts.append(tokenizer.apply_chat_template(messages, tokenize=False))
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompts.append(tokenizer.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True))
            prompts.append(tokenizer.apply_chat_template(messages[: i + 1], tokenize=False))
            of_row.append(number)
    encode = tokenizer.backend_tokenizer.encode_batch
    ids = [e.ids for e in encode(texts, add_special_tokens=False)]
    ends = [len(e.ids) for e in encode(prompts, add_special_tokens=False)]
    labels = [[-100] * len(row) for row in ids]
    for turn, number in enumerate(of_row):
        begin, end = ends[2 * turn], ends[2 * turn + 1] - 1
        labels[number][begin:end] = ids[number][begin:end]
    return sum(map(len, ids)), sum(label != -100 for row in labels for label in row)


def peer(model, file):
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"))
    tokenizer.chat_template = CHATML
    start, count, tokens, trained, rows = time.time(), 0, 0, 0, []
    for line in open(file, encoding="utf-8"):
        rows.append(json.loads(line))
        if len(rows) == BATCH:
            found = prepare(rows, tokenizer)
            count, tokens, trained, rows = count + len(rows), tokens + found[0], trained + found[1], []
    if rows:
        found = prepare(rows, tokenizer)
        count, tokens, trained = count + len(rows), tokens + found[0], trained + found[1]
    print(json.dumps({"rows": count, "tokens": tokens, "trained": trained, "seconds": time.time() - start}))


def watch(command):
    """Runs the command. Returns its output, its seconds, and its peak MB of private memory and of mapped files."""
    start, own, mapped = time.time(), 0, 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    os.set_blocking(process.stdout.fileno(), False)
    output = b""
    while process.poll() is None:
        try:
            status = open(f"/proc/{process.pid}/status").read()
            value = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Rss")}
            own, mapped = max(own, int(value["RssAnon"])), max(mapped, int(value["RssFile"]))
        except (OSError, KeyError):
            pass
        output += process.stdout.read() or b""
        time.sleep(0.02)
    seconds = time.time() - start
    output += process.stdout.read() or b""
    if process.returncode != 0:
        sys.exit(f"{command} ended with exit code {process.returncode}")
    return json.loads(output), seconds, own / 1024, mapped / 1024


def main(fettle, model, file, fettle_only):
    size = os.path.getsize(file) / 1e6
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as cache:
        words = ["data", f"model_name_or_path={model}", f"dataset={file}", "template=chatml", "packing=true"]
        command = [fettle, *words, f"data_cache={cache}", "--json", "--rows=0"]
        for name in ["fettle, first", "fettle, again"]:
            report, seconds, own, mapped = watch(command)
            rows, tokens, trained = (report["data"][key] for key in ["rows", "tokens", "trained_tokens"])
            rate = rows / seconds
            first = rate if name.endswith("first") else first
            print(
                f"{name}: {rows} rows ({size:.0f} MB), {tokens} tokens, {trained} trained, {seconds:.1f} s, "
                f"{rate:.0f} rows/s; {own:.0f} MB of its own, {mapped:.0f} MB mapped; use {report['use']:.4f}"
            )
    if fettle_only:
        return
    report, seconds, own, _ = watch([sys.executable, __file__, "--peer", model, file])
    rate = report["rows"] / report["seconds"]
    print(
        f"transformers: {report['rows']} rows, {report['tokens']} tokens, {report['trained']} trained, "
        f"{report['seconds']:.1f} s without imports, {rate:.0f} rows/s; {own:.0f} MB\nratio {first / rate:.1f}"
    )


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer(*sys.argv[2:])
    else:
        main(*sys.argv[1:4], "--fettle-only" in sys.argv)
