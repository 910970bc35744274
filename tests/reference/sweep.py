"""Runs other tools' example recipes on small models and groups the results.

llama_factory_sweep.py and axolotl_sweep.py use it."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

CACHE = pathlib.Path(os.environ.get("FETTLE_CACHE") or pathlib.Path.home() / ".cache" / "fettle")


def arguments(description):
    """Returns a parser of the arguments that all sweeps have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--fettle", default=here.parent.parent / "build" / "fettle", type=pathlib.Path)
    parser.add_argument("--mirror", help="a git directory that has the commit; without it, git fetches from GitHub")
    parser.add_argument("--only", default="", help="run only recipes with this word in their names")
    parser.add_argument("--jobs", default=1, type=int)
    parser.add_argument("--seconds", default=420, type=int, help="the limit of one recipe")
    parser.add_argument("--work", type=pathlib.Path, help="the folder to work in, which is kept")
    return parser


def work_folder(asked, name):
    """Returns the folder to work in: --work, or a new folder that finish() removes."""
    if not asked.work:
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-sweep-"))
    asked.work.mkdir(exist_ok=True)
    return asked.work


def finish(results, asked, work, fewest):
    """Prints the counts, removes a folder that work_folder made, and returns the exit code of the sweep."""
    counts = results.table()
    if not asked.work:
        shutil.rmtree(work)
    return 1 if counts["OTHER"] or (not asked.only and counts["runs"] < fewest) else 0


def checkout(repository, commit, folders, to, mirror=None):
    """Writes `folders` of a GitHub repository at `commit` to `to`. `mirror`: a git directory that has the commit."""
    git = pathlib.Path(mirror) if mirror else CACHE / "sweeps" / (repository.replace("/", "+") + ".git")
    if not mirror and not git.exists():
        subprocess.run(["git", "init", "--quiet", "--bare", str(git)], check=True)
    if not mirror:
        url = f"https://github.com/{repository}"
        subprocess.run(["git", "--git-dir", str(git), "fetch", "--quiet", "--depth", "1", url, commit], check=True)
    archive = subprocess.Popen(["git", "--git-dir", str(git), "archive", commit, *folders], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
        files.extractall(to, filter="data")
    if archive.wait() != 0:
        sys.exit(f"{git} does not have {repository} at {commit}")


def run(words, folder, seconds, text=""):
    """Runs one command with `text` as its input; returns its exit code, its output and its messages."""
    flags = dict(XLA_FLAGS="--xla_backend_optimization_level=0", WANDB_MODE="offline", HF_HUB_OFFLINE="1")
    try:
        done = subprocess.run(
            words, cwd=folder, env=os.environ | flags, input=text, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=seconds, text=True, errors="replace",
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return 124, "", f"error: did not end within {seconds} s"


def reason(messages):
    """Returns the error message in `messages` on one line, or the last two lines if there is none."""
    lines = messages.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(("error:", "fettle:", "internal error"))), None)
    text = " ".join(lines[first:] if first is not None else lines[-2:])
    return re.sub(r"\s+", " ", text)[:400]


class Sweep:
    """The results of all recipes. `substance` maps the name of a known reason to a pattern for error messages. A
    failure whose message matches no pattern counts as a fault of Fettle."""

    def __init__(self, substance):
        self.substance = substance
        self.rows = []

    def kind(self, text):
        return next((name for name, pattern in self.substance.items() if re.search(pattern, text, re.S)), "OTHER")

    def add(self, recipe, code, messages, seconds):
        text = "" if code == 0 else reason(messages)
        kind = "runs" if code == 0 else self.kind(text)
        self.rows.append((recipe, kind, text))
        print(f"{kind:24} {seconds:5.1f} s  {recipe}" + (f"\n{'':34}{text}" if text else ""), flush=True)

    def table(self):
        counts = collections.Counter(kind for _, kind, _ in self.rows)
        width = max(map(len, counts), default=0)
        print(f"\n{len(self.rows)} recipes")
        for kind, count in counts.most_common():
            print(f"  {kind:{width}} {count}")
        return counts


def all_at_once(tasks, jobs):
    """Runs the functions in `tasks`, `jobs` at a time, and yields their results with their seconds."""

    def timed(task):
        start = time.monotonic()
        return task(), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(timed, task) for task in tasks]:
            yield future.result()
