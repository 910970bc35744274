#!/usr/bin/env python3
"""Trains with several processes under real launchers, breaks the runs, and checks what docs/hosts.md says of them.

usage (root): tests/launchers/run.sh [--seconds S] [--seed N] [--launchers ...] [--plugins ...]
                                     [--each | --repeat TRIAL ...]

A trial is LAUNCHER:PLUGIN:PROCESSES:WHAT:RANK:MOMENT:AGAIN. LAUNCHER is one of srun (PMIx), srun-plain (PMIx, without
--kill-on-bad-exit), srun-redis (--mpi=none), mpirun, torchrun (its variables, set by hand) and launch (fettle launch).
PLUGIN is cpu (tests/several; results must equal one process's to the bit) or rocm (AMD's plugin on tests/stand_in_hip,
which computes nothing, and on which a step takes half a second). WHAT happens to process RANK at MOMENT. A MOMENT
below 1 is a share of the unbroken run's time; 3.4 is 0.4 s after step 3 is reported.

  run    nothing                 all end with 0
  kill   SIGKILL                 the launcher ends with another code, all processes are gone 10 s later
  term   SIGTERM                 the launcher ends with 143 and the last step has a checkpoint
  stop   SIGTERM to the launcher the same (mpirun: 1); only with mpirun and launch, because srun kills the processes,
                                 and torchrun itself does not run here
  hang   a launch never ends     the launcher ends with 4 (srun: or 143), and a table of the processes is printed
  cut    its host's network ends the processes of both sides are gone 15 s later
  fail   a wrong key in the      the launcher ends with 2, and all processes of other hosts print why (this happens at
         recipe of its host      the start, not at MOMENT)

Then AGAIN processes continue from the newest checkpoint, and the run must end like an unbroken run of one process. The
hosts are those of with_hosts.sh, which starts this script. The exit code is 1 if a trial failed.

Trials are random until --seconds have passed. With --each, every launcher and number of processes gets a fixed list
instead: SIGKILL to each process, SIGTERM to a process and to the launcher, a hang and a cut network while it trains,
SIGKILL while it starts, and a wrong recipe on each host.
"""
import argparse
import collections
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/faults"))
import cases  # noqa: E402

HOSTS = ["n1", "n2"]
STEPS = 8
KERNEL_MICROSECONDS = 12000  # how long a kernel takes on tests/stand_in_hip; a step launches 40 on each device
LIMIT = 240  # seconds after which a run counts as hanging
SILENCE = 8  # the default of FETTLE_HEARTBEAT_SECONDS
# Seconds after which no process may be left. Where the network is cut, both sides first wait for SILENCE.
GONE = {"kill": 10, "cut": 15}
PAUSE = 2  # seconds for which this script stands still when the machine pauses
PATIENCE = 2  # seconds after which mpirun passes SIGTERM on, and after which it kills the processes
LAUNCHERS = ["srun", "srun-plain", "srun-redis", "mpirun", "torchrun", "launch"]
STOPPED = {"mpirun": 1, "launch": 143}  # exit codes after SIGTERM to the launcher
WHAT = ["kill", "term", "stop", "hang", "cut", "fail"]
RANKS = ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK", "FETTLE_RANK"]


class Failure(Exception):
    pass


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Pauses(threading.Thread):
    """Notices when this process stands still, as all processes do when the machine is suspended."""

    def __init__(self):
        super().__init__(daemon=True)
        self.longest = 0  # seconds
        self.start()

    def run(self):
        while True:
            before = time.monotonic()
            time.sleep(0.1)
            self.longest = max(self.longest, time.monotonic() - before)


