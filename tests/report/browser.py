"""A headless Chromium, spoken to over its debugging pipe (Chrome DevTools Protocol), and its
screenshots as arrays. Python's standard library and NumPy only."""

import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

import numpy as np

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def read_png(data):
    """An 8-bit RGB or RGBA PNG as an array [height, width, 3]."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and interlace == 0, (depth, colour, interlace)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    image = np.zeros((height, width * channels), np.uint8)
    above = np.zeros(width * channels, np.int32)
    for y in range(height):
        kind, raw = rows[y, 0], rows[y, 1:].astype(np.int32)
        if kind == 0:
            line = raw
        elif kind == 1:  # left: a running sum per channel
            line = np.cumsum(raw.reshape(width, channels), axis=0).reshape(-1) & 255
        elif kind == 2:
            line = (raw + above) & 255
        else:  # average and Paeth depend on the pixel just decoded
            line = raw.copy()
            for i in range(width * channels):
                left = line[i - channels] if i >= channels else 0
                if kind == 3:
                    line[i] = (line[i] + (left + above[i]) // 2) & 255
                    continue
                corner = above[i - channels] if i >= channels else 0
                guess = left + above[i] - corner
                a, b, c = abs(guess - left), abs(guess - above[i]), abs(guess - corner)
                line[i] = (line[i] + (left if a <= b and a <= c else
                                      above[i] if b <= c else corner)) & 255
        image[y] = line
        above = line
    return image.reshape(height, width, channels)[:, :, :3]


class Browser:
    """One page at a time. `events` collects what the browser reports while a page is open."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="tutti-chromium-")
        commands_out, self.commands = os.pipe()
        self.answers, answers_in = os.pipe()

        def attach():  # Chromium reads commands from 3 and answers on 4
            os.dup2(commands_out, 100)
            os.dup2(answers_in, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=attach, start_new_session=True)
        os.close(commands_out)
        os.close(answers_in)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise RuntimeError("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, path, width, height, dark=False, scripts=True):
        """Loads a local file, or an address, as on a screen of this size; returns when it is loaded."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path if path.startswith("http") else "file://" + os.path.abspath(path))
        deadline = time.monotonic() + 60
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            answer = self.message(deadline)
            if "method" in answer:
                self.events.append(answer)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def box(self, selector):
        """(left, top, width, height) of the first match, in pixels of the page."""
        return self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            "return [b.left + scrollX, b.top + scrollY, b.width, b.height]; })()")

    def screenshot(self, box=None, save=None, raw=False):
        """The whole page, or the box of it, as [height, width, 3]."""
        if box is None:
            box = [0, 0] + self.value(
                "[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = dict(zip(("x", "y", "width", "height"), box), scale=1)
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip,
                                          captureBeyondViewport=True)["data"])
        if save:
            with open(save, "wb") as file:
                file.write(data)
        return data if raw else read_png(data)

    def complaints(self):
        """Errors and warnings of the page so far: exceptions, console, security policy."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(event["params"])
        return found

    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events
                if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except Exception:
            os.killpg(self.process.pid, 9)  # its own process group: only what was started here
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
