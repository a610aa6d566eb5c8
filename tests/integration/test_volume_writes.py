"""Writes to volumes and claims against the in-process API server: success, conflict, and an answer that is lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.core.clock import SystemClock
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Invalid, NotFound, TooManyRequests
from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim
from scheduler.kube.credentials import load_settings
from scheduler.kube.throttle import Throttle
from scheduler.kube.transport import HttpTransport
from scheduler.kube.writes import ApiWriter
from scheduler.testing.apiserver import ApiServer, Fault

SELECTED = "volume.kubernetes.io/selected-node"
MARK = "pv.kubernetes.io/bound-by-controller"
VOLUME: dict[str, Any] = {
    "metadata": {"name": "v", "labels": {"a": "b"}},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "mountOptions": ["ro"],
    },
}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "c", "namespace": "default", "annotations": {"x": "y"}},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"apiGroup": "example.com", "kind": "Thing", "name": "t"},
    },
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.create("persistentvolumes", VOLUME)
        server.create("persistentvolumeclaims", CLAIM)
        yield server


@pytest.fixture
async def writer(server: ApiServer) -> AsyncIterator[ApiWriter]:
    transport = HttpTransport(await load_settings(master=server.url))
    yield ApiWriter(transport, Throttle(SystemClock(), qps=-1), SystemClock())
    await transport.close()


async def seen(writer: ApiWriter) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    volume, claim = await writer.read_volume("v"), await writer.read_claim("default", "c")
    assert isinstance(volume, PersistentVolume)
    assert isinstance(claim, PersistentVolumeClaim)
    return volume, claim


async def prebind(writer: ApiWriter, volume: PersistentVolume, claim: PersistentVolumeClaim) -> object:
    return await writer.prebind_volume(volume, claim, marks=True)


async def select(writer: ApiWriter, volume: PersistentVolume, claim: PersistentVolumeClaim) -> object:
    return await writer.select_node(claim, "n1")


WRITES = pytest.mark.parametrize(
    ("write", "kind", "name"),
    [
        pytest.param(prebind, "persistentvolumes", "v", id="volume"),
        pytest.param(select, "persistentvolumeclaims", "c", id="claim"),
    ],
)


def vanish(server: ApiServer, kind: str, name: str) -> None:
    """Deleted, and let go by what protects it."""
    server.delete(kind, name)
    if any(found["metadata"]["name"] == name for found in server.list(kind)):
        server.patch(kind, name, {"metadata": {"finalizers": None}})


def is_written(server: ApiServer, kind: str, name: str) -> bool:
    found = server.get(kind, name)
    return "claimRef" in found["spec"] or SELECTED in found["metadata"].get("annotations", {})


async def test_a_volume_is_prebound(server, writer):
    """U3, U10: claimRef and annotation; what we do not know stays; the answer is what is stored."""
    volume, claim = await seen(writer)
    before = server.get("persistentvolumes", "v")
    written = await writer.prebind_volume(volume, claim, marks=True)
    after = server.get("persistentvolumes", "v")

    assert {"name": "c", "namespace": "default", "uid": claim.metadata.uid}.items() <= after["spec"]["claimRef"].items()
    assert claim.metadata.resource_version == after["spec"]["claimRef"]["resourceVersion"]
    assert {MARK: "yes"} == after["metadata"]["annotations"]
    assert before["spec"] == {field: value for field, value in after["spec"].items() if field != "claimRef"}
    assert {"a": "b"} == after["metadata"]["labels"]
    assert (written, claim) == await seen(writer)
    assert volume.metadata.resource_version != written.metadata.resource_version


async def test_a_claim_names_its_node(server, writer):
    """U6, U10: set, and taken back; other annotations and what we do not know stay."""
    _, claim = await seen(writer)
    before = server.get("persistentvolumeclaims", "c")
    selected = await writer.select_node(claim, "n1")
    after = server.get("persistentvolumeclaims", "c")
    cleared = await writer.clear_selected_node(selected)

    assert "n1" == selected.selected_node
    assert {"x": "y", SELECTED: "n1"} == after["metadata"]["annotations"]
    assert before["spec"] == after["spec"]
    assert cleared.selected_node is None
    assert {"x": "y"} == server.get("persistentvolumeclaims", "c")["metadata"]["annotations"]


@WRITES
async def test_whoever_was_first_wins(server, writer, write, kind, name):
    """U5, U7: any other write since is a conflict, and nothing is changed."""
    before = await seen(writer)
    server.patch(kind, name, {"metadata": {"labels": {"new": "1"}}})
    with pytest.raises(Conflict):
        await write(writer, *before)

    assert not is_written(server, kind, name)


@WRITES
async def test_a_namesake_is_left_alone(server, writer, write, kind, name):
    """The uid is a precondition: not the object that was decided about."""
    before = await seen(writer)
    vanish(server, kind, name)
    server.create(kind, VOLUME if name == "v" else CLAIM)
    with pytest.raises(ApiError) as caught:
        await write(writer, *before)

    assert isinstance(caught.value, (Conflict, Invalid))
    assert not is_written(server, kind, name)


@WRITES
async def test_what_is_gone_stays_gone(server, writer, write, kind, name):
    """None for a read, NotFound for a write."""
    before = await seen(writer)
    vanish(server, kind, name)
    with pytest.raises(NotFound):
        await write(writer, *before)

    assert (name == "v") == (await writer.read_volume("v") is None)
    assert (name == "c") == (await writer.read_claim("default", "c") is None)


@WRITES
@pytest.mark.parametrize(
    ("reset", "is_done"),
    [pytest.param("before", False, id="before it was done"), pytest.param("after", True, id="after it was done")],
)
async def test_a_lost_answer_is_ambiguous(server, writer, write, kind, name, reset, is_done):
    """Sent once; a read tells what became of it."""
    before = await seen(writer)
    lost = server.faults.add(Fault(verb="patch", resource=kind, reset=reset, times=None))
    with pytest.raises(Ambiguous):
        await write(writer, *before)

    assert 1 == lost.hits
    assert is_done == is_written(server, kind, name)
    assert is_done == (before != await seen(writer))


@WRITES
async def test_a_busy_server_is_not_waited_for(server, writer, write, kind, name):
    """429 is raised with the server's wish: by then the decision may be another."""
    before = await seen(writer)
    busy = server.faults.add(Fault(verb="patch", resource=kind, status=429, retry_after_s=7))
    with pytest.raises(TooManyRequests) as caught:
        await write(writer, *before)

    assert (7.0, 1) == (caught.value.retry_after_s, busy.hits)
    assert before == await seen(writer)
