"""Each write against the in-process API server: success, conflict, and a lost answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.resource_v1 import FINALIZER
from scheduler.core.clock import SystemClock
from scheduler.core.errors import Ambiguous, Conflict, NotFound
from scheduler.kube.client_config import load_settings
from scheduler.kube.events import EventRecorder
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.transport import HttpTransport
from scheduler.kube.writes.api_writer import LABEL, NAMES, ApiWriter, LeaseSpec, LeaseWriter
from simulator.apiserver import ApiServer, Fault
from simulator.builders.claims import a_claim
from simulator.builders.core import node, pod


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.create("nodes", node("n1").obj())
        server.create("nodes", node("n2").obj())
        server.create("pods", pod("p").obj())
        yield server


@pytest.fixture
async def writer(server: ApiServer) -> AsyncIterator[ApiWriter]:
    transport = HttpTransport(await load_settings(master=server.url))
    yield ApiWriter(transport, Throttle(SystemClock(), qps=-1), SystemClock())
    await transport.close()


async def seen(writer: ApiWriter, name: str = "p") -> Pod:
    found = await writer.read_pod("default", name)
    assert isinstance(found, Pod)
    return found


@pytest.mark.parametrize(
    ("reset", "node_name"),
    [pytest.param("before", "", id="before it was done"), pytest.param("after", "n1", id="after it was done")],
)
async def test_a_lost_bind_is_ambiguous(server, writer, reset, node_name):
    before = await seen(writer)
    server.faults.add(Fault(verb="create", resource="pods", subresource="binding", reset=reset))
    with pytest.raises(Ambiguous):
        await writer.bind(before, "n1")

    assert node_name == (await seen(writer)).spec.node_name


# -- evictions ---------------------------------------------------------------------------------------------------------


async def test_delete_of_a_recreated_pod_is_a_conflict(server, writer):
    before = await seen(writer)
    server.delete("pods", "p", grace_s=0)
    server.create("pods", pod("p").obj())
    with pytest.raises(Conflict):
        await writer.delete_pod(before)

    assert not (await seen(writer)).metadata.deletion_timestamp


@pytest.mark.parametrize(
    ("reset", "is_leaving"),
    [pytest.param("before", False, id="before it was done"), pytest.param("after", True, id="after it was done")],
)
async def test_a_lost_delete_is_ambiguous(server, writer, reset, is_leaving):
    """It is sent once. The caller repeats it; the uid makes this harmless."""
    server.bind("p", "n1")
    before = await seen(writer)
    lost = server.faults.add(Fault(verb="delete", resource="pods", reset=reset, times=2))
    with pytest.raises(Ambiguous):
        await writer.delete_pod(before)
    assert lost.hits == 1
    server.faults.clear()

    assert is_leaving == bool((await seen(writer)).metadata.deletion_timestamp)
    await writer.delete_pod(before)
    assert (await seen(writer)).metadata.deletion_timestamp


# -- claims that are written as a whole -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "raised", "is_done"),
    [
        pytest.param({}, None, True, id="success"),
        pytest.param({"status": 409}, Conflict, False, id="a conflict"),
        pytest.param({"reset": "before"}, Ambiguous, False, id="lost before it was done"),
        pytest.param({"reset": "after"}, Ambiguous, True, id="lost after it was done"),
    ],
)
async def test_a_put_on_a_kept_connection(server, writer, fault, raised, is_done):
    """It is sent once: a second one would read as a conflict with another client, although the first was carried out."""
    made = a_claim("c").obj()
    made["spec"]["devices"]["config"] = [{"opaque": {"driver": "d.example.com", "parameters": {"a": 1.0}}}]
    server.create("resourceclaims", made)
    claim = await writer.device_claims.read_resource_claim("default", "c")
    server.faults.add(Fault(verb="patch", resource="resourceclaims", status=422))
    put = server.faults.add(Fault(verb="update", resource="resourceclaims", times=None, **fault)) if fault else None

    if raised is None:
        await writer.device_claims.protect_claim(claim)
    else:
        with pytest.raises(raised):
            await writer.device_claims.protect_claim(claim)

    assert put is None or put.hits == 1
    newest = await writer.device_claims.read_resource_claim("default", "c")
    assert (FINALIZER in newest.metadata.finalizers) is is_done


@pytest.mark.parametrize("reset", ["", "before", "after"])
async def test_events(server, writer, reset):
    if reset:
        server.faults.add(Fault(verb="create", resource="events", reset=reset))
    recorder = EventRecorder(writer, SystemClock(), instance="host")
    task = asyncio.create_task(recorder.run())
    subject = await seen(writer)
    for times in (1, 2):
        for _ in range(times):
            recorder.event(
                subject, controller="kubestow", type_="Warning", reason="FailedScheduling", action="Scheduling",
                note="0/2 nodes are available.",
            )  # fmt: skip
        assert await recorder.flush(30.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    (event,) = server.list("events")
    assert ("FailedScheduling", "0/2 nodes are available.") == (event["reason"], event["note"])
    assert 3 == event["series"]["count"]


@pytest.fixture
async def leases(server: ApiServer) -> AsyncIterator[LeaseWriter]:
    transport = HttpTransport(await load_settings(master=server.url))
    yield LeaseWriter(transport, "kube-system", "kubestow", serves=["second", "first"])
    await transport.close()


async def test_a_lease(server, leases):
    assert await leases.read_lease() is None
    made = await leases.create_lease(LeaseSpec("a", 15, "2026-01-01T00:00:00.000001Z", None, 0))
    server.patch("leases", "kubestow", {"metadata": {"labels": {"x": "y"}}}, namespace="kube-system")
    seen = await leases.read_lease()
    changed = await leases.patch_lease(seen, LeaseSpec("", 1))

    assert (made.record, ("", 1, 0)) == (
        seen.record, (changed.record.holder_identity, changed.record.lease_duration_seconds, changed.record.transitions)
    )  # fmt: skip
    lease = server.get("leases", "kubestow", "kube-system")
    assert ({"x": "y", LABEL: "true"}, "2026-01-01T00:00:00.000001Z") == (
        lease["metadata"]["labels"], lease["spec"]["acquireTime"]
    )  # fmt: skip
    assert {NAMES: "first,second"} == lease["metadata"]["annotations"]


async def test_a_lease_without_our_marks_gets_them_with_the_next_write(server, leases):
    marks = {"annotations": {NAMES: "gone", "theirs": "kept"}}
    server.create("leases", {"metadata": {"name": "kubestow", "namespace": "kube-system"} | marks, "spec": {}})
    await leases.patch_lease(await leases.read_lease(), LeaseSpec("a", 15))

    metadata = server.get("leases", "kubestow", "kube-system")["metadata"]
    assert ({LABEL: "true"}, {NAMES: "first,second", "theirs": "kept"}) == (metadata["labels"], metadata["annotations"])


async def test_a_lease_that_another_replica_wrote_is_a_conflict(server, leases):
    made = await leases.create_lease(LeaseSpec("a"))
    await leases.patch_lease(made, LeaseSpec("b"))
    with pytest.raises(Conflict):
        await leases.patch_lease(made, LeaseSpec("c"))
    with pytest.raises(Conflict):
        await leases.create_lease(LeaseSpec("c"))
    assert "b" == server.get("leases", "kubestow", "kube-system")["spec"]["holderIdentity"]
    server.delete("leases", "kubestow", "kube-system")
    with pytest.raises(NotFound):
        await leases.patch_lease(made, LeaseSpec("c"))
