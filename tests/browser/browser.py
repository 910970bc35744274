"""A headless Chromium that a test controls through the DevTools protocol over a pipe; needs no other package."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


# Key codes of Windows, which Chromium uses on all systems, and the text that a key types.
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " "), "PageUp": (33, ""), "PageDown": (34, ""),
        "End": (35, ""), "Home": (36, ""), "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""),
        "ArrowDown": (40, ""), "+": (187, "+"), "-": (189, "-")}


class Browser:
    """One page of the program `chromium`. `problems` collects the exceptions and errors that the page reports,
    `requests` the addresses that it loads."""

    def __init__(self, chromium):
        self.profile = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def take_pipes():
            first, second = os.dup(to_read), os.dup(back_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=take_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.number, self.rest, self.problems, self.requests, self.session = 0, b"", [], [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def take(self):
        while b"\0" not in self.rest:
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.take()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            kind, detail = answer.get("method"), answer.get("params", {})
            if kind == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(detail["exceptionDetails"])[:600])
            if kind == "Network.requestWillBeSent":
                self.requests.append(detail["request"]["url"])
            if kind == "Log.entryAdded" and detail["entry"]["level"] == "error":
                self.problems.append(detail["entry"]["text"] + " " + detail["entry"].get("url", ""))

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {json.dumps(answer['exceptionDetails'])[:600]}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=30):
        end = time.time() + seconds
        while time.time() < end:
            try:
                value = self.run(f"Promise.resolve({expression}).then(Boolean)")
            except RuntimeError:  # the page is being replaced
                value = None
            if value:
                return
            time.sleep(0.1)
        raise AssertionError(f"after {seconds} s not true: {expression}; problems: {self.problems}")

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def key(self, name, count=1, shift=False):
        code, text = KEYS[name]
        for _ in range(count):
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                          modifiers=8 if shift else 0, text=text if kind == "keyDown" else "")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def drag(self, start, end):
        """Presses the mouse at `start` (x, y), moves it to `end` and releases it."""
        for kind, (x, y), button in (("mouseMoved", start, "none"), ("mousePressed", start, "left"),
                                     ("mouseMoved", end, "left"), ("mouseReleased", end, "left")):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def picture(self, file, whole=False):
        time.sleep(0.4)
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(file).write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
