#!/usr/bin/env python3
"""Breaks training runs in many ways. Checks after each fault that the run ends as docs/errors.md and
docs/checkpoints.md say, that complete checkpoints are intact to the bit, and that the next start ends like an unbroken
run, to the bit.

usage: tests/faults/sweep.py [MODE ...] [--seconds S] [--seed N] [--count N] [--repeat TRIAL] ...

  kills        SIGKILL at random moments, over all stages and methods
  calls        each open, write, fsync, rename, mkdir and unlink of a run fails, one in each trial
  allocations  each allocation of over 1 MB by Fettle's own code fails, one in each trial
  disk         the disk is full after each number of megabytes: until the run ends, or only for three writes

Without a mode it runs all of them. Each mode gets an equal part of what is left of --seconds, and ends early when all
its trials are done. Every failure is printed with the command that repeats it. The exit code is 1 if there was a
failure.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 6
ERRORS = {"open": ["EIO", "EMFILE"], "write": ["ENOSPC", "EIO"], "fsync": ["EIO"], "rename": ["ESTALE"],
          "mkdir": ["ENOSPC"], "unlink": ["EIO"]}
LIMIT = 120  # seconds after which a run counts as hanging


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Failure(Exception):
    pass


class Place:
    """A worker's folders: `out`, in which calls may fail, and `logs`, in which they never fail."""

    def __init__(self, sweep, name):
        self.sweep, self.name = sweep, name
        self.out = sweep.disk / name / "out"
        self.logs = sweep.folder / "logs" / name
        self.logs.mkdir(parents=True)
        self.clear()

    def clear(self):
        shutil.rmtree(self.sweep.disk / self.name, ignore_errors=True)
        (self.sweep.disk / self.name).mkdir()

    def start(self, words, faults=None):
        sweep = self.sweep
        common = {"output_dir": self.out, "data_cache": self.out.parent / "rows", "plugin": "cpu", "cutoff_len": 48,
                  "compile_cache": sweep.options.compiled or sweep.disk / "compiled", "learning_rate": 0.002,
                  "per_device_train_batch_size": 2, "lr_scheduler_type": "cosine", "logging_steps": 1,
                  "save_strategy": "steps", "save_steps": 1, "save_total_limit": 2, "plot_loss": "false",
                  "kernels": "off", "max_steps": STEPS, "resume_from_checkpoint": "true"}
        given = {word.split("=")[0] for word in words}
        words = [word.replace("{disk}", str(sweep.disk)) for word in words]
        words += [f"{key}={value}" for key, value in common.items() if key not in given]
        environment = {"XLA_FLAGS": "--xla_backend_optimization_level=0"} | os.environ  # compiles twice as fast
        if faults:
            log = self.logs / "calls"
            log.unlink(missing_ok=True)
            environment |= {"LD_PRELOAD": str(sweep.library), "FAULT_LOG": str(log)} | faults
        with open(self.logs / "stdout", "w") as out, open(self.logs / "stderr", "w") as err:
            return subprocess.Popen([sweep.fettle, "train", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                    env=environment)

    def run(self, words, faults=None):
        process = self.start(words, faults)
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"no end after {LIMIT} s: {self.message()}")

    def message(self):
        lines = (self.logs / "stderr").read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])

    def calls(self):
        log = self.logs / "calls"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def result(self):
        """Returns the result of the run: the logged losses, and the digests of the weights."""
        log, losses = self.out / "trainer_log.jsonl", []
        for line in log.read_text().splitlines() if log.exists() else []:
            record = json.loads(line)
            if record.get("loss") is not None:
                losses.append((record["current_steps"], record["loss"]))
        files = {name: digest(self.out / name)
                 for name in ["adapter_model.safetensors", "adapter_config.json", "model.safetensors", "config.json",
                              "classifier.json"] if (self.out / name).exists()}
        return losses, files

    def checkpoints(self):
        """Returns {step: digest of the state} for each folder that has the name of a checkpoint."""
        found = {}
        for folder in self.out.glob("checkpoint-*"):
            if folder.name[len("checkpoint-"):].isdigit():
                shards = sorted((folder / "state").glob("shards-*"))
                found[int(folder.name[len("checkpoint-"):])] = " ".join(digest(shard) for shard in shards)
        return found


