#!/usr/bin/env python3
"""Uses the pages of `fettle board`, `fettle serve` and report.html as people do, in Chromium: by mouse, by keyboard, in
a narrow window and in dark mode, with 1,000 runs and a log of 1,000,000 lines. Keeps pictures of all pages, which
people can look at.

usage: tests/browser/pages.py --fettle PROGRAM --chromium PROGRAM --pictures FOLDER [NAME ...]

NAME chooses checks. The exit code is 1 if a check failed.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 1_000_000
MANY = 1000
MODELS = ROOT / "tests/reference/models"
WORDS = [f"model_name_or_path={MODELS}/llama", f"dataset={MODELS}/rows.jsonl", "plugin=cpu", "cutoff_len=40",
         "per_device_train_batch_size=2", "logging_steps=1", "lora_rank=4"]
EVIL = "<img src=x onerror=document.title='taken'>"


def write_log(folder, steps, rate, seed, every=10):
    """Writes the log of a made-up run."""
    folder.mkdir(parents=True)
    chance, lines = random.Random(seed), []
    for step in range(every, steps + 1, every):
        done = step / steps
        line = {"current_steps": step, "total_steps": steps,
                "loss": round(1.1 + 2.4 / (1 + 12 * done * rate) + chance.gauss(0, .06), 4),
                "lr": 2e-4 * rate * (1 - done), "epoch": round(3 * done, 3), "percentage": round(100 * done, 2),
                "elapsed_time": f"{step // 3600}:{step // 60 % 60:02}:{step % 60:02}", "remaining_time": "0:00:00",
                "throughput": round(5200 + chance.gauss(0, 90), 1), "total_tokens": step * 4096,
                "grad_norm": round(abs(chance.gauss(.6, .15)), 4)}
        lines.append(json.dumps(line))
        if step % (steps // 10) == 0:
            shown = {key: line[key] for key in ("current_steps", "total_steps", "epoch", "elapsed_time")}
            lines.append(json.dumps({**shown, "eval_loss": round(1.2 + 2.3 / (1 + 11 * done * rate), 4)}))
    (folder / "trainer_log.jsonl").write_text("\n".join(lines) + "\n")


def train(fettle, output, *words):
    subprocess.run([fettle, "-q", "train", *WORDS, f"output_dir={output}", *words], check=True, stdout=subprocess.DEVNULL)


class Board:
    """Runs `fettle board` over a folder. `address` is the URL of the board, `token` its access token."""

    def __init__(self, fettle, folder, *flags):
        self.process = subprocess.Popen([fettle, "board", str(folder), "--port", "0", *flags], stderr=subprocess.PIPE,
                                        text=True)
        line = self.process.stderr.readline()
        self.address = re.search(r"http://\S+/", line).group(0)
        self.token = re.search(r"#token=(\S+)", line).group(1)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 0


class Served:
    """Runs `fettle serve` with a small model and an adapter of this model. `address` is the URL of the server."""

    def __init__(self, fettle, folder):
        shutil.copytree(MODELS / "llama", folder / "base")
        shutil.copytree(MODELS / "llama/adapter_final", folder / "tuned")
        (folder / "base/chat_template.jinja").write_text(
            "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}")
        self.process = subprocess.Popen(
            [fettle, "serve", f"model_name_or_path={folder}/base", f"adapter_name_or_path={folder}/tuned", "plugin=cpu",
             "do_sample=false", "max_new_tokens=24", "--port", "0", "--rows", "4"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://[^/]+/", line):
                self.address = found.group(0)
                return
        raise RuntimeError("the server did not start")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 0


class Pages:
    """The checks. Each method whose name begins with check_ is one check."""

    def __init__(self, options, folder):
        self.fettle, self.chromium = options.fettle.resolve(), options.chromium
        self.pictures, self.folder = options.pictures, folder
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.some, self.many = folder / "runs", folder / "many"
        for rate in (.3, 1, 2, 4):
            write_log(self.some / f"sweep/rate-{rate}", 3000, rate, seed=int(10 * rate))
        train(self.fettle, self.some / "lora", "max_steps=40", "val_size=8", "eval_strategy=steps", "eval_steps=10",
              "learning_rate=0.002", f"run_name={EVIL}")
        train(self.fettle, self.some / "full", "max_steps=30", "finetuning_type=full", "learning_rate=0.0005")
        (self.some / "lora/tuned_predictions.jsonl").write_text("".join(
            json.dumps({"prompt": f"Question {i}?", "predict": f"<b>{i}</b> & {EVIL}"}) + "\n" for i in range(25)))

    def open(self, page, address, path=""):
        """Opens the address as in a new tab."""
        page.open(address)
        page.wait("location.protocol !== 'about:'")
        page.run("sessionStorage.clear()")
        page.open("about:blank")
        page.open(address + path)
        page.wait("document.readyState === 'complete' && document.querySelector('main').children.length")

    # Checks what must be true of every page, in every window size, in light and dark mode.
    def look(self, page, name, whole=True):
        page.wait("document.fonts.ready.then(() => true)")
        assert not page.problems, page.problems
        for size, dark in ((1360, False), (1360, True), (390, False), (390, True)):
            page.size(size, 900, dark)
            page.wait("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
            wide = page.run("document.scrollingElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name}: {wide} px are outside of a window of {size} px: {page.run(OUTSIDE)}"
            dim = page.run(DIM)
            assert not dim, f"{name} ({size} px, dark: {dark}) has texts with too little contrast: {dim}"
            nameless = page.run(NAMELESS)
            assert not nameless, f"{name} has controls without a name: {nameless}"
            page.picture(self.pictures / f"{name}-{size}{'-dark' if dark else ''}.png", whole)
        page.size(1360, 900)
        assert page.run("document.title") != "taken"

    def check_charts(self, page, board):
        self.open(page, board.address, f"#token={board.token}")
        page.wait(f"document.querySelectorAll('#runs li').length === 6 && {DRAWN}('Training loss')")
        assert page.run("location.hash") == "#/", "the token stays out of the address"
        assert page.run("document.querySelectorAll('#runs img').length") == 0, "a name became an element"
        self.look(page, "charts")
        # A drag enlarges a range, a double click shows all again.
        box = page.run("(() => { const box = document.querySelector('.plot').getBoundingClientRect();"
                       "return [box.left, box.top, box.width, box.height]; })()")
        x, y, width, height = box
        page.drag((x + .5 * width, y + .5 * height), (x + .8 * width, y + .6 * height))
        page.wait("!document.querySelector('.reset').classList.contains('hidden')")
        page.picture(self.pictures / "charts-enlarged.png")
        page.run("document.querySelector('.reset').click()")
        page.wait("document.querySelector('.reset').classList.contains('hidden')")
        # The search, and the selection.
        page.run("document.getElementById('search').focus()")
        page.type("rate-4")
        page.wait("document.querySelectorAll('#runs li').length === 1")
        page.run("document.getElementById('none').click()")
        page.wait("document.querySelector('.empty h2').textContent === 'No run is selected'")
        page.picture(self.pictures / "charts-none.png")
        page.run("document.querySelector('#runs input').click()")
        page.wait(f"{DRAWN}('Training loss')")

    def check_chat(self, page, board):
        served = Served(self.fettle, self.folder)
        try:
            self.chat(page, served.address)
        finally:
            served.close()

    def chat(self, page, address):
        page.open(address)
        page.wait("document.getElementById('beside')?.value === 'base'")
        assert page.run("document.getElementById('model').value") == "tuned"
        assert page.run("document.activeElement.id") == "text", "the first key goes into the message"
        columns = "[...document.querySelectorAll('.replies:last-child section')]"
        ended = f"{columns}.map(one => /tokens in/.test(one.lastChild.textContent))"
        texts = f"{columns}.map(one => one.querySelector('.assistant').textContent)"
        page.type("rizb ndax pmfo")
        page.key("Enter")
        page.wait(f"{ended}.length === 2 && {ended}.every(Boolean)", 120)
        assert page.run(f"{columns}.map(one => one.querySelector('h2').textContent)") == ["tuned", "base"]
        tuned, base = page.run(texts)
        assert tuned and base and tuned != base, (tuned, base)
        # A second question continues both conversations.
        page.type("cloud")
        page.key("Enter")
        page.wait(f"document.querySelectorAll('.replies').length === 2 && {ended}.every(Boolean)", 120)
        side = f"{columns}.map(one => one.getBoundingClientRect().top)"
        first, second = page.run(side)
        assert first == second, "the columns are side by side"
        self.look(page, "chat", whole=False)
        page.size(390, 900)
        first, second = page.run(side)
        assert first < second, "in a narrow window, one reply is above the other"
        page.size(1360, 900)
        # By keyboard: the select of the second column is before the button, and the button before the conversation.
        page.run("document.getElementById('model').focus()")
        focus = "document.activeElement.id"
        for name in ("beside", "clear", "talk"):
            page.key("Tab")
            assert page.run(focus) == name, page.run(focus)
        page.run("(one => { one.value = ''; one.onchange(); })(document.getElementById('beside'))")
        assert page.run("document.querySelectorAll('article').length") == 0, "another choice begins a new conversation"
        page.run("document.getElementById('text').focus()")
        page.type("rizb ndax pmfo")
        page.key("Enter")
        page.wait(f"{ended}.length === 1 && {ended}[0]", 120)
        assert page.run(texts) == [tuned]
        self.look(page, "chat-one", whole=False)
        assert all(url.startswith((address, "about:", "data:")) for url in page.requests[-5:]), page.requests[-5:]

    def check_keyboard(self, page, board):
        self.open(page, board.address, f"#token={board.token}")
        page.wait(f"document.querySelectorAll('#runs li').length === 6 && {DRAWN}('Training loss')")
        focus = "(one => one.textContent || one.getAttribute('aria-label') || one.value)(document.activeElement)"
        page.key("Tab")
        assert page.run(focus) == "Skip to the content"
        page.picture(self.pictures / "keyboard-skip.png")
        page.key("Enter")
        page.wait("document.activeElement.id === 'main'")
        assert page.run("location.hash") == "#/", "the link to the content changed the page"
        page.key("Tab")
        assert page.run("document.activeElement.name") == "axis"
        page.key("ArrowRight")
        page.wait("document.querySelector('[name=axis]:checked').value === 'seconds'")
        page.key("ArrowLeft")
        page.wait("document.querySelector('[name=axis]:checked').value === 'step'")
        for _ in range(10):
            if page.run("document.activeElement.className") == "plot":
                break
            page.key("Tab")
        assert page.run("document.activeElement.className") == "plot"
        page.key("Home")
        page.key("ArrowRight", 3)
        page.wait("!document.querySelector('.readout').classList.contains('hidden')")
        first = page.run("document.querySelector('.readout').textContent")
        assert first.startswith("step 4") and all(name in first for name in ("lora", "full", "sweep/rate-4")), first
        page.picture(self.pictures / "keyboard-readout.png")
        page.key("+")
        page.wait("!document.querySelector('.reset').classList.contains('hidden')")
        page.key("Escape", 2)
        page.wait("document.querySelector('.reset').classList.contains('hidden')")
        page.run("document.querySelector('#runs input').focus()")
        before = page.run("document.getElementById('count').textContent")
        page.key(" ")
        page.wait(f"document.getElementById('count').textContent !== {json.dumps(before)}")
        assert page.run("document.activeElement.type") == "checkbox", "the focus is lost"
        page.key("Tab")
        page.key("Enter")
        page.wait("location.hash.startsWith('#/run/')")
        assert not page.problems, page.problems

    def check_run(self, page, board):
        self.open(page, board.address, "#/run/lora")
        page.wait(f"document.querySelectorAll('.example').length && {DRAWN}('Evaluation loss')")
        text = page.run("document.querySelector('main').textContent")
        for wanted in ("Memory of one device", "Trained tokens", "Final figures", "lora_rank", "Machine", "finished"):
            assert wanted in text, f"the page of a run lacks {wanted}"
        assert page.run("document.querySelectorAll('.example mark').length") > 0
        rows = "[...document.querySelectorAll('.example')].filter(one => one.textContent.includes('Question '))"
        for title, shown in ("Show answers", 20), ("Show more", 25):
            page.run(f"[...document.querySelectorAll('button')].find(one => one.textContent === '{title}').click()")
            page.wait(f"{rows}.length === {shown}")
        assert "<b>24</b>" in page.run(f"{rows}[24].textContent")
        assert page.run("[...document.querySelectorAll('button')].every(one => one.textContent !== 'Show more' || "
                        "one.classList.contains('hidden'))")
        self.look(page, "run")
        self.open(page, board.address, "#/run/" + "sweep%2Frate-1")
        page.wait(f"{DRAWN}('Training loss')")
        self.look(page, "run-of-another-tool")
        self.open(page, board.address, "#/run/none")
        page.wait("document.querySelector('main').textContent.includes('This run is not in the folder')")

    def check_compare(self, page, board):
        self.open(page, board.address, f"#token={board.token}")
        page.wait("document.querySelectorAll('#runs li').length === 6")
        page.run("location.hash = '#/compare'")
        page.wait("document.querySelector('table.compare')")
        text = page.run("document.querySelector('table.compare').textContent")
        assert "finetuning_type" in text and "cutoff_len" not in text and "not known" in text, text
        row = page.run("[...document.querySelectorAll('table.compare tr')].find(one => one.firstChild.textContent === "
                       "'finetuning_type').textContent")
        assert "full" in row and "lora (default)" in row, row
        page.run("document.querySelector('main input[type=checkbox]').click()")
        page.wait("document.querySelector('table.compare').textContent.includes('cutoff_len')")
        self.look(page, "compare")

    def check_new_run(self, page, board):
        self.open(page, board.address, f"#token={board.token}")
        page.run("location.hash = '#/new'")
        page.wait("document.getElementById('key-model_name_or_path')")

        def fill(key, text):
            page.run(f"document.getElementById('key-{key}').focus()")
            page.run(f"document.getElementById('key-{key}').select()")
            page.type(text)

        for word in WORDS:
            key, value = word.split("=")
            if page.run(f"document.getElementById('key-{key}') === null"):
                page.run("(one => { one.value = '%s'; one.dispatchEvent(new Event('change')); })"
                         "(document.querySelector('[aria-label=\"Add another key\"]'))" % key)
            if page.run(f"document.getElementById('key-{key}').tagName") == "SELECT":
                page.run("(one => { one.value = '%s'; one.dispatchEvent(new Event('change')); })"
                         "(document.getElementById('key-%s'))" % (value, key))
            else:
                fill(key, value)
        fill("learning_rate", "fast")
        page.wait("document.querySelector('.message.bad') && document.querySelector('.field.bad label').textContent")
        assert page.run("document.querySelector('.field.bad label').textContent") == "learning_rate"
        text = page.run("document.querySelector('.message.bad').textContent")
        assert text.startswith("learning_rate: found 'fast', wanted"), text
        page.picture(self.pictures / "new-wrong.png")
        page.problems.clear()  # Chromium reports the status 400
        fill("learning_rate", "0.002")
        fill("max_steps", "100000")
        page.wait("document.querySelector('.message.good')")
        click = "[...document.querySelectorAll('button')].find(one => one.textContent === '%s').click()"
        page.run(click % "Show data")
        page.wait("document.querySelector('.compose .example')", 120)
        page.run(click % "Show plan")
        page.wait("document.querySelector('.compose .bar')", 120)
        self.look(page, "new")
        page.run("document.getElementById('run-name').select()")
        page.type("from-the-form")
        page.run(click % "Start the run")
        page.wait("location.hash === '#/run/from-the-form'")
        page.wait("document.querySelector('main .state.running')", 60)
        page.wait(f"{DRAWN}('Training loss')", 60)
        seen = page.run("document.querySelector('.tile dd').textContent")
        page.wait(f"document.querySelector('.tile dd').textContent !== {json.dumps(seen)}")
        page.wait("document.querySelector('.output') && document.querySelector('.output').textContent.includes('step ')")
        self.look(page, "running")
        page.run(click % "Stop and save")
        page.wait("document.querySelector('main .state.stopped')", 60)
        page.wait("[...document.querySelectorAll('button')].some(one => one.textContent === 'Continue')")
        page.run(click % "Continue")
        page.wait("document.querySelector('main .state.running')", 60)
        page.run(click % "Stop and save")
        page.wait("[...document.querySelectorAll('button')].every(one => one.textContent !== 'Stop and save' || one.disabled)")
        page.wait("document.querySelector('main .state.stopped')", 60)
        page.run(click % "Use as a new run")
        page.wait("document.getElementById('key-lora_rank') && document.getElementById('key-lora_rank').value === '4'")

    def check_token(self, page, board):
        del board
        locked = Board(self.fettle, self.some, "--host", "0.0.0.0")
        try:
            address = locked.address.replace("0.0.0.0", "127.0.0.1")
            self.open(page, address)
            page.wait("document.getElementById('token')")
            page.problems.clear()  # Chromium reports the status 401
            self.look(page, "token")
            page.run("document.getElementById('token').focus()")
            page.type(locked.token)
            page.key("Enter")
            page.wait(f"document.querySelectorAll('#runs li').length >= 6 && {DRAWN}('Training loss')")
            page.problems.clear()
        finally:
            locked.close()

    def check_many(self, page, board):
        del board
        for i in range(MANY - 1):
            write_log(self.many / f"sweep/{i:04}", 100, 1 + i % 5, seed=i)
        long = self.many / "long"
        long.mkdir()
        with open(long / "trainer_log.jsonl", "w") as out:
            for step in range(1, LONG + 1):
                value = 99 if step == 700_000 else 2 + step % 10 / 10
                out.write(f'{{"current_steps": {step}, "total_steps": {LONG}, "loss": {value}, "lr": 0.001}}\n')
        large = Board(self.fettle, self.many, "--read-only")
        try:
            self.open(page, large.address)
            page.wait(f"document.querySelectorAll('#runs li').length === {MANY} && {DRAWN}('Training loss')", 60)
            self.look(page, "many", whole=False)
            page.requests.clear()
            page.run("document.getElementById('search').focus()")
            page.type("09")
            page.wait("document.querySelectorAll('#runs li').length < 200")
            page.run("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
            self.open(page, large.address, "#/run/long")
            page.wait(f"{DRAWN}('Training loss')", 60)
            page.run("document.querySelector('.plot').focus()")
            text = page.run("document.querySelector('.plot').getAttribute('aria-label')")
            assert "last" in text, text
            curve = page.run(f"fetch('/api/curves?name=long&points=1000').then(one => one.json())")["runs"]["long"]
            assert curve["lines"] == LONG and max(curve["curves"]["loss"]["high"]) == 99
            assert len(curve["curves"]["loss"]["x"]) == 1000
            self.look(page, "long")
            for _ in range(12):  # zooms in until each point of the chart is a single value
                page.key("+")
            page.wait("(axis => axis)(document.querySelector('.reset') && !document.querySelector('.reset').classList.contains('hidden'))")
            page.picture(self.pictures / "long-enlarged.png")
            writes = page.run("fetch('/api/start', {method: 'POST', body: '{}'}).then(one => one.status)")
            assert writes in (401, 404), writes
            page.problems.clear()  # Chromium reports that status
        finally:
            large.close()

    def check_report(self, page, board):
        del board
        for name in ("lora", "full"):
            report = (self.some / name / "report.html").as_uri()
            page.requests.clear()
            page.open("about:blank")
            page.open(report)
            page.wait(f"document.readyState === 'complete' && {DRAWN}('Training loss')")
            others = [one for one in page.requests if one not in (report, "about:blank")]
            assert not others, others
            self.look(page, f"report-{name}")
        page.run("document.querySelector('.plot').focus()")
        page.key("ArrowRight", 2)
        page.wait("!document.querySelector('.readout').classList.contains('hidden')")
        page.call("Emulation.setEmulatedMedia", media="print")
        page.picture(self.pictures / "report-print.png", True)
        page.call("Emulation.setEmulatedMedia", media="")


# Returns whether the chart with this title has something on its canvas.
DRAWN = """(title => [...document.querySelectorAll('.chart')].some(chart => {
  const canvas = chart.querySelector('canvas');
  return chart.querySelector('figcaption b').textContent === title && canvas.width > 50 && chart.querySelector('.none.hidden')
    && canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(part => part !== 0);
}))"""

# Elements that reach beyond the window.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .slice(0, 5).map(one => one.tagName + '.' + one.className)"""

