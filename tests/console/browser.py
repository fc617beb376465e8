"""A browser without a display, driven by the DevTools protocol over a pipe. Needs nothing but Python and Chromium."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
TIMEOUT_S = 30


def program():
    """The browser's program; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Failed(Exception):
    """Something that the page should show, and does not."""


class Browser:
    """One browser with one page."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="console-")
        # The browser reads from descriptor 3, and writes to 4.
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = 'exec "$0" "$@" 3<&%d 4>&%d' % (to_browser, from_browser)
        self._process = subprocess.Popen(
            ["bash", "-c", command, path, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._answers = {}
        self._arrived = threading.Condition()
        self._number = 0
        self.problems = []
        threading.Thread(target=self._read, daemon=True).start()
        target = self._call("Target.getTargets")["targetInfos"]
        page = next(info for info in target if info["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _read(self):
        rest = b""
        while chunk := os.read(self._in, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    with self._arrived:
                        self._answers[message["id"]] = message
                        self._arrived.notify_all()
                elif message["method"] == "Runtime.exceptionThrown":
                    details = message["params"]["exceptionDetails"]
                    self.problems.append(details.get("exception", {}).get("description", details["text"]))
                elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                    entry = message["params"]["entry"]
                    # Requests that fail while a node is down are part of the test.
                    if entry["source"] != "network":
                        self.problems.append(entry["text"])

    def _call(self, method, session=None, **params):
        with self._arrived:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, TIMEOUT_S):
                raise Failed(f"the browser does not answer {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def call(self, method, **params):
        """Calls a method of the page's session."""
        return self._call(method, self._session, **params)

    def run(self, script):
        """The value of an expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failed(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def size(self, width, height, scheme="light", phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def reload(self):
        self.call("Page.reload")

    def until(self, script, reason, seconds=TIMEOUT_S):
        """Waits until an expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if value := self.run(script):
                    return value
            except Failed as error:
                # While a page loads it has no context.
                if "context" not in str(error) and "null" not in str(error):
                    raise
            if time.monotonic() > deadline:
                shown = self.run("document.body.innerText.slice(0, 1500)")
                raise Failed(f"{reason}: not within {seconds} s ({script}). The page shows:\n{shown}")
            time.sleep(0.05)

    def shows(self, text, within="body", seconds=TIMEOUT_S):
        """Waits for a text on the page."""
        find = f"document.querySelector({json.dumps(within)})?.innerText.includes({json.dumps(text)})"
        self.until(find, f"{within} shows {text!r}", seconds)

    def lacks(self, text, within="body", seconds=TIMEOUT_S):
        """Waits until a text is not on the page."""
        find = f"!document.querySelector({json.dumps(within)})?.innerText.includes({json.dumps(text)})"
        self.until(find, f"{within} does not show {text!r}", seconds)

    def click(self, selector, text=None):
        """Clicks on the element with the mouse, where it is on the screen."""
        find = f"""(() => {{
            const all = [...document.querySelectorAll({json.dumps(selector)})].filter(element => element.checkVisibility())
            const element = all.find(element => {json.dumps(text)} === null || element.innerText.trim() === {json.dumps(text)})
                ?? all.find(element => {json.dumps(text)} !== null && element.innerText.includes({json.dumps(text)}))
            if (!element) return null
            element.scrollIntoView({{ block: "nearest" }})
            const box = element.getBoundingClientRect()
            return {{ x: box.x + Math.min(box.width / 2, 60), y: box.y + box.height / 2 }}
        }})()"""
        place = self.until(find, f"there is {selector} {text or ''}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        """Puts the focus on a field, and replaces its text."""
        self.until(f"Boolean(document.querySelector({json.dumps(selector)}))", f"there is {selector}")
        self.run(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select() }})()"
        )
        self.type(text)

    def key(self, name, code=None, modifiers=0):
        """Presses a key. Modifiers: 2 is Control."""
        codes = {
            "Enter": 13,
            "Escape": 27,
            "ArrowDown": 40,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowLeft": 37,
            "End": 35,
            "Home": 36,
            "Tab": 9,
        }
        text = name if len(name) == 1 else "\r" if name == "Enter" else ""
        params = {
            "key": name,
            "code": code or name,
            "windowsVirtualKeyCode": codes.get(name, ord(name[0].upper())),
            "modifiers": modifiers,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def picture(self, path):
        """Writes the page as a picture, once it is drawn: WebP, which is small enough to be kept, or PNG."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        form = {"format": "webp", "quality": 82} if path.endswith(".webp") else {"format": "png"}
        image = self.call("Page.captureScreenshot", **form)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(image))

    def close(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
