"""Chromium without a window, driven over a pipe by its DevTools protocol: what test_browser.py needs of it and no more.
SPDX-License-Identifier: MIT"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60  # for an answer; machines may be busy


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser and one page in it. `complaints` holds what its console said."""

    def __init__(self, program, folder):
        # It reads commands from 3 and writes to 4, each ended by a zero byte.
        shell = ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh"]
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                 "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen([*shell, program, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        self.complaints = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def _message(self):
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            read = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            if not read:
                raise RuntimeError("the browser ended" if ready else f"no answer in {SECONDS} s")
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        self.events.append(event.get("method"))
        told = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:400])
        elif event.get("method") == "Runtime.consoleAPICalled" or event.get("method") == "Log.entryAdded":
            self.complaints.append(json.dumps(told)[:400])

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self._message()).get("id") != self.number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def show(self, path, width, height, scheme, phone=False):
        """Opens a file at a size, in light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia", media="screen",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.events:
            self._note(self._message())

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:400])
        return answer["result"].get("value")

    def click(self, selector):
        """A press of the mouse in the middle of an element."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{find}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        middle = "({x, y, width, height}) => [x + width / 2, y + height / 2]"
        x, y = self.run(f"({middle})({find}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key, code, text):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        try:
            self.session = None
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            self.process.terminate()
        self.process.wait(SECONDS)