class Sweep:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(options.folder).resolve()
        self.disk = self.folder / "disk"
        shutil.rmtree(self.disk, ignore_errors=True)
        cases.write_inputs(self.disk)
        build = pathlib.Path(options.build).resolve()
        program = self.folder / "program"  # a copy, so that a build meanwhile changes nothing
        shutil.rmtree(program, ignore_errors=True)
        program.mkdir()
        for file in ["fettle", "fettle_columns.so", "fettle_pmix.so", "tests/several_cpu_plugin.so"]:
            shutil.copy(build / file, program)
        self.fettle = program / "fettle"
        self.several = program / "several_cpu_plugin.so"
        found = subprocess.run([self.fettle, "devices", "plugin=cpu"], capture_output=True, text=True, check=True)
        self.inner = re.search(r"plugin cpu \((.*?)\)", found.stdout).group(1)
        self.libraries = self.folder / "libraries"
        if "rocm" in options.plugins:
            rocm = pathlib.Path(os.environ.get("FETTLE_CACHE", pathlib.Path.home() / ".cache/fettle"))
            subprocess.run([ROOT / "scripts/make_stand_ins.sh", rocm / "plugins/rocm/xla_rocm_plugin.so",
                            self.libraries, ROOT / "tests/stand_in_hip"], check=True)
        self.out = self.disk / "out"
        self.log = self.folder / "log"
        self.references, self.seconds = {}, {}
        self.figures = collections.defaultdict(list)
        self.pauses = Pauses()

    # Starting.

    def words(self, plugin):
        local = self.folder / "local"
        words = {"model_name_or_path": self.disk / "model", "dataset": self.disk / "sft.jsonl", "output_dir": self.out,
                 "data_cache": local / "rows", "compile_cache": local / "compiled", "cutoff_len": 48, "lora_rank": 4,
                 "lora_dropout": 0.1, "learning_rate": 0.002, "per_device_train_batch_size": 1, "logging_steps": 1,
                 "save_strategy": "steps", "save_steps": 2, "save_total_limit": 0, "plot_loss": "false",
                 "max_steps": STEPS, "resume_from_checkpoint": "true"}
        if plugin == "cpu":
            words |= {"plugin": self.several, "device_count": 4}
        else:
            words |= {"plugin": "rocm", "mesh": "fsdp=4"}
        return [f"{key}={value}" for key, value in words.items()]

    def environment(self, plugin, count):
        variables = {"FETTLE_HEARTBEAT_SECONDS": str(SILENCE), "SEVERAL_HANG": str(self.folder / "hang"),
                     "STAND_IN_HANG": str(self.folder / "hang"), "FETTLE_HANG_SECONDS": str(self.options.hang)}
        if plugin == "cpu":
            variables |= {"FETTLE_INNER_PLUGIN": str(self.inner), "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        else:
            variables |= {"LD_LIBRARY_PATH": str(self.libraries), "FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC": "1",
                          "STAND_IN_DEVICES": "4" if count == 1 else "2", "STAND_IN_BYTES": "8000000000",
                          "STAND_IN_MICROSECONDS": str(KERNEL_MICROSECONDS),
                          "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="}
        return variables

    def commands(self, launcher, plugin, count, more=()):
        """Returns the commands that start the run; with torchrun's variables one for each process."""
        train = [str(self.fettle), "train", *more, *self.words(plugin)]
        if count == 1:
            return [["on", HOSTS[0], *train]]
        each = count // len(HOSTS)
        if launcher.startswith("srun"):
            srun = ["srun", f"--nodes={len(HOSTS)}", f"--ntasks-per-node={each}",
                    "--mpi=none" if launcher == "srun-redis" else "--mpi=pmix"]
            return [srun + ([] if launcher == "srun-plain" else ["--kill-on-bad-exit=1"]) + train]
        if launcher == "mpirun":
            hosts = ",".join(f"{host}:{each}" for host in HOSTS)
            return [["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", "on", "--mca",
                     "odls_base_sigkill_timeout", str(PATIENCE), "-H", hosts, *train]]
        if launcher == "launch":
            return [[str(self.fettle), "launch", "--hosts", ",".join(HOSTS), "--per-host", str(each), "--shell",
                     str(self.folder / "bin/on"), *train[2:]]]
        variables = [[f"RANK={rank}", f"WORLD_SIZE={count}", f"LOCAL_RANK={rank % each}", f"LOCAL_WORLD_SIZE={each}",
                      "MASTER_ADDR=n1", "MASTER_PORT=29500"] for rank in range(count)]
        return [["on", HOSTS[rank // each], "env", *variables[rank], *train] for rank in range(count)]

    def start(self, launcher, plugin, count, more=()):
        environment = os.environ | self.environment(plugin, count)
        with open(self.log, "w") as log:
            return [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                     cwd=self.folder)
                    for command in self.commands(launcher, plugin, count, more)]

    def processes(self):
        """Returns {rank: process id} of the training processes that live."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "exe") != str(self.fettle) or b"\0train\0" not in (entry / "cmdline").read_bytes():
                    continue
                variables = dict(pair.split("=", 1) for pair in (entry / "environ").read_text().split("\0") if "=" in pair)
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
            except OSError:
                continue
            rank = next((int(variables[name]) for name in RANKS if name in variables), 0)
            found[rank] = int(entry.name)
        return found

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)
        (self.folder / "hang").unlink(missing_ok=True)

    # What a run left on disk: its log, results and checkpoints.

    def text(self):
        return self.log.read_text(errors="replace")

    def message(self):
        return " / ".join(line for line in self.text().strip().splitlines() if line)[-600:]

    def result(self):
        losses = []
        for line in (self.out / "trainer_log.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record.get("loss") is not None:
                losses.append((record["current_steps"], record["loss"]))
        return losses, digest(self.out / "adapter_model.safetensors")

    def checkpoints(self):
        return {int(folder.name[11:]): folder for folder in self.out.glob("checkpoint-*") if folder.name[11:].isdigit()}

    def reference(self, plugin):
        """Returns the result of an unbroken run of one process."""
        if plugin not in self.references:
            for _ in range(2):  # only the second run's time counts, because the first run compiles
                self.clear()
                started = time.monotonic()
                code = self.wait(self.start("alone", plugin, 1))
                self.seconds[plugin] = time.monotonic() - started
                if code != 0:
                    raise Failure(f"one process ends with {code}: {self.message()}")
            self.references[plugin] = self.result()
        return self.references[plugin]

    # Trials.

    def wait(self, started, limit=LIMIT):
        """Returns the first exit code that is neither 0 nor 137 (SIGKILL); if there is none, the largest code."""
        end, codes = time.monotonic() + limit, []
        for process in started:
            try:
                codes.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                self.end(started)
                raise Failure(f"no end after {limit:.0f} s: {self.message()}") from None
        codes = [code if code >= 0 else 128 - code for code in codes]
        return next((code for code in codes if code not in (0, 137)), max(codes))

    def end(self, started):
        for process in started:
            process.kill()
        for process in self.processes().values():
            os.kill(process, signal.SIGKILL)
        for process in started:
            process.wait()

    def gone(self, since, limit):
        while left := self.processes():
            if time.monotonic() - since > limit:
                for process in left.values():
                    os.kill(process, signal.SIGKILL)
                raise Failure(f"process {sorted(left)} is still there after {limit} s: {self.message()}")
            time.sleep(0.05)
        return time.monotonic() - since

    def compiled(self):
        """Returns the files of the hosts' compile caches with their inodes, which change when a program is stored."""
        command = f"cd {self.folder}/local/compiled 2>/dev/null && stat -c '%n %i' -- *.pjrt"
        return [subprocess.run(["on", host, command], capture_output=True, text=True).stdout for host in HOSTS]

    def unbroken_seconds(self, launcher, plugin, count):
        """Returns the time of an unbroken run that compiles nothing, because an earlier run has filled the caches."""
        key = launcher, plugin, count
        if key not in self.seconds:
            for again in (False, True):
                before = self.compiled()
                self.clear()
                started = time.monotonic()
                code = self.wait(self.start(launcher, plugin, count))
                seconds = time.monotonic() - started
                self.check_end(code, plugin)
                after = self.compiled()
                if again and (after != before or (plugin == "rocm" and not all(after))):
                    raise Failure(f"the second run compiled again, or a cache is empty: {before}, then {after}")
            self.seconds[key] = seconds
        return self.seconds[key]

    def wait_until(self, moment, began, seconds, started):
        """Waits until a trial's MOMENT, or until the run has ended."""
        step, later, reported = int(moment), moment % 1, None
        while any(one.poll() is None for one in started):
            if step == 0 and time.monotonic() - began >= moment * seconds:
                return
            if reported is None and step > 0 and f"step {step}/" in self.text():
                reported = time.monotonic()
            if reported is not None and time.monotonic() - reported >= later:
                return
            time.sleep(0.01)

    def recipes_with_fault(self, host):
        """Writes a recipe on the disk of each host, with a wrong key on this host, and returns its path."""
        path = self.folder / "local/recipe.yaml"
        for one in HOSTS:
            text = "learning_rat: 1" if one == host else "seed: 42"
            subprocess.run(["on", one, f"echo '{text}' >{path}"], check=True)
        return [str(path)]

    def check_failure(self, code, count, host):
        text = self.text()
        if code != 2:
            raise Failure(f"exit code {code}, wanted 2: {self.message()}")
        told = len(re.findall(rf"the run ends: process \d+ \({host}\): .*learning_rat", text))
        if told < count - count // len(HOSTS):
            raise Failure(f"{told} processes of the other hosts print why: {self.message()}")

    def check_end(self, code, plugin):
        if code != 0:
            raise Failure(f"exit code {code}: {self.message()}")
        wanted, found = self.reference(plugin), self.result()
        if found != wanted:
            raise Failure(f"losses or weights differ from one process's: {found[0]} instead of {wanted[0]}")

    def break_it(self, started, launcher, count, what, rank):
        """Returns the exit code and how long the end took, or (None, 0) if process `rank` does not run."""
        there = self.processes()
        if rank not in there:
            return None, 0
        if what == "kill":
            os.kill(there[rank], signal.SIGKILL)
        elif what == "term":
            os.kill(there[rank], signal.SIGTERM)
        elif what == "stop":
            started[0].terminate()
        elif what == "hang":
            (self.folder / "hang").write_text(f"{there[rank]}\n")
        elif what == "cut":
            subprocess.run(["ip", "link", "set", f"to-{HOSTS[rank * len(HOSTS) // count]}", "down"], check=True)
        began = time.monotonic()
        try:
            if what in GONE:
                self.gone(began, GONE[what])
        finally:  # the network is restored before wait(), because SLURM waits minutes for a lost host
            if what == "cut":
                for host in HOSTS:
                    subprocess.run(["ip", "link", "set", f"to-{host}", "up"], check=True)
        code = self.wait(started)
        self.gone(time.monotonic(), max(GONE.values()))
        return code, time.monotonic() - began

    def trial(self, launcher, plugin, count, what, rank, moment, again):
        count, rank, moment, again = int(count), int(rank), float(moment), int(again)
        self.reference(plugin)
        seconds = self.unbroken_seconds(launcher, plugin, count)
        self.clear()
        began = time.monotonic()
        host = HOSTS[rank * len(HOSTS) // count]
        started = self.start(launcher, plugin, count, self.recipes_with_fault(host) if what == "fail" else ())
        if what == "run":
            self.check_end(self.wait(started), plugin)
            self.figures[f"{launcher} {plugin} {count} run"].append(time.monotonic() - began)
            return "like one process"
        if what == "fail":
            self.check_failure(self.wait(started), count, host)
            self.gone(time.monotonic(), GONE["kill"])
            self.figures[f"{launcher} {plugin} {count} fail"].append(time.monotonic() - began)
            return "all ended with its code"
        self.wait_until(moment, began, seconds, started)
        code, took = self.break_it(started, launcher, count, what, rank)
        if code is None or code == 0:
            if code is None:
                code = self.wait(started)
            self.check_end(code, plugin)
            return "it ended before"
        text = self.text()
        wanted = {"kill": [4, 137, 143, 9], "term": [143], "stop": [STOPPED.get(launcher)],
                  "hang": [4, 143], "cut": None}[what]
        if launcher in ("launch", "torchrun") and what == "kill":
            wanted = [4, 137]
        if wanted is not None and code not in wanted:
            raise Failure(f"exit code {code}, wanted one of {wanted}: {self.message()}")
        if "internal error" in text or "terminate called" in text:
            raise Failure(f"exit code {code} without a proper message: {self.message()}")
        if what == "hang" and not re.search(r"process +host +phase +step", text):
            raise Failure(f"no table of the processes: {self.message()}")
        self.figures[f"{launcher} {plugin} {count} {what}"].append(took)
        newest = max(self.checkpoints(), default=0)
        reported = re.findall(r"^step (\d+)/", text, re.MULTILINE)
        if what in ("term", "stop") and reported and newest != int(reported[-1]):
            raise Failure(f"step {reported[-1]} has no checkpoint: {self.message()}")
        (self.folder / "hang").unlink(missing_ok=True)
        code = self.wait(self.start(launcher if again > 1 else "alone", plugin, again))
        first = re.search(r"^step (\d+)/", self.text(), re.MULTILINE)
        if newest < STEPS and (first is None or int(first[1]) != newest + 1):
            raise Failure(f"the next start did not continue from checkpoint-{newest}: {self.message()}")
        self.check_end(code, plugin)
        return "continued like one process"

    def each(self, numbers):
        """Yields the trials of --each. The moments are random; the numbers of processes that continue take turns."""
        chosen, again = self.options, itertools.cycle([4, 1, 2])
        for plugin, launcher, count in itertools.product(chosen.plugins, chosen.launchers, chosen.counts):
            training = [("kill", rank) for rank in range(count)] + [(what, numbers.randrange(count)) for what in
                                                                    ("term", "hang", "cut")]
            if launcher in STOPPED:
                training.append(("stop", 0))
            faults = [(what, rank, numbers.uniform(1, STEPS / 2)) for what, rank in training]
            faults.append(("kill", numbers.randrange(count), numbers.uniform(0.05, 0.5)))
            faults += [("fail", 0, 0), ("fail", count - 1, 0)]
            for what, rank, moment in faults:
                if what in chosen.what:
                    yield f"{launcher}:{plugin}:{count}:{what}:{rank}:{moment:.3f}:{next(again)}"

    def trials(self, numbers):
        """Yields a trial without a fault for each plugin and launcher, then random trials without end."""
        chosen = self.options
        for plugin in chosen.plugins:
            for launcher in chosen.launchers:
                yield f"{launcher}:{plugin}:{numbers.choice(chosen.counts)}:run:0:0:0"
        while True:
            kinds = [(launcher, plugin, what) for launcher in chosen.launchers for plugin in chosen.plugins
                     for what in chosen.what if what != "stop" or launcher in STOPPED]
            numbers.shuffle(kinds)
            for launcher, plugin, what in kinds:
                count = numbers.choice(chosen.counts)
                moment = numbers.choice([numbers.uniform(0.05, 1), numbers.uniform(1, STEPS)])
                yield ":".join([launcher, plugin, str(count), what, str(numbers.randrange(count)), f"{moment:.3f}",
                                str(numbers.choice([1, 2, 4]))])

    def attempt(self, trial):
        """Returns whether the trial passed, and a text. Repeats a trial that fails while the machine pauses, at most
        twice."""
        for left in (2, 1, 0):
            self.pauses.longest = 0
            fine, word = self.attempt_once(trial)
            if fine or self.pauses.longest < PAUSE or left == 0:
                return fine, word
            print(f"{trial}  repeated, because the machine paused for {self.pauses.longest:.0f} s", flush=True)

    def attempt_once(self, trial):
        try:
            return True, self.trial(*trial.split(":"))
        except Failure as failure:
            for process in self.processes().values():
                os.kill(process, signal.SIGKILL)
            subprocess.run(["scancel", "--user=root"], check=False)
            shutil.copy(self.log, self.folder / ("failed-" + trial.replace(":", "-")))
            return False, f"FAILED: {failure}\n  repeat: tests/launchers/run.sh --repeat {trial}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200, help="how long random faults go on (1200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--launchers", nargs="+", choices=LAUNCHERS, default=LAUNCHERS)
    parser.add_argument("--plugins", nargs="+", choices=["cpu", "rocm"], default=["cpu", "rocm"])
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--counts", nargs="+", type=int, choices=[2, 4], default=[2, 4])
    parser.add_argument("--hang", type=float, default=8, help="FETTLE_HANG_SECONDS (8)")
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--folder", required=True, help="that of with_hosts.sh")
    parser.add_argument("--each", action="store_true", help="a fixed list of faults instead of random ones")
    parser.add_argument("--repeat", metavar="TRIAL", nargs="+", help="only these")
    options = parser.parse_args()
    sweep = Sweep(options)
    print(f"seed {options.seed}", flush=True)
    finite = options.each or options.repeat  # a list of trials, which ends by itself
    end, failed, passed = time.monotonic() + options.seconds, [], collections.Counter()
    numbers = random.Random(options.seed)
    trials = options.repeat or (sweep.each(numbers) if options.each else sweep.trials(numbers))
    for trial in trials:
        if not finite and time.monotonic() > end:
            break
        began = time.monotonic()
        fine, word = sweep.attempt(trial)
        print(f"{trial}  {word}  ({time.monotonic() - began:.0f} s)", flush=True)
        if fine:
            passed[word] += 1
        else:
            failed.append(trial)
    for word, count in passed.items():
        print(f"  {count:4d}  {word}")
    for name, seconds in sorted(sweep.figures.items()):
        print(f"  {name}: {len(seconds)} times, {min(seconds):.1f} to {max(seconds):.1f} s")
    print(f"{len(failed)} of {len(failed) + sum(passed.values())} trials failed; seed {options.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
