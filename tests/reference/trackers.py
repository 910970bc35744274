#!/usr/bin/env python3
"""Trains with all trackers, resumes, and reads what the trackers have with the code of TensorBoard, W&B, trackio and
MLflow. The losses must equal those of trainer_state.json, also for the steps that the resumed run computed again.

usage: trackers.py PROGRAM [--mlflow]

MLflow's server is tested only with --mlflow, because it needs 800 MB of packages.
"""
import glob
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
TRACKERS = ["tensorboard", "wandb", "trackio", *(["mlflow"] if "--mlflow" in sys.argv else [])]
MODEL = pathlib.Path(__file__).resolve().parent / "models/llama"


def train(folder, *words, **environment):
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"ab {i}", "completion": "cccc"}) + "\n" for i in range(8)))
    command = [PROGRAM, "train", f"model_name_or_path={MODEL}", f"dataset={rows}", "val_size=2", "template=none",
               f"output_dir={folder / 'out'}", "plugin=cpu", "cutoff_len=64", "per_device_train_batch_size=2",
               "eval_strategy=steps", "eval_steps=2", "logging_steps=1", "save_steps=2", "run_name=first",
               "project=demo", f"report_to={','.join(TRACKERS)}", *words]
    done = subprocess.run(command, env=dict(os.environ, TRACKIO_DIR=str(folder / "trackio"), **environment),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def expected(folder):
    """Returns {(figure, step): value} from trainer_state.json."""
    out = {}
    for record in json.loads((folder / "out/trainer_state.json").read_text())["log_history"]:
        for name, value in record.items():
            kind = "loss" if name == "loss" else "eval_loss" if name == "eval_loss" else None
            if kind:
                out["train/loss" if kind == "loss" else "eval/loss", record["step"]] = value
    return out


def from_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    (run,) = glob.glob(str(folder / "out/runs/*"))
    events = EventAccumulator(run)
    events.Reload()
    text = events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| cutoff_len | `64` |" in text, text
    return {(name, e.step): e.value for name in ("train/loss", "eval/loss") for e in events.Scalars(name)}


def from_wandb(folder):
    import wandb
    wandb._set_internal_process()
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore
    out, ids, ends = {}, set(), []
    files = glob.glob(str(folder / "out/wandb/offline-run-*/*.wandb"))
    assert len(files) == 1, files  # the offline run of the resumed run replaces the first
    for file in files:
        store = DataStore()
        store.open_for_scan(file)
        number = 0
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            number += 1
            assert record.num == number, "records are counted from 1"
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.add((record.run.run_id, record.run.project, record.run.display_name))
                config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                assert config["cutoff_len"] == 64, config
                assert not record.run.resumed and record.run.starting_step == 0, "the file has all figures"
            if kind == "history":
                for item in record.history.item:
                    if item.key in ("train/loss", "eval/loss"):
                        assert (item.key, record.history.step.num) not in out, "a step is there twice"
                        out[item.key, record.history.step.num] = json.loads(item.value_json)
            if kind == "exit":
                ends.append(record.exit.exit_code)
    assert len(ids) == 1 and next(iter(ids))[1:] == ("demo", "first"), ids
    assert ends == [0], ends
    return out


def from_trackio(folder):
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    from trackio.sqlite_storage import SQLiteStorage
    assert SQLiteStorage.get_runs("demo") == ["first"]
    out = {}
    for record in SQLiteStorage.get_logs("demo", "first"):
        for name in ("train/loss", "eval/loss"):
            if name in record:
                assert (name, record["step"]) not in out, "a step is there twice"
                out[name, record["step"]] = record[name]
    return out


class MlflowServer:
    """Runs MLflow's own server. Its data are in a folder."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"],
            stdout=(folder / "mlflow.log").open("w"), stderr=subprocess.STDOUT, start_new_session=True)
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.uri + "/health", timeout=5).read()
                return
            except OSError:
                assert self.process.poll() is None, (folder / "mlflow.log").read_text()
                time.sleep(0.1)
        raise TimeoutError("MLflow's server does not start")

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def from_mlflow(folder):
    from mlflow.tracking import MlflowClient
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    (run,) = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED"), run.info
    assert run.data.params["cutoff_len"] == "64", run.data.params
    # MLflow keeps both figures of a step that the resumed run computed again; the later figure counts. The first run
    # evaluated its last step because it was the last. The resumed run does not evaluate this step.
    out = {(wanted, one.step): one.value for name, wanted in (("loss", "train/loss"), ("eval_loss", "eval/loss"))
           for one in sorted(client.get_metric_history(run.info.run_id, name), key=lambda one: one.timestamp)}
    assert not any(name.startswith(("train/", "eval/")) for name in run.data.metrics), run.data.metrics
    del out["eval/loss", 5]
    return out


def main():
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server = MlflowServer(folder) if "mlflow" in TRACKERS else None
        os.environ["MLFLOW_TRACKING_URI"] = server.uri if server else ""
        train(folder, "max_steps=5")
        subprocess.run(["rm", "-r", *glob.glob(str(folder / "out/checkpoint-[45]"))], check=True)
        train(folder, "max_steps=6", "resume_from_checkpoint=true")
        wanted = expected(folder)
        assert len(wanted) == 9, wanted
        for read in [globals()[f"from_{tracker}"] for tracker in TRACKERS]:
            found = read(folder)
            right = found.keys() == wanted.keys() and all(abs(found[k] - v) < 1e-5 for k, v in wanted.items())
            print(f"trackers: {read.__name__[5:]}: {len(found)} figures", "as logged" if right else f"WRONG: {found}")
            failed |= not right
        if server:
            server.stop()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        blocked = folder / "blocked"
        blocked.write_text("a file, not a folder")
        said = train(folder, "max_steps=2", f"logging_dir={blocked}", WANDB_DIR=str(blocked))
        for tracker in set(TRACKERS) - {"trackio"}:
            right = f"report_to: {tracker}: " in said
            print(f"trackers: {tracker} that cannot be written:", "a warning, and the run ends well" if right else "NO WARNING")
            failed |= not right
    sys.exit(failed)


main()
