"""Tests that Fettle and huggingface_hub share a cache: each finds the other's files, and Fettle waits for its locks.

Both use the hub of tests/hub/server.py. usage: hub.py FETTLE
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

program = os.path.abspath(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
work = tempfile.mkdtemp(prefix="fettle-hub-")
root = os.path.join(work, "root")
model = os.path.join(root, "models", "org", "llama")
os.makedirs(model)
for name in os.listdir(os.path.join(here, "models", "llama")):
    path = os.path.join(here, "models", "llama", name)
    if os.path.isfile(path):
        shutil.copy(path, model)
os.makedirs(os.path.join(root, "datasets", "org", "rows", "data"))
with open(os.path.join(root, "datasets", "org", "rows", "data", "train.jsonl"), "w") as rows:
    rows.write('{"text": "a"}\n')
server = subprocess.Popen([sys.executable, os.path.join(here, "..", "hub", "server.py"), root])
while not os.path.exists(os.path.join(root, "ports.json")):
    time.sleep(0.02)
with open(os.path.join(root, "ports.json")) as ports:
    endpoint = "http://127.0.0.1:%d" % json.load(ports)["hub"]
os.environ.update(HF_ENDPOINT=endpoint, HF_HOME=os.path.join(work, "home"), no_proxy="127.0.0.1",
                  HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(name, None)

import huggingface_hub  # noqa: E402
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache  # noqa: E402
from huggingface_hub.utils import WeakFileLock  # noqa: E402


def fettle(*words, home, offline=False):
    variables = dict(os.environ, HF_HOME=home, HF_HUB_OFFLINE="1" if offline else "0")
    done = subprocess.run([program, *words], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def resolved():
    """Returns the number of requests for files since the last call."""
    path = os.path.join(root, "log.jsonl")
    lines = open(path).read().splitlines() if os.path.exists(path) else []
    os.path.exists(path) and os.remove(path)
    return sum("/resolve/" in json.loads(line)["path"] for line in lines)


def check(what, found, wanted):
    assert found == wanted, "%s: found %r, wanted %r" % (what, found, wanted)
    print("hub: %s" % what)


try:
    # Fettle finds what huggingface_hub fetched, with and without a network.
    theirs = os.path.join(work, "theirs")
    cache = os.path.join(theirs, "hub")
    folder = snapshot_download("org/llama", cache_dir=cache)
    rows = snapshot_download("org/rows", repo_type="dataset", cache_dir=cache)
    resolved()
    check("Fettle finds a model of huggingface_hub", fettle("download", "org/llama", home=theirs), folder)
    check("and fetches nothing", resolved(), 0)
    check("also offline", fettle("download", "org/llama", home=theirs, offline=True), folder)
    check("and its data set", fettle("download", "org/rows", "--dataset", home=theirs, offline=True), rows)
    shutil.rmtree(os.path.join(cache, "models--org--llama", "trees"), ignore_errors=True)
    check("also without its listing", fettle("download", "org/llama", home=theirs, offline=True), folder)

    # huggingface_hub finds what Fettle fetched.
    ours = os.path.join(work, "ours")
    cache = os.path.join(ours, "hub")
    folder = fettle("download", "org/llama", home=ours)
    resolved()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        check("huggingface_hub finds Fettle's " + name,
              hf_hub_download("org/llama", name, cache_dir=cache, local_files_only=True), os.path.join(folder, name))
    check("and its snapshot", snapshot_download("org/llama", cache_dir=cache, local_files_only=True,
                                                allow_patterns=os.listdir(folder)), folder)
    check("online it fetches nothing", (snapshot_download("org/llama", cache_dir=cache,
                                                          allow_patterns=os.listdir(folder)), resolved()), (folder, 0))
    absent = try_to_load_from_cache("org/llama", "processor_config.json", cache_dir=cache)
    check("and what the model lacks", absent is huggingface_hub._CACHED_NO_EXIST, True)
    report = scan_cache_dir(cache)
    check("its scan of the cache warns of nothing", [str(warning) for warning in report.warnings], [])
    sizes = sum(os.path.getsize(os.path.join(model, name)) for name in os.listdir(folder))
    check("and counts the bytes", report.size_on_disk, sizes)

    # Fettle waits while huggingface_hub holds the lock of a file.
    etag = os.path.basename(os.readlink(os.path.join(folder, "config.json")))
    waits = os.path.join(work, "waits")
    lock = os.path.join(waits, "hub", ".locks", "models--org--llama", etag + ".lock")
    os.makedirs(os.path.dirname(lock))
    held = threading.Event()

    def hold():
        with WeakFileLock(lock):
            held.set()
            time.sleep(1.5)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    start = time.time()
    fettle("download", "org/llama", home=waits)
    check("Fettle waits for its lock", time.time() - start > 1, True)
    holder.join()

    # Transformers loads offline what Fettle fetched.
    code = ("from transformers import AutoConfig, AutoTokenizer, AutoModelForCausalLM as M\n"
            "AutoTokenizer.from_pretrained('org/llama'); print(M.from_pretrained('org/llama').config.model_type)")
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env=dict(os.environ, HF_HOME=ours, HF_HUB_OFFLINE="1"))
    check("Transformers loads it offline", loaded.stdout.strip(), "llama")
    # huggingface_hub can upload to this server, so the server speaks the hub's protocol. It also downloads what Fettle
    # uploads.
    os.environ.update(HF_TOKEN="good")
    api = huggingface_hub.HfApi(endpoint=endpoint, token="good")
    api.create_repo("me/theirs", private=True)
    api.upload_folder(repo_id="me/theirs", folder_path=model, commit_message="theirs")
    fettle("upload", model, "me/ours", home=os.path.join(work, "token"))
    names = sorted(name for name in os.listdir(model) if not name.startswith("."))
    for repo in ("me/theirs", "me/ours"):
        folder = snapshot_download(repo, cache_dir=os.path.join(work, "back"), token="good")
        same = [open(os.path.join(folder, name), "rb").read() == open(os.path.join(model, name), "rb").read() for name in names]
        check("huggingface_hub downloads all of " + repo, (sorted(os.listdir(folder)), all(same)), (names, True))
finally:
    server.kill()
    server.wait()
    shutil.rmtree(work, ignore_errors=True)
