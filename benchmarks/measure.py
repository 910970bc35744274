"""Runs one program on one workload. fettle() and peer() return a dict with what they measured: speed (tokens/s; of a
reply for `generate`), prompt_speed, memory (peak, bytes), device_memory (the same of a GPU), losses. Of fettle also:
first (seconds from the command to the first step's log line), compile (seconds in which train compiles), ready (seconds
until train has compiled the step and loaded the weights)."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
REPLY = 64
deadline = None  # the value of time.perf_counter() at which a running program is ended


class OutOfTime(Exception):
    """The deadline has passed."""


def run(command, watched=None, **environment):
    """Returns stdout, stderr, the peak of memory (bytes), the seconds, and the seconds until `watched` had content."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start, first, done = time.perf_counter(), [], threading.Event()

        def watch():
            while not done.wait(0.02):
                if watched.exists() and watched.stat().st_size > 0:
                    return first.append(time.perf_counter() - start)

        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                   env=dict(os.environ, **environment))  # fmt: skip
        timer = threading.Timer(deadline - start, process.kill) if deadline else None
        if timer:
            timer.start()
        if watched:
            threading.Thread(target=watch, daemon=True).start()
        _, status, usage = os.wait4(process.pid, 0)
        done.set()
        if timer:
            timer.cancel()
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = err.read()
        if deadline and start + seconds >= deadline:
            raise OutOfTime
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nexit {process.returncode}\n{said}")
        return dict(out=out.read(), err=said, memory=usage.ru_maxrss * 1024, seconds=seconds,
                    first=first[0] if first else None)  # fmt: skip


def rows_file(work, model):
    if work.real:
        return model / "real-chat.jsonl"
    return model / ("chat.jsonl" if work.kind in ("chat", "eval") else f"rows-{work.length}.jsonl")


def tokens_of(rows):
    return sum(len(json.loads(line)["input_ids"]) for line in rows.read_text().splitlines())


def fettle(binary, work, model, cache, kernels="auto", plugin="cpu"):
    bf16 = f"bf16={'true' if work.dtype == 'bfloat16' else 'false'}"
    common = [f"model_name_or_path={model}", bf16, f"plugin={plugin}", f"kernels={kernels}"]
    if work.kind == "generate":
        prompts = [json.loads(line)["input_ids"] for line in rows_file(work, model).read_text().splitlines()[:3]]
        with tempfile.TemporaryDirectory() as folder:
            rows = pathlib.Path(folder) / "prompt.jsonl"
            rows.write_text("".join(json.dumps(dict(input_ids=p, labels=[-100] * len(p))) + "\n" for p in prompts))
            done = run([binary, "--verbose", "generate", *common, f"dataset={rows}", "do_sample=false",
                        "per_device_eval_batch_size=1",  # one reply after the other, as in peer_peft.py
                        f"max_new_tokens={REPLY}"], FETTLE_CACHE=str(cache))  # fmt: skip
        # The first prompt includes the time of compiling, so it does not count.
        said = re.findall(r"prompt: (\d+) tokens in ([\d.]+) s; reply: (\d+) tokens, ([\d.]+) s", done["err"])[1:]
        return dict(prompt_speed=statistics.median(int(n) / float(s) for n, s, _, _ in said),
                    speed=statistics.median((int(n) - 1) / float(s) for _, _, n, s in said), memory=done["memory"])  # fmt: skip
    rows = rows_file(work, model)
    if work.kind == "eval":
        done = run([binary, "eval", *common, f"eval_dataset={rows}", f"per_device_eval_batch_size={work.rows}",
                    f"cutoff_len={work.length}"], FETTLE_CACHE=str(cache))  # fmt: skip
        return dict(speed=tokens_of(rows) / done["seconds"], memory=done["memory"])
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "out/trainer_log.jsonl"
        words = ["finetuning_type=full"] if work.kind == "full" else ["lora_rank=8", "lora_target=all"]
        if work.kind == "qlora":
            words += ["quantization_bit=4"]
        if work.kind != "chat":  # chat rows are tuned with the default settings
            words += [f"gradient_checkpointing={work.remat}", "disable_shuffling=true"]
        done = run([binary, "--verbose", "train", *common, *words, f"dataset={rows}", f"cutoff_len={work.length}",
                    f"per_device_train_batch_size={work.rows}", "learning_rate=1e-4", "lr_scheduler_type=constant",
                    "logging_steps=1", "save_strategy=no", "plot_loss=false", f"output_dir={folder}/out",
                    f"max_steps={work.steps + 2}"], watched=log, FETTLE_CACHE=str(cache))  # fmt: skip
        records = [json.loads(line) for line in log.read_text().splitlines()]
    records = [record for record in records if "loss" in record]
    # Each line has the seconds of a part of the start, and the seconds since the start.
    parts = {name: (float(own), float(after)) for name, own, after in re.findall(r"(\w[^\n]*): ([\d.]+) s \(after ([\d.]+) s\)", done["err"])}
    compile_ = sum(parts[name][0] for name in ("chose gradient_checkpointing", "compiled the step") if name in parts)
    speeds = [record["throughput"] for record in records[2:] if "throughput" in record]
    return dict(speed=statistics.median(speeds), memory=done["memory"], first=done["first"], compile=compile_,
                ready=parts["loaded the weights"][1], losses=[r["loss"] for r in records],
                device_memory=max((r.get("device_memory_bytes", 0) for r in records), default=0))  # fmt: skip


def jax_environment(cache):
    """Returns the environment variables with which JAX computes with Fettle's plugin."""
    plugin = cache / "plugins/cpu/pjrt_c_api_cpu_plugin.so"
    return dict(PJRT_NAMES_AND_LIBRARY_PATHS=f"fettle_cpu:{plugin}", JAX_PLATFORMS="fettle_cpu")


def peer(python, script, work, model, words=(), **environment):
    done = run([python, HERE / script, model, rows_file(work, model), "--kind", work.kind, "--dtype", work.dtype,
                "--batch", work.rows, "--steps", work.steps, "--reply", REPLY, *words]
               + ["--remat"] * (work.remat == "full"), **environment)  # fmt: skip
    return dict(json.loads(done["out"].splitlines()[-1]), memory=done["memory"])


def matmul_rates(work, model, jax_python, cache):
    """Returns {engine: GFLOP/s} for matrix products of the shapes of the step."""
    out = {}
    for engine in ("torch", "onednn", "plugin"):
        python, environment = (jax_python, jax_environment(cache)) if engine == "plugin" else (sys.executable, {})
        done = run([python, HERE / "matmul_rate.py", model, "--dtype", work.dtype, "--engine", engine,
                    "--rows", work.rows * work.length], **environment)  # fmt: skip
        result = json.loads(done["out"].splitlines()[-1])
        out[engine] = result["gflops"]
        out["weights"] = result["weights"]
    return out
