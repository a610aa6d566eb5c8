"""`kubestow status`, `queue` and `bugreport` against servers that are slow, huge, broken, or another program's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kubestow.commands.flags import OPERATOR_COMMANDS
from scheduler.cli import cluster_commands, kubectl_plugin, main as cli
from scheduler.cli.closed_pipe import PIPE_CLOSED
from scheduler.cli.flags import parser
from scheduler.cli.leader import NoAnswer
from tests.support.port_forwarding import serving

PAGES = {
    "/readyz": "[+]ping ok\nreadyz check passed\n",
    "/metrics": 'kubestow_build_info{version="1"} 1\nkubestow_leading 1\n',
    "/debug/queue": '{"entries": [{"key": "a/b", "place": "active"}]}',
    "/debug/cache": "{}",
    "/debug/audit": "{}",
    "/configz": "{}",
}


class Daemon:
    """A server in a thread, because a command has an event loop itself. `faults` answer instead of the pages."""

    def __init__(self) -> None:
        self.faults: dict[str, Callable[[web.BaseRequest], Any]] = {}
        self.requests: list[str] = []
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Daemon:
        self._thread.start()
        assert self._is_ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self._answer) as self.url:
            self._is_ready.set()
            await self._is_over.wait()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        if request.path in self.faults:
            answer: web.StreamResponse = await self.faults[request.path](request)
            return answer
        return web.Response(text=PAGES[request.path])


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as running:
        yield running


async def hang(_: web.BaseRequest) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def huge(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):  # the client reads no further
        for _ in range(40):
            await response.write(b"x" * 2**20)
    return response


async def cut(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return response


async def foreign(_: web.BaseRequest) -> web.Response:
    return web.Response(text="404 page not found\n", status=404)


async def busy(_: web.BaseRequest) -> web.Response:
    return web.Response(text="too many", status=503)


FAULTS = [
    pytest.param(hang, "no answer to GET {path} within ", id="it is slow"),
    pytest.param(huge, "the answer to {path} has more than 33554432 bytes", id="it is huge"),
    pytest.param(cut, "the connection was closed: ", id="it is cut"),
    pytest.param(foreign, "the scheduler does not serve GET {path} (404): it is of version ", id="another server"),
    pytest.param(busy, "the scheduler cannot answer yet (503): too many", id="it is busy"),
]


def test_what_is_requested(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    for run, prog in ((cli.main, "kubestow"), (kubectl_plugin.main, "kubectl kubestow")):
        assert run(["status", "--server", daemon.url], OPERATOR_COMMANDS) == 0
        assert run(["queue", "--server", daemon.url], OPERATOR_COMMANDS) == 0
        assert daemon.requests == ["/readyz?verbose=1", "/metrics", "/debug/queue"]
        daemon.requests.clear()
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run(["queue", "--limit=0"], OPERATOR_COMMANDS)
        assert ended.value.code == 3
        assert capsys.readouterr().err.startswith(f"usage: {prog} queue ")


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_page_of_the_status_that_cannot_be_read(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], fault: Any, said: str
) -> None:
    daemon.faults["/metrics"] = fault

    assert cli.main(["status", "--server", daemon.url, "--timeout=4"], OPERATOR_COMMANDS) == 4
    printed = capsys.readouterr()
    assert printed.out.startswith("scheduler  not known\n")
    assert said.format(path="/metrics") in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_queue_that_cannot_be_read(daemon: Daemon, capsys: pytest.CaptureFixture[str], fault: Any, said: str) -> None:
    daemon.faults["/debug/queue"] = fault

    assert cli.main(["queue", "--server", daemon.url, "--timeout=4"], OPERATOR_COMMANDS) == 4
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("kubestow: ")
    assert said.format(path="/debug/queue") in printed.err


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_report_names_the_page_that_cannot_be_read(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], tmp_path: Path, fault: Any, said: str
) -> None:
    daemon.faults["/debug/cache"] = fault
    file = tmp_path / "report.tar.gz"

    arguments = ["bugreport", "--server", daemon.url, "--timeout=10", "--output-file", str(file)]
    assert cli.main(arguments, OPERATOR_COMMANDS) == 0
    assert capsys.readouterr().err == ""
    with tarfile.open(file) as tar:
        files = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        manifest = files["MANIFEST.txt"]
        assert manifest is not None
        text = manifest.read().decode()
    assert "status.txt" in files
    assert "debug-cache.json" not in files
    assert said.format(path="/debug/cache") in text.partition("Not read:")[2]


def test_a_server_that_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "queue", "bugreport"):
        assert cli.main([command, "--server=http://127.0.0.1:1"], OPERATOR_COMMANDS) == 4
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("kubestow: http://127.0.0.1:1: cannot connect: ")


@pytest.mark.parametrize("command", ["status", "queue"])
def test_the_reader_of_the_output_has_gone(daemon: Daemon, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = "import sys; from kubestow.__main__ import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", script, command, "--server", daemon.url],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
        check=False,
    )
    os.close(writer)

    assert (ran.returncode, ran.stderr) == (PIPE_CLOSED, "")


# -- the configuration of a plan -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "said"),
    [
        pytest.param("<html>", "the answer to GET /configz is no configuration; ", id="a page of another server"),
        pytest.param("[]", "the answer to GET /configz is no configuration; ", id="a list"),
        pytest.param('{"kubestow": {}}', "the answer to GET /configz is no configuration; ", id="no gates"),
        pytest.param("[" * 100_000, "the answer to GET /configz is no configuration; ", id="nested deeply"),
        pytest.param(
            '{"componentconfig": {}, "kubestow": {"emulatedVersion": "9.9", "featureGates": {}}}',
            "the scheduler decides as version 9.9, which this program does not know; ",
            id="a newer version",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read(daemon: Daemon, page: str, said: str) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text=page)

    daemon.faults["/configz"] = answer
    arguments = parser().parse_args(["what-if", "--nodes-needed=n", "--server", daemon.url])

    with pytest.raises(NoAnswer, match=f"^{re.escape(said)}"):
        cluster_commands.running_configuration(arguments)


def test_a_wrong_address_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["what-if", "--nodes-needed=n", "--server=foo"]) == 3
    assert capsys.readouterr().err.startswith("kubestow: --server must begin with https:// or http:// and ")


def test_an_existing_file_is_kept(daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is requested."""
    file = tmp_path / "report.tar.gz"
    file.write_text("mine")

    assert cli.main(["bugreport", "--server", daemon.url, "--output-file", str(file)], OPERATOR_COMMANDS) == 1
    assert capsys.readouterr().err == f"kubestow: --output-file: {file}: File exists; name another file\n"
    assert (file.read_text(), daemon.requests) == ("mine", [])
