"""Headless Chromium, driven through the DevTools protocol over a pair of pipes: no port, and no package beside the browser."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile

import pytest
from waiting import LIMIT_S, wait_until

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio"]


class PageError(AssertionError):
    """An exception in the page."""


class Browser:
    """A browser with a profile of its own."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        command = [binary, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        # The browser reads commands from descriptor 3 and writes to 4. Of the four numbers here, that of `answers` is the largest.
        shell = f'exec "$@" 3<&{commands} 4>&{answers}'
        self.process = subprocess.Popen(["bash", "-c", shell, "chromium", *command], pass_fds=(commands, answers),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.n_calls = 0
        self.buffer = b""
        self.results, self.pages = {}, {}

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.commands)
            os.close(self.answers)
            shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, timeout):
        """Take what the browser has sent. False: nothing came."""
        if not select.select([self.answers], [], [], timeout)[0]:
            return False
        piece = os.read(self.answers, 1 << 20)
        if not piece:
            raise ConnectionError("the browser has ended")
        *messages, self.buffer = (self.buffer + piece).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.results[message["id"]] = message
            elif page := self.pages.get(message.get("sessionId")):
                page.handle(message["method"], message["params"])
        return True

    def send(self, method, session=None, **params):
        """Send a command; its number."""
        self.n_calls += 1
        number = self.n_calls
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        return number

    def call(self, method, session=None, **params):
        """The result of a command."""
        number = self.send(method, session, **params)
        while number not in self.results:
            if not self.receive(LIMIT_S):
                raise TimeoutError(f"{method} has no answer")
        result = self.results.pop(number)
        if "error" in result:
            raise PageError(f"{method}: {result['error']}")
        return result["result"]

    def open(self, url, width=1280, height=800, dark=False, beside=None):
        """A page with a storage of its own, or with that of the page that it is opened beside."""
        context = beside.context if beside else self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target, context)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        page.resize(width, height)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.go(url)
        return page


class Page:
    def __init__(self, browser, session, target, context):
        self.browser, self.session, self.target, self.context = browser, session, target, context
        self.requests = []  # the addresses of all requests
        self.problems = []  # exceptions that nothing caught, and what the browser refused or failed to load
        self.dialogs = 0
        self.answers, self.bodies = [], []  # of answer_instead
        self.loaded = None  # the last document that was loaded

    def handle(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"].get("exception", params["exceptionDetails"]).get("description"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Page.lifecycleEvent" and params["name"] == "load":
            self.loaded = params["loaderId"]
        elif method == "Page.javascriptDialogOpening":
            self.dialogs += 1
            self.browser.send("Page.handleJavaScriptDialog", session=self.session, accept=True)
        elif method == "Fetch.requestPaused":
            self.bodies.append(json.loads(params["request"]["postData"]))
            self.browser.send("Fetch.fulfillRequest", session=self.session, requestId=params["requestId"], responseCode=200,
                              body=base64.b64encode(self.answers.pop(0).encode()).decode())

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def go(self, url):
        document = self.call("Page.navigate", url=url)["loaderId"]
        self.wait_until(lambda: self.loaded == document, "the page is loaded")

    def answer_instead(self, path, *answers):
        """Answer the next requests for a path with these bodies, in place of the server; `bodies` gets those of the requests."""
        self.answers += answers
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"}])

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def run(self, script):
        """The value of an expression, or of the promise that it is."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in done:
            raise PageError(done["exceptionDetails"]["exception"].get("description", done["exceptionDetails"]["text"]))
        return done["result"].get("value")

    def wait_until(self, condition, what):
        def look():
            while self.browser.receive(0):
                pass
            value = condition()
            return None if value in (None, False, 0, "") else [value]  # as in JavaScript, where an empty object is true

        try:
            return wait_until(look, what)[0]
        except pytest.fail.Exception as failed:
            raise AssertionError(f"{failed}; the page has {self.problems}") from None

    def wait_for(self, script):
        """Wait until an expression is true; its value."""
        return self.wait_until(lambda: self.run(script), script)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector):
        """Click the element as a user does: it must be there, and nothing may lie above it."""
        box = self.wait_for(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            if (!element) return null;
            element.scrollIntoView({{ block: "nearest" }});
            const box = element.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            return element.contains(document.elementFromPoint(x, y)) && {{ x, y }};
        }})()""")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **box)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    def type(self, text):
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        """Press Enter, Escape, Tab or an arrow."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code,
                  modifiers=8 if shift else 0, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
