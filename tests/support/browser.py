"""Chromium over the DevTools protocol: one browser without a network, pages at any width, real keys."""

import base64
import itertools
import json
import lzma
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

AXE = Path(__file__).parents[1] / "data/axe/axe.min.js.xz"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
WAIT = 60
"""Seconds until a page must answer, on a machine that is busy with other work."""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38}


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A browser process; `open` gives pages."""

    def __init__(self, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        here, there = (to_read, to_write), (3, 4)

        def connect():
            spare = [os.dup(end) for end in here]
            spare = [os.dup2(end, 10 + index) for index, end in enumerate(spare)]
            for end, number in zip(spare, there, strict=True):
                os.dup2(end, number)

        command = [chromium(), *FLAGS, f"--user-data-dir={profile}"]
        self._log = open(Path(profile).with_suffix(".log"), "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, preexec_fn=connect, close_fds=False, stdout=self._log, stderr=self._log
        )
        for end in here:
            os.close(end)
        self._ids, self._rest = itertools.count(1), b""
        self.events = []

    def send(self, method, session=None, **parameters):
        """Call a method of the protocol and return its result."""
        message = {"id": next(self._ids), "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], WAIT)[0], f"the browser has not answered for {WAIT} s"
            part = os.read(self._read, 2**20)
            assert part, "the browser has ended"
            self._rest += part
        first, self._rest = self._rest.split(b"\0", 1)
        return json.loads(first)

    def open(self, path, *, width=1280, height=800, dark=False):
        """Open a file and wait until it has loaded."""
        return Page(self, path, width=width, height=height, dark=dark)

    def close(self):
        self.send("Browser.close")
        self._process.wait(timeout=WAIT)
        self._log.close()
        os.close(self._read)
        os.close(self._write)


class Page:
    """An open page; `requests` has what it tried to load, `problems` its console errors and exceptions."""

    def __init__(self, browser, path, *, width, height, dark):
        self.browser = browser
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.as_uri())
        self.until("location.href != 'about:blank' && document.readyState == 'complete'")

    def send(self, method, **parameters):
        return self.browser.send(method, session=self.session, **parameters)

    def run(self, script):
        """The value of an expression or of a promise, as plain values."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition):
        """Wait until an expression is true."""
        end = time.monotonic() + WAIT
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def top(self, selector):
        """Distance of the first such element from the top of the page, in pixels; None if there is none."""
        return self.run(f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
                        " return one && one.getBoundingClientRect().top + scrollY; })()")  # fmt: skip

    def press(self, key, shift=False):
        """Press a key, as a reader would."""
        more = {"text": "\r"} if key == "Enter" else {}
        options = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        self.send("Input.dispatchKeyEvent", type="keyDown", **options, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", **options)

    def move(self, x, y):
        """Move the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path, *, whole=False):
        """Save a screenshot of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def violations(self, without=()):
        """What axe-core finds, of any impact: rule, number of elements, and the first of them."""
        self.run(lzma.decompress(AXE.read_bytes()).decode() + ";0")
        where = json.dumps({"exclude": list(without)}) if without else "document"
        found = self.run(f"axe.run({where}, {{resultTypes: ['violations']}}).then((result) => result.violations)")
        return [
            (one["id"], len(one["nodes"]), one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"][:300])
            for one in found
        ]

    def overflow(self):
        """Elements that make the page wider than its window."""
        return self.run("""(() => {
          const limit = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= limit) return [];
          const wide = [...document.querySelectorAll("body *")].filter((one) => {
            for (let up = one.parentElement; up; up = up.parentElement)
              if (up !== document.documentElement && getComputedStyle(up).overflowX !== "visible") return false;
            return one.getBoundingClientRect().right > limit + 0.5;
          });
          return wide.map((one) => one.outerHTML.slice(0, 120));
        })()""")

    def longest_line(self):
        """Characters of the longest line of running text, and the line."""
        return self.run(r"""(() => {
          let most = [0, ""];
          for (const one of document.querySelectorAll("p:not(.sentence), li:not(.forest > li), dd, summary")) {
            if (!one.offsetParent || one.querySelector("p, svg, table")) continue;
            const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), lines = new Map();
            for (let node = walker.nextNode(); node; node = walker.nextNode())
              for (let at = 0; at < node.length; at++) {
                const range = document.createRange();
                range.setStart(node, at);
                range.setEnd(node, at + 1);
                const box = range.getBoundingClientRect(), line = Math.round(box.top / 8);
                if (box.width) lines.set(line, (lines.get(line) ?? "") + node.data[at]);
              }
            for (const line of lines.values())
              if (line.trim().length > most[0]) most = [line.trim().length, line.trim()];
          }
          return most;
        })()""")

    @property
    def requests(self):
        return [
            one["params"]["request"]["url"]
            for one in self.browser.events
            if one.get("sessionId") == self.session and one["method"] == "Network.requestWillBeSent"
        ]

    @property
    def problems(self):
        self.run("0")  # read the events until now
        events = [one for one in self.browser.events if one.get("sessionId") == self.session]
        logged = [
            one["params"]
            for one in events
            if one["method"] == "Runtime.exceptionThrown"
            or (one["method"] == "Log.entryAdded" and one["params"]["entry"]["level"] == "error")
            or (one["method"] == "Runtime.consoleAPICalled" and one["params"]["type"] in ("error", "assert"))
        ]
        return logged

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)


RESULT = "main table, main .forest, main .chart, main .sentence, main iframe, main canvas"


def faults(browser, path, *, ready="true", without=()):
    """What is wrong with a page at 1280 and 400 pixels, light and dark; an empty list if nothing is.

    Args:
        ready: Expression that is true when the page has been drawn.
        without: Selectors of elements by others, which axe-core does not check.
    """
    found = []
    for width, dark in itertools.product((1280, 400), (False, True)):
        page = browser.open(path, width=width, dark=dark)
        page.until(ready)
        length, line = page.longest_line()
        first = page.top(RESULT)
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
        contents = page.run("[...document.querySelectorAll('nav.contents')].every((one) => "
                            "one.getBoundingClientRect().bottom > 0)")  # fmt: skip
        checks = {
            "overflow": page.overflow(),
            "long line": [line] if length > 75 else [],
            "far from the first result": [] if first is None or first <= 1600 else [first],
            "contents out of sight": [] if contents else [contents],
            "axe": page.violations(without),
            "console": page.problems,
            "requests": [url for url in page.requests if url != path.as_uri() and not url.startswith("data:")],
        }
        found += [(width, "dark" if dark else "light", name, *what) for name, what in checks.items() if what]
        page.close()
    return found
