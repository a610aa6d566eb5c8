"""Headless Chromium, driven over the DevTools protocol with aiohttp's websocket client.

`Browser` is the process. `opened` gives one page with an empty profile. A page collects what a user would find in the
console, and violations of the content security policy.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

DEADLINE_S: Final = 90.0
"""The machine may become three times slower within a minute."""
_POLL_S: Final = 0.02
_KEYS: Final = {
    "Tab": 9, "Enter": 13, "Space": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
_FLAGS: Final = (
    "--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--remote-debugging-port=0", "--hide-scrollbars", "--disable-background-networking", "--disable-extensions",
)  # fmt: skip
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""
_WATCH: Final = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Browser:
    """One process of Chromium; `directory` has its program, libraries and fonts."""

    def __init__(self, directory: Path, profile: Path) -> None:
        (profile / "fonts.conf").write_text(_FONTS.format(fonts=directory / "fonts", cache=profile / "fonts"))
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(directory / "lib"),
            "FONTCONFIG_FILE": str(profile / "fonts.conf"),
            "HOME": str(profile),
        }
        command = [str(directory / "chromium"), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with (profile / "log").open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            self.url = self._devtools(profile)
        except BaseException:
            self.close()
            raise

    def _devtools(self, profile: Path) -> str:
        deadline, file = time.monotonic() + DEADLINE_S, profile / "DevToolsActivePort"
        while not file.exists() or len(lines := file.read_text().splitlines()) < 2:
            log = (profile / "log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"Chromium has ended: {log}"
            assert time.monotonic() < deadline, f"Chromium does not start: {log}"
            time.sleep(_POLL_S)
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}"

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Page:
    """One page. `complaints` are errors and warnings of the console, uncaught errors, and violations of the policy."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""
        self._reading = asyncio.ensure_future(self._read())
        self._stand_ins: dict[str, Callable[[dict[str, Any]], tuple[int, str] | None]] = {}
        self.complaints: list[str] = []
        self.requests: list[dict[str, Any]] = []
        """Requests that a stand-in answered."""

    async def begin(self, width: int, height: int) -> str:
        """Open an empty page in a fresh profile; return its context."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        return str(context)

    async def close(self) -> None:
        """End reading."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    # -- what a test does ----------------------------------------------------------------------------------------------

    async def open(self, url: str) -> None:
        """Navigate, and wait until the document is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    async def dark(self) -> None:
        """Prefer a dark color scheme."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    async def value(self, expression: str) -> Any:
        """Return the value of an expression; promises are awaited. An error of the script fails the test."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until the expression is true, and return its value."""
        deadline = time.monotonic() + DEADLINE_S
        plain = (
            f"((found) => found instanceof Node ? true : found)({expression})"  # an element is an empty object as JSON
        )
        while not (found := await self.value(plain)):
            assert time.monotonic() < deadline, f"{expression}: {await self.text('body')}"
            await asyncio.sleep(_POLL_S)
        return found

    async def text(self, selector: str) -> str:
        """Return the visible text of the first such element."""
        return str(await self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            name = " " if key == "Space" else key
            code = {"key": name, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
            text = {"Enter": {"text": "\r"}, "Space": {"text": " "}}.get(key, {})
            await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **code, **text)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def type(self, text: str) -> None:
        """Insert a text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def focus(self, selector: str) -> None:
        """Set the focus as a test's shortcut; `walk` shows that the keyboard reaches it."""
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")

    async def screenshot(self, path: Path, *, height: int = 4000) -> None:
        """Write the page as PNG, down to this height."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height), "scale": 1}
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))  # noqa: ASYNC240 (a test)

    async def stand_in(self, pattern: str, answer: Callable[[dict[str, Any]], tuple[int, str] | None]) -> None:
        """Answer requests of this URL pattern with status and text instead of the server; None never answers."""
        self._stand_ins[pattern.strip("*")] = answer
        await self.call("Fetch.enable", patterns=[{"urlPattern": f"*{each}*"} for each in self._stand_ins])

    # -- the protocol --------------------------------------------------------------------------------------------------

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        found = await asyncio.wait_for(answer, DEADLINE_S)
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    async def _read(self) -> None:
        async for message in self._socket:
            read = json.loads(message.data)
            if "id" in read:
                self._answers.pop(read["id"]).set_result(read)
            elif read["method"] == "Fetch.requestPaused":
                self._answer(read["params"])
            else:
                self._complain(read["method"], read["params"])

    def _complain(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.complaints.append(" ".join(str(each.get("value")) for each in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _answer(self, params: dict[str, Any]) -> None:
        request = params["request"]
        self.requests.append(request)
        stand_in = next(answer for part, answer in self._stand_ins.items() if part in request["url"])
        found = stand_in(request)
        if found is None:
            return
        status, text = found
        headers = [{"name": "Content-Type", "value": "application/json"}]
        body = base64.b64encode(text.encode()).decode()
        answered = {"requestId": params["requestId"], "responseCode": status, "responseHeaders": headers, "body": body}
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        call = {"id": number, "method": "Fetch.fulfillRequest", "params": answered, "sessionId": self._session}
        self._sending = asyncio.ensure_future(self._socket.send_json(call))


@contextlib.asynccontextmanager
async def opened(browser: Browser, *, width: int = 1200, height: int = 900) -> AsyncIterator[Page]:
    """Open a page without cookies or cache."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(browser.url, max_msg_size=0) as socket,
    ):
        page = Page(socket)
        try:
            await page.begin(width, height)
            yield page
        finally:
            await page.close()
