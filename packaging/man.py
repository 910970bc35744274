#!/usr/bin/env python3
"""Prints the man page fettle(1), which is made of the program's own help. Usage: man.py FETTLE"""
import os
import re
import subprocess
import sys
import time

FETTLE = sys.argv[1]


def say(*words):
    return subprocess.run([FETTLE, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def verbatim(text):
    return ".nf\n" + escape(text.strip("\n")) + "\n.fi"


def commands():
    """Returns the commands and their meanings, as `fettle --help` lists them."""
    listed = say("--help").split("Subcommands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+) +(.*)$", listed, flags=re.M)


def command_section(name, about):
    """Returns the section for a command: its flags and examples, and the names of its most important keys."""
    usage, _, rest = say(name, "--help").partition("Usage: ")[2].partition("\n")
    rest, _, keys = rest.partition("Recipe keys that matter most here:\n")
    section = f".SS {name}: {escape(about)}\n.B {escape(usage.strip())}\n.PP\n{verbatim(rest)}"
    names = ", ".join(re.findall(r"^  (\w+) ", keys, flags=re.M))
    return section + (f"\n.PP\nRecipe keys that matter most here: {names}." if names else "")


version = say("--version").split()[-1]
top = say("--help")
# Packages set SOURCE_DATE_EPOCH to the time of the last commit.
date = time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
print(f""".TH FETTLE 1 "{date}" "fettle {version}"
.SH NAME
fettle \\- fine\\-tune language models
.SH SYNOPSIS
.B fettle
[\\fIoptions\\fR] \\fIcommand\\fR [\\fIrecipe.yaml\\fR] [\\fIkey\\fR=\\fIvalue\\fR ...]
.SH DESCRIPTION
{escape(top.splitlines()[0])}
.PP
{escape(top.split("Subcommands:")[1].split(chr(10) * 2, 1)[1].strip())}
.SH OPTIONS
{verbatim(top.split("Options:")[1].split("Subcommands:")[0])}
.SH COMMANDS""")
for row in commands():
    print(command_section(*row))
print(".SH RECIPE KEYS")
print(verbatim(say("train", "--help-keys")))
