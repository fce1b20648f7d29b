"""A headless Chromium, driven by its DevTools protocol over two pipes: no driver and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Seconds for one answer; only a browser that hangs takes so long.
BOUND = 120.0
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe about:blank"
)
_KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27}


class Browser:
    """A context manager with one tab. ``said`` is what the console has complained of, and each request it made."""

    def __init__(self, profile: Path) -> None:
        # The browser reads commands from 3 and answers on 4.
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
                "-",
                BROWSER or "",
                *_FLAGS.split(),
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self._session = b"", 0, None
        self._loaded = False
        self.said: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Browser:
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Of itself, so that nobody writes to the profile any more when it is gone.
        os.write(self._out, b'{"id": 0, "method": "Browser.close"}\0')
        try:
            self._process.wait(BOUND)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)
            os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, page: Path, *, width: int = 1280, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._message()

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press and let go: a named key, or one that writes its letter."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            code = _KEYS.get(key, ord(key[0].upper()))
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    windowsVirtualKeyCode=code,
                    **({"text": text} if text and kind == "keyDown" else {}),
                )

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + BOUND
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no answer from {BROWSER} in {BOUND:.0f} s"
            found = os.read(self._in, 1 << 16)
            assert found, f"{BROWSER} has ended"
            self._rest += found
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.said.append(message["params"]["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled":
                self.said.append(str(message["params"]["args"]))
            case "Log.entryAdded":
                self.said.append(message["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return message
