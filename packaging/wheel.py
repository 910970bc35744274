#!/usr/bin/env python3
"""Packs an installed tree as a wheel in FOLDER. pip unpacks the tree into the prefix of its Python. The wheel has no
Python code. TAG is the platform tag of the wheel's name. Usage: wheel.py TREE TAG FOLDER"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile

TREE, TAG, FOLDER = sys.argv[1:]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VERSION = subprocess.run([f"{TREE}/bin/fettle", "--version"], check=True, stdout=subprocess.PIPE,
                         text=True).stdout.split()[1]
TIME = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
DATA, INFO = f"fettle-{VERSION}.data", f"fettle-{VERSION}.dist-info"
DOCS = f"{TREE}/share/doc/fettle/"

LAUNCHER = """#!/bin/sh
# Starts the program in lib/fettle of the same prefix. `fettle launch` starts the program without this script.
exec "$(dirname "$(dirname "$(readlink -f "$0")")")/lib/fettle/fettle" "$@"
"""


def pinned():
    """Returns the vendors' wheels of scripts/plugins.txt, each as NAME==VERSION."""
    with open(f"{ROOT}/scripts/plugins.txt", encoding="utf-8") as lines:
        return re.findall(r"^([a-z]\S*==\S+)", lines.read(), flags=re.M)


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: fettle", f"Version: {VERSION}", "Summary: fine-tunes language models",
             "License: Apache-2.0; licences/ has those of the libraries in the wheel", "Requires-Python: >=3.7",
             "Provides-Extra: cuda", "Provides-Extra: rocm"]
    for wheel in pinned():
        lines.append(f"Requires-Dist: {wheel}; extra == '{'rocm' if 'rocm' in wheel else 'cuda'}'")
    return "\n".join(lines) + "\n"


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.record = []

    def add(self, name, content, executable=False):
        entry = zipfile.ZipInfo(name, TIME)
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}\n")

    def close(self):
        self.add(f"{INFO}/RECORD", ("".join(self.record) + f"{INFO}/RECORD,,\n").encode())
        self.zip.close()


wheel = Wheel(f"{FOLDER}/fettle-{VERSION}-py3-none-{TAG}.whl")
for folder, folders, files in os.walk(TREE):
    folders.sort()
    for file in sorted(files):
        path = os.path.join(folder, file)
        if os.path.islink(path):
            continue  # bin/fettle: a wheel has no links, so LAUNCHER takes its place below
        name = path.replace(DOCS, f"{INFO}/") if path.startswith(DOCS) else f"{DATA}/data/{path[len(TREE) + 1:]}"
        with open(path, "rb") as content:
            wheel.add(name, content.read(), os.access(path, os.X_OK))
wheel.add(f"{DATA}/scripts/fettle", LAUNCHER.encode(), True)
wheel.add(f"{INFO}/METADATA", metadata().encode())
wheel.add(f"{INFO}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fettle\nRoot-Is-Purelib: false\nTag: py3-none-{TAG}\n".encode())
wheel.close()
