"""`kubestow record` against the in-process API server: what is written, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.clock import SystemClock
from scheduler.kube.client_config import Settings
from scheduler.kube.resources import discover
from scheduler.kube.transport import HttpTransport
from simulator.apiserver import ApiServer
from simulator.builders.core import node, pod
from simulator.eventloop import SimulatedClock, VirtualLoop
from simulator.replay.recorder import ClusterRecording, RecordOptions, record
from simulator.replay.recording import RecordingReader, RecordingWriter
from simulator.replay.reduction import RECORDED
from simulator.simulate.input.sources import InputError
from tests.support.kubeconfigs import kubeconfig

Object = dict[str, Any]
Steps = Callable[[ApiServer, SimulatedClock], Awaitable[None]]


def recorded(
    path: Path, steps: Steps, *, before: Callable[[ApiServer], object] = lambda _: None, **options: Any
) -> str:
    """Record a server while `steps` run, in virtual time. Return why the recording ended."""
    loop = VirtualLoop()
    clock = SimulatedClock(loop, wall_at_start=1.78e9)

    async def run() -> str:
        async with ApiServer(clock=clock) as server:
            before(server)
            transport = HttpTransport(Settings(server=server.url), clock=clock)
            places = await discover(transport, RECORDED.values())
            served = {name: place for name, place in places.items() if place is not None}
            writer = RecordingWriter(str(path), started_s=clock.wall(), server="v1.37.2")
            asked = RecordOptions(str(path), **options)
            running = asyncio.ensure_future(ClusterRecording(transport, writer, clock, asked, served).run())
            try:
                await clock.sleep(2)
                await steps(server, clock)
                await clock.sleep(2)
                if options.get("duration_s") is None and not running.done():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return "stopped"
                return await running
            finally:
                writer.close()
                await transport.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())


def events(path: Path, kind: str) -> list[tuple[str, str]]:
    """Type and name of the events of this kind after the first state, which is "|"."""
    found = [
        (each.type, each.name) if each else ("|", "")
        for each in RecordingReader(str(path)).events()
        if not each or each.kind == kind
    ]
    return found[found.index(("|", "")) + 1 :]


async def nothing(_: ApiServer, __: SimulatedClock) -> None:
    """Change nothing."""


def some(server: ApiServer) -> None:
    server.create("nodes", node("n").obj())
    server.create("pods", pod("old").obj())


def test_the_first_state_and_changes(tmp_path: Path) -> None:
    async def steps(server: ApiServer, clock: SimulatedClock) -> None:
        server.create("pods", pod("new").obj())
        server.bind("new", "n")
        await clock.sleep(5)
        server.delete("pods", "new", grace_s=0)

    recorded(tmp_path / "a.gz", steps, before=some)
    first = [
        (each.kind, each.name)
        for each in RecordingReader(str(tmp_path / "a.gz")).events()
        if each and each.name in {"n", "old"}
    ]
    assert sorted(first) == [("Node", "n"), ("Pod", "old")]
    assert events(tmp_path / "a.gz", "Pod") == [
        ("ADDED", "new"),
        ("MODIFIED", "new"),  # bound
        ("MODIFIED", "new"),  # its deletion begins
        ("DELETED", "new"),
    ]
    *_, added, bound, _, gone = (
        each for each in RecordingReader(str(tmp_path / "a.gz")).events() if each and each.name == "new"
    )
    assert "nodeName" not in added.value()["spec"]
    assert bound.value()["spec"]["nodeName"] == "n"
    assert gone.at_s - bound.at_s == pytest.approx(5, abs=0.1)
    assert set(gone.value()) == {"apiVersion", "kind", "metadata"}


def test_changes_that_nothing_reads_are_not_written(tmp_path: Path) -> None:
    async def steps(server: ApiServer, clock: SimulatedClock) -> None:
        for at in range(5):
            server.patch("nodes", "n", {"metadata": {"annotations": {"heartbeat": str(at)}}})
            await clock.sleep(1)
        server.patch("nodes", "n", {"spec": {"unschedulable": True}})

    recorded(tmp_path / "a.gz", steps, before=some)
    assert events(tmp_path / "a.gz", "Node") == [("MODIFIED", "n")]


def test_no_secret_is_written(tmp_path: Path) -> None:
    secret = "hunter2"

    def before(server: ApiServer) -> None:
        some(server)
        manifest = pod("p").obj()
        manifest["spec"]["containers"][0] |= {"env": [{"name": "A", "value": secret}], "args": [secret]}
        manifest["metadata"]["annotations"] = {
            "kubectl.kubernetes.io/last-applied-configuration": secret,
            "mine": secret,
        }
        server.create("pods", manifest)

    async def steps(server: ApiServer, clock: SimulatedClock) -> None:
        assert secret in json.dumps(server.get("pods", "p"))
        read = {entry.request.resource for entry in server.log}
        assert "secrets" not in read
        assert "configmaps" not in read
        assert {entry.request.verb for entry in server.log} <= {"get", "list", "watch"}

    recorded(tmp_path / "a.gz", steps, before=before)
    assert secret not in gzip.decompress((tmp_path / "a.gz").read_bytes()).decode()


@pytest.mark.parametrize(
    "is_compacted", [pytest.param(True, id="410: the history is compacted"), pytest.param(False, id="a cut connection")]
)
def test_a_broken_watch_loses_nothing(tmp_path: Path, is_compacted: bool) -> None:
    async def steps(server: ApiServer, clock: SimulatedClock) -> None:
        server.create("pods", pod("before").obj())
        await clock.sleep(1)
        server.hold_watches()
        server.create("pods", pod("unseen").obj())
        server.delete("pods", "before", grace_s=0)
        server.cut_watches(abruptly=True)
        if is_compacted:
            server.compact()
        server.release_watches()
        await clock.sleep(60)
        server.create("pods", pod("after").obj())

    recorded(tmp_path / "a.gz", steps, before=some)
    found = [each for each in events(tmp_path / "a.gz", "Pod") if each[0] != "MODIFIED"]  # the deletion begins
    assert sorted(found) == [("ADDED", "after"), ("ADDED", "before"), ("ADDED", "unseen"), ("DELETED", "before")]
    assert found[0] == ("ADDED", "before")


@pytest.mark.parametrize(("options", "expected"), [
    pytest.param({"duration_s": 3.0}, "its time is over", id="a time"),
    pytest.param({"size_max_bytes": 500, "duration_s": 1e6}, "which is the limit of --max-size", id="a size"),
])  # fmt: skip
def test_a_recording_ends(tmp_path: Path, options: Object, expected: str) -> None:
    assert expected in recorded(tmp_path / "a.gz", nothing, before=some, **options)
    assert not (reader := RecordingReader(str(tmp_path / "a.gz"))).is_cut_short
    assert None in list(reader.events())


def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        server.forbidden.add(("list", "pods"))
        server.forbidden.add(("watch", "pods"))

    with pytest.raises(InputError) as refused:
        recorded(tmp_path / "a.gz", nothing, before=before, duration_s=1e6)
    assert "the user may not read 1 kind" in str(refused.value)
    assert "kubectl create clusterrole kubestow-record --verb=list,watch --resource=pods" in str(refused.value)


def test_partly(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        some(server)
        server.forbidden.update({("list", "services"), ("watch", "services")})

    recorded(tmp_path / "a.gz", nothing, before=before, allows_partial=True)
    assert {each.kind for each in RecordingReader(str(tmp_path / "a.gz")).events() if each} >= {"Node", "Pod"}


async def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_text("mine")
    async with ApiServer() as server:
        options = RecordOptions(str(tmp_path / "a.gz"), kubeconfig=config(tmp_path, server.url), duration_s=1)
        with pytest.raises(InputError, match="exists; give the name of a new file"):
            await record(options, clock=SystemClock())
    assert (tmp_path / "a.gz").read_text() == "mine"


async def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    options = RecordOptions(str(tmp_path / "a.gz"), kubeconfig=config(tmp_path, "http://127.0.0.1:9"), duration_s=1)
    with pytest.raises(InputError, match="127"):
        await record(options, clock=SystemClock())
    assert not (tmp_path / "a.gz").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_is_stopped_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "a.gz"
    async with ApiServer() as server:
        some(server)
        command = [
            sys.executable,
            "-m",
            "scheduler",
            "record",
            str(file),
            f"--kubeconfig={config(tmp_path, server.url)}",
        ]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            while not is_synced(file):
                assert process.returncode is None
                await asyncio.sleep(0.05)
            process.send_signal(number)
            _, errors = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert (process.returncode, b"the recording ended because it was stopped" in errors) == (0, True)
    assert not (reader := RecordingReader(str(file))).is_cut_short
    assert {each.name for each in reader.events() if each} >= {"n", "old"}


def is_synced(file: Path) -> bool:
    try:
        return None in list(RecordingReader(str(file)).events())
    except InputError:
        return False


def config(folder: Path, url: str) -> str:
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig({}, url)))
    return str(folder / "kubeconfig")
