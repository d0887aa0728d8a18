"""The page of operators, in Chromium without a screen. What it shows of loads is in the acceptance tests."""
import base64
import contextlib
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import urllib.request

import pytest

from checkpoints import blob, write
from stage import MiB, free_port, soon
from test_metrics import get, watched  # noqa: F401


def test_its_policy_allows_its_own_script_and_style_alone(watched):  # noqa: F811
    status, page, headers = get(watched().port, "/")
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    for name in ("script", "style"):
        (text,) = re.findall(f"<{name}>(.*?)</{name}>", page, re.S)
        assert policy[f"{name}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        assert page.count(f"<{name}") == 1
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'" and policy["connect-src"] == "'self'"
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=", page)


class Browser:
    """One session of chromedriver."""

    def __init__(self, folder):
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(["chromedriver", f"--port={port}"], env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert soon(self.is_up, 60)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                     f"--user-data-dir={folder}/profile"]
        wanted = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = f"/session/{self.call('/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def is_up(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("/status")["ready"]

    def call(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self.call(self.session + "/url", {"url": url})

    def js(self, script):
        return self.call(self.session + "/execute/sync", {"script": "return " + script, "args": []})

    def cdp(self, command, **parameters):
        self.call(self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, key, code, text=""):
        self.cdp("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.cdp("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def complaints(self):
        return [entry["message"] for entry in self.call(self.session + "/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def close(self):
        with contextlib.suppress(OSError):
            self.call(self.session, method="DELETE")
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def browser(tmp_path):
    if not shutil.which("chromedriver"):
        pytest.skip("Debian's chromium-driver is missing")
    made = Browser(tmp_path)
    yield made
    made.close()


def test_it_shows_names_as_text_and_is_used_with_the_keyboard(watched, models, browser):  # noqa: F811
    """Also narrow and dark, and its state survives in its address."""
    daemon, name = watched(), "<img src=x onerror=document.title=1><b>bold"
    for folder, size in ((name, 1), ("large", 3)):
        write(models / folder, {"w": blob(1, size * MiB)})
        daemon.cli.ok("load", f"disk:{models}/{folder}")
    daemon.cli.run("load", f"disk:{models}/none")
    browser.open(f"http://127.0.0.1:{daemon.port}/")
    first = "document.querySelector('#replicas tbody th')?.innerText ?? ''"
    assert soon(lambda: name in browser.js("document.body.innerText"))
    assert browser.js("document.querySelectorAll('img,b').length") == 0 and browser.js("document.title").startswith("tensorcastd")
    assert browser.js(first).endswith("/large")  # used last
    for _ in range(3):
        browser.press("Tab", 9)
    assert browser.js("document.activeElement.dataset.state") == "window=15"
    browser.press(" ", 32, " ")
    assert soon(lambda: browser.js("location.hash") == "#window=15") and browser.js("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "[15m]" in browser.js("document.querySelector('[data-expr]').dataset.expr")
    browser.js("document.querySelector('[data-state=\"sort=name\"]').click()")
    assert soon(lambda: browser.js(first).endswith("bold"))
    browser.open("about:blank")
    browser.open(f"http://127.0.0.1:{daemon.port}/#window=15&sort=name&events=problems&nonsense=%00&live=maybe")
    assert soon(lambda: browser.js(first).endswith("bold"))
    pressed = browser.js("[...document.querySelectorAll('[aria-pressed=true]')].map(e => e.dataset.state)")
    assert pressed == ["window=15", "sort=name", "events=problems", "live=on"]
    assert "load_done" not in browser.js("document.getElementById('events').innerText")
    browser.cdp("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
    colours = set()
    for scheme in ("light", "dark"):
        browser.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.add(browser.js("getComputedStyle(document.body).backgroundColor"))
    assert browser.js("document.documentElement.scrollWidth") <= 400 and len(colours) == 2
    assert browser.js("[...document.querySelectorAll('meter,progress')].every(e => e.getAttribute('aria-label'))")
    assert browser.complaints() == []
    daemon.stop()
    assert soon(lambda: "does not answer" in browser.js("document.getElementById('link').innerText"))


def test_long_lists_scroll_in_boxes_and_replicas_say_which_part_they_are(watched, models, browser):  # noqa: F811
    daemon = watched()
    write(models / "m", {f"w{i}": blob(i, MiB) for i in range(30)})
    for i in range(30):
        daemon.cli.ok("load", f"disk:{models}/m", "--tensor", f"w{i}")
    browser.cdp("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
    browser.open(f"http://127.0.0.1:{daemon.port}/")
    assert soon(lambda: browser.js("document.querySelectorAll('#replicas tbody tr').length") == 30)
    assert "1 of 30 tensors" in browser.js("document.getElementById('replicas').innerText")
    boxes = "[...document.querySelectorAll('[role=region]')]"
    assert browser.js(boxes + ".every(box => box.tabIndex === 0 && document.getElementById(box.getAttribute('aria-labelledby')))")
    assert browser.js(boxes + ".every(box => box.scrollHeight > box.clientHeight && box.clientHeight <= 600)")


def test_a_paused_page_stands_still(watched, models, browser):  # noqa: F811
    daemon = watched()
    browser.open(f"http://127.0.0.1:{daemon.port}/#live=off")
    assert soon(lambda: browser.js("document.getElementById('replicas-count').innerText") == "0")
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("load", f"disk:{models}/m")
    before = browser.js("samples.length")
    assert soon(lambda: browser.js("samples.length") > before + 2) and browser.js("document.getElementById('replicas-count').innerText") == "0"
    browser.js("document.querySelector('[data-state=\"live=on\"]').click()")
    assert soon(lambda: browser.js("document.getElementById('replicas-count').innerText") == "1")


def test_a_page_that_was_refused_or_lost_its_daemon_comes_back_by_itself(start, watched, models, browser):  # noqa: F811
    """Browsers try again after a lost connection, and not after an answer such as 503. Rates begin anew with another process."""
    write(models / "m", {"w": blob(1, MiB)})
    daemon = watched(free_port())
    readers = []
    for _ in range(32):
        readers.append(socket.create_connection(("127.0.0.1", daemon.port), 5))
        readers[-1].sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert readers[-1].recv(100)
    browser.open(f"http://127.0.0.1:{daemon.port}/")
    assert soon(lambda: "too many readers" in browser.js("document.getElementById('link').innerText"))
    for reader in readers:
        reader.close()
    for _ in range(3):
        daemon.cli.ok("load", f"disk:{models}/m")
    told = "samples.length && samples[samples.length - 1].loads"
    assert soon(lambda: browser.js(told) == 3 and browser.js("document.getElementById('link').innerText") == "")
    daemon.stop()
    assert soon(lambda: "does not answer" in browser.js("document.getElementById('link').innerText"))
    browser.js("samples[samples.length - 1].at = 0")  # as if the daemon had just been started
    other = start(server={"metrics_address": f"127.0.0.1:{daemon.port}"})
    assert soon(lambda: browser.js(told) == 0 and browser.js("rate('loads')") == 0), other.log()