# Controls that a screen reader cannot name.
NAMELESS = """[...document.querySelectorAll('input, select, textarea, button, a, [tabindex="0"]')].filter(one =>
  one.checkVisibility() && !one.labels?.length && !one.getAttribute('aria-label') && !one.textContent.trim())
  .map(one => one.outerHTML.slice(0, 120))"""

# Visible texts whose contrast with their background is below 4.5 (WCAG 2.1, level AA).
DIM = """(() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const seen = new Map();
  const rgba = text => {
    if (seen.has(text)) return seen.get(text);
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    seen.set(text, [r, g, b, a / 255]);
    return seen.get(text);
  };
  const over = (top, low) => [0, 1, 2].map(i => top[i] * top[3] + low[i] * (1 - top[3])).concat(1);
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const background = one => {
    const colours = [];
    for (; one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      colours.push(colour);
      if (colour[3] === 1) break;
    }
    return colours.reverse().reduce((low, top) => over(top, low), [255, 255, 255, 1]);
  };
  const found = new Set();
  for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility({contentVisibilityAuto: true}) || one.closest(':disabled, script, style, option')) continue;
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const back = background(one), text = over(rgba(getComputedStyle(one).color), back);
    const [a, b] = [light(text), light(back)].sort((x, y) => y - x), contrast = (a + .05) / (b + .05);
    if (contrast < 4.5) found.add(one.tagName + '.' + one.className + ' "' + one.textContent.slice(0, 30) + '" ' + contrast.toFixed(2));
  }
  return [...found].slice(0, 8);
})()"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fettle", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        pages = Pages(options, pathlib.Path(folder))
        page, board = Browser(options.chromium), Board(pages.fettle, pages.some)
        try:
            for name in [name for name in dir(pages) if name.startswith("check_")]:
                if options.names and name.removeprefix("check_") not in options.names:
                    continue
                page.problems.clear()
                page.size(1360, 900)
                try:
                    getattr(pages, name)(page, board)
                    print(f"browser: {name.removeprefix('check_')}: as wanted", flush=True)
                except (AssertionError, RuntimeError) as error:
                    failed += 1
                    page.picture(pages.pictures / f"failed-{name}.png")
                    traceback.print_exc(limit=2)
                    print(f"browser: {name.removeprefix('check_')}: FAILED: {error}", flush=True)
        finally:
            page.close()
            board.close()
    print(f"browser: pictures are in {options.pictures}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