class Sweep:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fettle-sweep-", dir=options.folder))
        self.disk = self.folder / "disk"
        build = pathlib.Path(options.build).resolve()
        program = self.folder / "program"  # a copy, so that a build meanwhile changes nothing
        program.mkdir()
        for file in ["fettle", "fettle_columns.so", "tests/libfettle_faults.so"]:
            shutil.copy(build / file, program)
        self.fettle, self.library = program / "fettle", program / "libfettle_faults.so"
        cases.write_inputs(self.disk)
        self.cases = cases.stage_cases() | cases.SHORT | cases.LARGE
        self.references, self.lock = {}, threading.Lock()
        self.locks = collections.defaultdict(threading.Lock)
        self.failed = []
        self.figures = collections.defaultdict(collections.Counter)

    def make_large(self):
        """Gives the large model its weights."""
        with self.lock:
            weights = self.disk / "large" / "model.safetensors"
            if weights.exists():
                return
            place = Place(self, "large-made")
            if place.run([w for w in cases.LARGE["large-full"] if "max_steps" not in w] +
                         ["train_from_scratch=true", "max_steps=1"]) != 0:
                raise Failure("the large model could not be made: " + place.message())
            shutil.copy(place.out / "model.safetensors", weights)
            place.clear()

    def reference(self, case):
        """Returns the result, checkpoints and seconds of an unbroken run."""
        with self.locks[case]:
            if case not in self.references:
                if case.startswith("large"):
                    self.make_large()
                place = Place(self, "reference-" + case)
                for _ in range(2):  # only the second run's time counts, because the first run compiles
                    place.clear()
                    started = time.monotonic()
                    code = place.run(self.cases[case] + ["save_total_limit=0"])
                    seconds = time.monotonic() - started
                    if code != 0:
                        raise Failure(f"{case}: the unbroken run ends with {code}: {place.message()}")
                self.references[case] = place.result(), place.checkpoints(), seconds
                place.clear()
            return self.references[case]

    # Checks.

    def check_checkpoints(self, place, case):
        wanted = self.reference(case)[1]
        found = place.checkpoints()
        for step, state in found.items():
            if wanted[step] != state:
                raise Failure(f"checkpoint-{step} differs from the unbroken run's")
        return found

    def check_end(self, place, case):
        """Checks the result of a run that ended with exit code 0."""
        losses, files = place.result()
        wanted_losses, wanted_files = self.reference(case)[0]
        if losses != wanted_losses:
            raise Failure(f"losses {losses} instead of {wanted_losses}")
        for name in sorted(wanted_files.keys() | files.keys()):
            if files.get(name) != wanted_files.get(name):
                raise Failure(f"{name} differs from the unbroken run's")
        self.check_checkpoints(place, case)

    def check_leftovers(self, place):
        left = [entry.name for entry in place.out.iterdir() if ".tmp-" in entry.name or entry.name.startswith(".")]
        if left:
            raise Failure(f"leftovers in output_dir: {left}")

    def go_on(self, place, case, before):
        """Starts the run again. It must continue from the newest checkpoint and end like an unbroken run."""
        newest = max(before, default=0)
        code = place.run(self.cases[case])
        if code != 0:
            raise Failure(f"the next start ends with {code}: {place.message()}")
        text = (place.logs / "stderr").read_text(errors="replace")
        if newest and "no checkpoint in" in text:
            raise Failure(f"the next start did not use checkpoint-{newest}")
        self.check_end(place, case)
        self.check_leftovers(place)

    def check_message(self, place, code, codes):
        text = (place.logs / "stderr").read_text(errors="replace")
        if code not in codes:
            raise Failure(f"exit code {code}, wanted one of {codes}: {place.message()}")
        if "error: " not in text or "internal error" in text:
            raise Failure(f"exit code {code} without a proper message: {place.message()}")

    def check_named(self, place):
        """Checks that the message names the file of the call that failed, or one of the two folders above it."""
        text = (place.logs / "stderr").read_text(errors="replace")
        failed = next(line for line in place.calls() if line.endswith(" !"))
        paths = [pathlib.Path(path).relative_to(self.disk) for path in failed[:-2].split(" ", 2)[2].split(" -> ")]
        names = [part for path in paths for part in path.parts[-3:]]
        if not any(name in text for name in names):
            raise Failure(f"the message names no {' or '.join(names)}: {place.message()}")

    # Trials. Each returns a word for the table.

    def kill(self, place, case, *moments):
        """Starts the run and kills it, again and again, until a start ends by itself. `moments` are the times of the
        kills, as shares of an unbroken run's time."""
        seconds, kills = self.reference(case)[2], 0
        for moment in [float(m) for m in moments] + [None]:
            process = place.start(self.cases[case])
            try:
                code = process.wait(LIMIT if moment is None else moment * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
                if moment is None:
                    raise Failure(f"no end after {LIMIT} s: {place.message()}")
            if code not in (0, -signal.SIGKILL):
                raise Failure(f"exit code {code} after {kills} kills: {place.message()}")
            if code == 0:
                break
            kills += 1
            self.figures["kills"]["kills"] += 1
            writing = place.out.exists() and any(".tmp-" in entry.name for entry in place.out.iterdir())
            self.figures["kills"]["kills within a write"] += writing
            self.check_checkpoints(place, case)
        self.check_end(place, case)
        self.check_leftovers(place)
        return "resumed to the same end"

    def one_fault(self, place, case, faults, codes):
        code = place.run(self.cases[case], faults)
        if not any(line.endswith(" !") for line in place.calls()):
            return "not reached"
        before = self.check_checkpoints(place, case)
        if code == 0:
            try:
                self.check_end(place, case)
                return "went on to the same end"
            except Failure as failure:
                raise Failure(f"exit code 0, but {failure}; stderr: {place.message()}") from None
        self.check_message(place, code, codes)
        if "FAULT_PATH" in faults:
            self.check_named(place)
        self.go_on(place, case, before)
        return f"exit {code}, next start resumed"

    def call(self, place, case, call, error, nth):
        faults = {"FAULT_CALL": call, "FAULT_PATH": str(self.disk), "FAULT_ERRNO": error, "FAULT_NTH": nth}
        return self.one_fault(place, case, faults, [2, 3])

    def allocation(self, place, case, nth, smallest="1000000"):
        faults = {"FAULT_CALL": "allocate", "FAULT_MIN": smallest, "FAULT_NTH": nth}
        return self.one_fault(place, case, faults, [3, 4])

    def full_disk(self, place, case, budget, count):
        faults = {"FAULT_BUDGET": budget, "FAULT_PATH": str(place.out.parent), "FAULT_COUNT": count}
        code = place.run(self.cases[case], faults)
        if not any(" full " in line for line in place.calls()):
            return "enough room"
        before = self.check_checkpoints(place, case)
        if code == 0:
            losses, files = place.result()
            if files == self.reference(case)[0][1]:
                self.go_on(place, case, before)
                return "went on to the same end"
            raise Failure(f"exit code 0, but another result: {place.message()}")
        self.check_message(place, code, [2, 3])
        self.go_on(place, case, before)
        return f"exit {code}, next start resumed"

    # The trials of each mode, as texts "MODE:CASE:ARGUMENT:...".

    def kill_trials(self, random_numbers):
        names = list(cases.stage_cases())
        random_numbers.shuffle(names)
        while True:
            for name in names[:self.options.cases]:
                if self.figures["kills"]["kills"] >= self.options.count:
                    return
                moments = [f"{random_numbers.uniform(0, 1.1):.3f}" for _ in range(random_numbers.randint(4, 12))]
                yield ":".join(["kill", name, *moments])

    def counted(self, case, faults):
        """Returns how many calls an unbroken run makes."""
        self.reference(case)
        place = Place(self, "counted-" + case + "-" + str(time.monotonic_ns()))
        code = place.run(self.cases[case], faults | {"FAULT_NTH": "0"})
        if code != 0:
            raise Failure(f"{case}: the counted run ends with {code}: {place.message()}")
        return len(place.calls())

    def call_trials(self, random_numbers):
        trials = []
        for case in cases.SHORT:
            for call, errors in ERRORS.items():
                calls = self.counted(case, {"FAULT_CALL": call, "FAULT_PATH": str(self.disk)})
                self.figures["calls"][f"{call} calls of {case}"] = calls
                trials += [f"call:{case}:{call}:{errors[nth % len(errors)]}:{nth}" for nth in range(1, calls + 1)]
        random_numbers.shuffle(trials)
        yield from trials

    def allocation_trials(self, random_numbers):
        trials = []
        for case in cases.LARGE:
            calls = self.counted(case, {"FAULT_CALL": "allocate"})
            self.figures["allocations"][f"allocations of {case}"] = calls
            trials += [f"allocation:{case}:{nth}" for nth in range(1, calls + 1)]
        random_numbers.shuffle(trials)
        yield from trials

    def disk_trials(self, random_numbers):
        trials = []
        for case in cases.LARGE:
            self.reference(case)
            place = Place(self, "measured-" + case)
            place.run(self.cases[case], {"FAULT_BUDGET": str(1 << 60), "FAULT_PATH": str(place.out.parent)})
            written = max(int(line.split()[0]) for line in place.calls())
            self.figures["disk"][f"MB written by {case}"] = written // 1_000_000
            trials += [f"full:{case}:{mb * 1_000_000}:{count}"
                       for mb in range(written // 1_000_000 + 1) for count in ["all", "3"]]
        random_numbers.shuffle(trials)
        yield from trials

    def attempt(self, place, mode, trial):
        kind, case, *arguments = trial.split(":")
        does = {"kill": self.kill, "call": self.call, "allocation": self.allocation, "full": self.full_disk}[kind]
        place.clear()
        try:
            word = does(place, case, *arguments)
        except Failure as failure:
            word = "FAILED"
            shown = "python3 tests/faults/sweep.py --repeat " + trial
            print(f"FAILED {trial}: {failure}\n  repeat: {shown}", flush=True)
            self.failed.append(trial)
        except Exception as error:  # a fault in this script, not in a run
            word = "FAILED"
            print(f"FAILED {trial}: {type(error).__name__}: {error}", flush=True)
            self.failed.append(trial)
        self.figures[mode][word] += 1

    def run_mode(self, mode, seconds):
        trials = {"kills": self.kill_trials, "calls": self.call_trials, "allocations": self.allocation_trials,
                  "disk": self.disk_trials}[mode](random.Random(f"{self.options.seed} {mode}"))
        end, lock = time.monotonic() + seconds, threading.Lock()
        complete = [False]

        def work(number):
            place = Place(self, f"{mode}-{number}")
            while time.monotonic() < end:
                with lock:
                    trial = next(trials, None)
                if trial is None:
                    complete[0] = True
                    return
                self.attempt(place, mode, trial)

        with concurrent.futures.ThreadPoolExecutor(self.options.workers) as pool:
            list(pool.map(work, range(self.options.workers)))
        return complete[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = ["kills", "calls", "allocations", "disk"]
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(modes))
    parser.add_argument("--seconds", type=float, default=1e9, help="time for all modes together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="order and moments")
    parser.add_argument("--count", type=int, default=1000, help="kills (1000)")
    parser.add_argument("--cases", type=int, default=1000, help="stages and methods that are killed (all)")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the runs work")
    parser.add_argument("--compiled", help="folder of compiled programs, to keep them for the next sweep")
    parser.add_argument("--repeat", metavar="TRIAL", help="only this one, and keep its folder")
    options = parser.parse_args()
    for mode in options.modes:
        if mode not in modes:
            parser.error(f"unknown mode {mode}; there are {', '.join(modes)}")
    sweep = Sweep(options)
    print(f"seed {options.seed}, folder {sweep.folder}", flush=True)
    if options.repeat:
        place = Place(sweep, "repeat")
        sweep.attempt(place, "repeat", options.repeat)
        print(f"{dict(sweep.figures['repeat'])}; kept: {place.out} and {place.logs}")
        return 1 if sweep.failed else 0
    chosen = options.modes or modes
    end = time.monotonic() + options.seconds
    for i, mode in enumerate(chosen):
        started = time.monotonic()
        complete = sweep.run_mode(mode, (end - started) / (len(chosen) - i))
        print(f"{mode}: {'complete' if complete else 'stopped by --seconds'} after {time.monotonic() - started:.0f} s, "
              f"{len(sweep.references)} kinds of runs so far")
        for word, count in sorted(sweep.figures[mode].items()):
            print(f"  {count:6d}  {word}", flush=True)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(sweep.failed)} failures; {spent.ru_utime + spent.ru_stime:.0f} s of CPU; seed {options.seed}")
    shutil.rmtree(sweep.folder, ignore_errors=True)
    return 1 if sweep.failed else 0


if __name__ == "__main__":
    sys.exit(main())
