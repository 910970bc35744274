"""Runs Fettle, Fettle without its kernels, and Transformers + PEFT in turn on the same model and rows. Prints a table
in Markdown.

usage: compare.py FETTLE BF16_MODEL F32_MODEL [--steps 8] [--rounds 2] [--avx2]     (the models are make_model.py's)

--avx2 holds all programs to AVX2, on a machine that has more. The last column is Fettle's useful arithmetic (4 FLOPs
for each weight and token, without recomputation) as a share of PyTorch's rate of matrix products (matmul_rate.py), which
is measured in the same run.

All programs have the same weights, rows, precision and gradient checkpointing. Tokens/s is the median step without
the first two; memory is the process's peak. Rounds alternate, so that a slowdown of the machine affects all programs.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
AVX2 = dict(ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2", ATEN_CPU_CAPABILITY="avx2",
            FETTLE_MAX_CPU_ISA="avx2", XLA_FLAGS="--xla_cpu_max_isa=AVX2")  # fmt: skip


def run(command):
    """Returns the command's stdout and its peak memory in MiB."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nexit {process.returncode}\n{err.read()}")
        return out.read(), usage.ru_maxrss / 1024


def fettle(binary, model, dtype, remat, steps, kernels="auto"):
    with tempfile.TemporaryDirectory() as folder:
        _, memory = run([
            binary, "train", HERE / "lora.yaml", f"model_name_or_path={model}", f"dataset={model}/rows.jsonl",
            f"output_dir={folder}/out", f"max_steps={steps + 2}", f"bf16={'true' if dtype == 'bfloat16' else 'false'}",
            f"gradient_checkpointing={'full' if remat else 'none'}", f"kernels={kernels}",
        ])  # fmt: skip
        log = [json.loads(line) for line in (pathlib.Path(folder) / "out/trainer_log.jsonl").read_text().splitlines()]
    speeds = [line["throughput"] for line in log if "throughput" in line][-steps:]
    return dict(speed=statistics.median(speeds), memory=memory, first_loss=log[0]["loss"])


def peer(model, dtype, remat, steps):
    out, memory = run([sys.executable, HERE / "peer_peft.py", model, "--dtype", dtype, "--steps", steps]
                      + ["--remat"] * remat)  # fmt: skip
    result = json.loads(out.splitlines()[-1])
    return dict(speed=result["tokens_per_second"], memory=memory, first_loss=result["losses"][0])


def row(options, dtype, model, remat):
    ours, bodies, theirs, rates = [], [], [], []
    for _ in range(options.rounds):
        rates.append(json.loads(run([sys.executable, HERE / "matmul_rate.py", model, "--dtype", dtype])[0]))
        ours.append(fettle(options.fettle, model, dtype, remat, options.steps))
        bodies.append(fettle(options.fettle, model, dtype, remat, options.steps, kernels="off"))
        theirs.append(peer(model, dtype, remat, options.steps))
    speed = [statistics.median(r["speed"] for r in runs) for runs in (ours, theirs)]
    without = statistics.median(r["speed"] for r in bodies)
    share = speed[0] * 4 * rates[0]["weights"] / max(rate["gflops"] for rate in rates) / 1e9
    memory = [statistics.median(r["memory"] for r in runs) for runs in (ours, theirs)]
    return (
        f"| {dtype} | {'full' if remat else 'none'} | {speed[0]:.1f} | {speed[1]:.1f} | {speed[0] / speed[1]:.2f} "
        f"| {without:.1f} | {speed[0] / without:.2f} "
        f"| {memory[0]:.0f} | {memory[1]:.0f} | {memory[0] / memory[1]:.2f} "
        f"| {ours[0]['first_loss']:.4f} | {theirs[0]['first_loss']:.4f} "
        f"| {share:.2f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fettle", type=pathlib.Path)
    parser.add_argument("bf16_model", type=pathlib.Path)
    parser.add_argument("f32_model", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=8, help="timed steps per run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--avx2", action="store_true", help="hold all programs to AVX2")
    options = parser.parse_args()
    if options.avx2:
        os.environ.update(AVX2)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"LoRA, rank 8, all linear layers, 1 x 512, {os.cpu_count()} cores of {cpu}, {platform.system()}"
          + (", held to AVX2" if options.avx2 else "") + "\n")  # fmt: skip
    print("| dtype | recomputation | Fettle tokens/s | peer tokens/s | ratio | kernels: off | ratio | Fettle MiB | peer MiB | ratio "
          "| Fettle first loss | peer first loss | share of PyTorch's matmul rate |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for dtype, model in (("bfloat16", options.bf16_model), ("float32", options.f32_model)):
        for remat in (False, True):
            print(row(options, dtype, model, remat), flush=True)


if __name__ == "__main__":
    main()
