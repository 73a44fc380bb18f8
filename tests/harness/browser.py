"""Chromium through chromedriver (W3C WebDriver), with the commands that tests of the sidecar's page need."""

import base64
import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from deploy.local.child import Child, stop
from harness.tools import find

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's id (W3C WebDriver, section 12)."""
ESCAPE, ENTER, TAB = "\ue00c", "\ue007", "\ue004"
TIMEOUT_S = 60
STARTED = re.compile(r"successfully on port (\d+)\.")


class Browser:
    """A headless Chromium with a profile of its own."""

    def __init__(self, directory: Path) -> None:
        chromium, driver = str(find("chromium")), str(find("chromedriver"))
        log = directory / "chromedriver.log"
        self._driver = Child("chromedriver", [driver, "--port=0"], log, cwd=directory)
        self._driver.wait_until(lambda: STARTED.search(self._driver.log) is not None, TIMEOUT_S)
        self._url = f"http://127.0.0.1:{STARTED.findall(self._driver.log)[0]}"
        arguments = ["--headless=new", f"--user-data-dir={directory / 'profile'}", "--disable-gpu"]
        arguments += ["--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        try:
            result = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._driver.kill()
            raise
        self._session = f"/session/{result['sessionId']}"

    def close(self) -> None:
        """End both programs."""
        try:
            self._call("DELETE", self._session)
        finally:
            stop([self._driver], TIMEOUT_S)

    def open(self, url: str) -> None:
        self._ask("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function's body in the page and return its value."""
        return self._ask("/execute/sync", {"script": script, "args": list(arguments)})

    def element(self, css: str) -> str:
        """Id of the first matching element; fails if there is none."""
        return str(self._ask("/element", {"using": "css selector", "value": css})[ELEMENT])

    def click(self, css: str) -> None:
        self._ask(f"/element/{self.element(css)}/click", {})

    def type(self, css: str, text: str) -> None:
        self._ask(f"/element/{self.element(css)}/value", {"text": text})

    def press(self, key: str) -> None:
        """Send a key to the element that has the focus."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._ask("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, css: str) -> str:
        """Visible text of an element; empty if there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def role_and_name(self, css: str) -> tuple[str, str]:
        """Role and name of an element for assistive technology."""
        element = self.element(css)
        role = self._call("GET", f"{self._session}/element/{element}/computedrole")
        return str(role), str(self._call("GET", f"{self._session}/element/{element}/computedlabel"))

    def look_like(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Emulate a screen and its user's preferences."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone},
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._devtools("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def console(self) -> list[str]:
        """Warnings and errors logged since the last call."""
        entries = self._ask("/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def _devtools(self, command: str, parameters: dict[str, Any]) -> None:
        self._ask("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", f"{self._session}{path}", body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._url + path, data, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as fault:
            raise AssertionError(f"{method} {path}: {json.load(fault)['value']['message']}") from None
