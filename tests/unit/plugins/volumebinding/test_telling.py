"""Events for users: slow bindings, pre-bound volumes, unreadable objects (B-20, B-21, B-25)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog.testing

from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Metadata
from scheduler.config.args import VolumeBindingArgs
from scheduler.core.errors import ApiError, Forbidden, Unavailable
from scheduler.framework.status import Code, Rejection
from scheduler.plugins.volumebinding.slow_bindings import ASKING_S, AT_ONCE
from tests.support.ports import Noted
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.world import (
    BND,
    D1,
    D2,
    IMM,
    PARITY,
    PB,
    U1,
    UNBOUND_IMMEDIATE,
    A,
    VolumeWorld,
    tracking,
    using,
)

# -- bindings that take long -------------------------------------------------------------------------------------------

FOR_A = 'claim "u1" waits for the PV controller to bind it to volume "a"'
FOR_P = 'claim "d1" waits for P to provision it for node "n1"'
BOTH = pytest.mark.parametrize("ours", [None, PARITY], ids=["ours", "parity"])


def slow(kind: str, after_s: int, *waits: str) -> Noted:
    note = f"volumes are not bound after {after_s} s: {'; '.join(waits)}"
    return Noted("default/p", kind, "WaitForVolumeBinding", "Binding", note)


def waiting(world: VolumeWorld, *claims: str, name: str = "p") -> asyncio.Task[None]:
    return asyncio.ensure_future(world.binder.bind_pod_volumes(world.plan(using(name, *claims))))


@BOTH
async def test_b21_a_slow_binding_says_what_it_waits_for(ours: Any) -> None:
    """B-21 After 30, 60 and 300 seconds; a claim that is bound is not named."""
    world = VolumeWorld(U1, A, D1, ours=ours)
    task = waiting(world, "u1", "d1")
    await world.clock.advance(29.9)
    before = list(world.recorder.events)
    await world.clock.advance(20.0)
    world.relay()
    world.show(A.claimed_by("u1", uid="u1").phase("Bound"), U1.bound_to("a"))
    await world.clock.advance(400.0)
    task.cancel()
    await world.clock.settle()

    assert [] == before
    assert [slow("Normal", 30, FOR_A, FOR_P), slow("Normal", 60, FOR_P), slow("Warning", 300, FOR_P)] == (
        world.recorder.events
    )
    assert [30, 60, 300] == world.metrics.long


async def test_b21_a_binding_in_time_says_nothing() -> None:
    """B-21 Nor does one that ends at the very moment."""
    world = VolumeWorld(U1, A)
    task = waiting(world, "u1")
    await world.clock.advance(29.5)
    world.relay()
    world.show(A.claimed_by("u1", uid="u1").phase("Bound"), U1.bound_to("a"))
    await world.clock.advance(1.0)

    assert task.done()
    assert ([], []) == (world.recorder.events, world.metrics.long)


async def test_b21_a_class_that_was_deleted() -> None:
    """B-21 The event says that there is no provisioner."""
    world = VolumeWorld(D1)
    task = waiting(world, "d1")
    await world.clock.settle()
    world.relay()
    world.withdraw("StorageClass", "D")
    await world.clock.advance(30.0)
    task.cancel()

    assert 'claim "d1" waits for a provisioner (its StorageClass does not exist) to provision it for node "n1"' in (
        world.recorder.events[0].note
    )


# -- what the provisioner said last -----------------------------------------------------------------------------------------

NO_ROOM = "ProvisioningFailed at 2026-01-02T03:04:05Z: pool is full"
QUOTED = f"{FOR_P} (last event: {NO_ROOM})"


@BOTH
async def test_b21_what_the_provisioner_said_is_quoted(ours: Any) -> None:
    """B-21 Of claims that wait for one only, read again each time; our events do not count."""
    world = VolumeWorld(U1, A, D1, ours=ours)
    world.writer.events = {"default/d1": NO_ROOM, "default/u1": "r: m"}
    task = waiting(world, "u1", "d1")
    await world.clock.advance(31.0)
    world.writer.events = {"default/d1": "ProvisioningFailed: pool is still full"}
    await world.clock.advance(30.0)
    task.cancel()
    await world.clock.settle()

    later = f"{FOR_P} (last event: ProvisioningFailed: pool is still full)"
    assert [slow("Normal", 30, FOR_A, QUOTED), slow("Normal", 60, FOR_A, later)] == world.recorder.events
    assert 2 * [("default/d1", "P", frozenset({"kubestow"}))] == world.writer.asked_events


async def test_b21_the_claim_names_its_provisioner() -> None:
    """B-21 For a class of an in-tree plugin that is the CSI driver."""
    world = VolumeWorld(D1.annotation("volume.beta.kubernetes.io/storage-provisioner", "disk.example"))
    task = waiting(world, "d1")
    await world.clock.advance(30.0)
    task.cancel()

    assert ["disk.example"] == [provisioner for _, provisioner, _ in world.writer.asked_events]


@pytest.mark.parametrize("error", [Forbidden("no", status=403), Unavailable("down")], ids=["forbidden", "no server"])
async def test_b21_events_that_cannot_be_read(error: ApiError) -> None:
    """B-21 The event is sent, and one line is logged; after a failure the next claim is not read."""
    world = VolumeWorld(D1, D2)

    def fail() -> None:
        raise error

    world.writer.on_last_event = fail
    with structlog.testing.capture_logs() as lines:
        task = waiting(world, "d1", "d2")
        await world.clock.advance(61.0)
        task.cancel()
        await world.clock.settle()

    assert [30, 60] == world.metrics.long
    assert [slow("Normal", s, FOR_P, FOR_P.replace("d1", "d2")) for s in (30, 60)] == world.recorder.events
    assert 2 * ["default/d1"] == [claim for claim, _, _ in world.writer.asked_events]
    assert [("debug", error.message)] == [
        (line["log_level"], line["error"]) for line in lines if line["event"] == "events of claims cannot be read"
    ]


async def test_b21_a_server_that_does_not_answer_is_not_waited_for() -> None:
    """B-21 The event has the answers that came in time."""
    world = VolumeWorld(D1, D2)
    world.writer.events = {"default/d1": NO_ROOM}
    task = waiting(world, "d1", "d2")

    def then_hang() -> None:
        world.writer.event_hold = asyncio.Event()

    world.writer.on_last_event = then_hang
    await world.clock.advance(30.0 + ASKING_S - 0.1)
    assert [] == world.recorder.events
    await world.clock.advance(0.2)
    task.cancel()

    assert [slow("Normal", 30, QUOTED, FOR_P.replace("d1", "d2"))] == world.recorder.events


@BOTH
async def test_b21_no_binding_waits_for_an_answer(ours: Any) -> None:
    """B-21 The binding ends as soon as without the request; the event is sent then."""
    world = VolumeWorld(D1, ours=ours)
    world.writer.event_hold = asyncio.Event()
    task = waiting(world, "d1")
    await world.clock.advance(30.0)
    world.relay()
    world.show(a_pv("v", "1Gi", "D").claimed_by("d1", uid="d1").phase("Bound"))
    world.show(D1.selected("n1").bound_to("v"))
    await world.clock.advance(1.0)

    assert (True, None) == (task.done(), task.exception())
    assert [slow("Normal", 30, FOR_P)] == world.recorder.events


async def test_b21_a_binding_that_fails_at_a_mark_sends_the_event_first() -> None:
    """B-21 Its time-out is the last mark: there is no time for a question, but for the event."""
    world = VolumeWorld(D1, args=VolumeBindingArgs(bind_timeout_s=300))
    world.writer.event_hold = asyncio.Event()
    ended = await world.ends(world.binder.bind_pod_volumes(world.plan(using("p", "d1"))))
    await world.clock.settle()

    assert "context deadline exceeded" in str(ended.error)
    assert [30, 60, 300] == world.metrics.long
    assert slow("Warning", 300, FOR_P) == world.recorder.events[-1]


def mistaken(*_: Any, **__: Any) -> Any:
    raise ValueError("a mistake")


@pytest.mark.parametrize(
    ("at", "is_busy"),
    [
        pytest.param("_recorder.event", True, id="the event, without a question"),
        pytest.param("_recorder.event", False, id="the event, once the question is answered"),
        pytest.param("_waits", False, id="what the plan waits for"),
        pytest.param("_metrics.long_wait", False, id="the metric"),
        pytest.param("_writer.last_event", False, id="the question"),
    ],
)
async def test_an_unforeseen_error_while_telling_costs_no_binding_its_time_out(at: str, is_busy: bool) -> None:
    """The binding fails at its deadline, its polls go on until then, and the error is in the log."""
    world = VolumeWorld(D1, args=VolumeBindingArgs(100.0))
    slowness: Any = world.binder._waiter._slow_reports
    if is_busy:
        slowness._reading = set(range(AT_ONCE))
    *holder, name = at.split(".")
    setattr(getattr(slowness, holder[0]) if holder else slowness, name, mistaken)
    with structlog.testing.capture_logs() as logs:
        ended = await world.ends(world.binder.bind_pod_volumes(world.plan(using("p", "d1"))))

    assert "binding volumes: context deadline exceeded" == str(ended.error)
    assert ended.seconds == pytest.approx(100.0, abs=0.11)
    if name == "last_event":
        assert world.recorder.events, "the event is sent without the quote"
        return
    assert 2 == slowness._errors.counts["binding"]
    first = next(line for line in logs if line["log_level"] == "error")
    assert ("default/p", "ValueError('a mistake')") == (first["pod"], first["error"])


async def test_b21_few_requests_run_at_once() -> None:
    """B-21 Thousands may wait for a provisioner: the other events are sent at once; later requests are sent again."""
    names = [f"c{n}" for n in range(AT_ONCE + 2)]
    world = VolumeWorld(*(a_claim(name, "1Gi", "D") for name in names))
    world.writer.event_hold = asyncio.Event()
    tasks = [waiting(world, name, name=f"p-{name}") for name in names]
    await world.clock.advance(30.0)

    assert {f"default/{name}" for name in names[:AT_ONCE]} == {claim for claim, _, _ in world.writer.asked_events}
    assert {f"default/p-{name}" for name in names[AT_ONCE:]} == {event.pod for event in world.recorder.events}
    world.writer.event_hold.set()
    await world.clock.advance(30.0)
    for task in tasks:
        task.cancel()
    assert len(world.writer.asked_events) == 2 * AT_ONCE
    assert len(world.recorder.events) == 2 * len(names)


# -- volumes that are meant for a claim -----------------------------------------------------------------------------------


def notes(world: VolumeWorld) -> list[tuple[str, str]]:
    assert all(event.reason == "PreBoundVolume" and event.type_ == "Warning" for event in world.recorder.events)
    return [(event.pod, event.note) for event in world.recorder.events]


ODD = "pre-bound PV m has class X, claim wants W"
SEVERAL = "PVs m, n are all pre-bound to claim u1"


@pytest.mark.parametrize(("volumes", "note"), [
    pytest.param([a_pv("m", "1G", "X").claimed_by("u1")], ODD, id="another class"),
    pytest.param([a_pv("m", "1G", "W").legacy_class("X").claimed_by("u1")], ODD, id="the annotation's class"),
    pytest.param([a_pv("m", "1G", "W").claimed_by("u1"), a_pv("n", "1G", "W").claimed_by("u1")], SEVERAL,
        id="two of them"),
    pytest.param([a_pv("m", "1G", "W").claimed_by("u1")], None, id="as it should be"),
    pytest.param([a_pv("m", "1G", "X").claimed_by("u1", uid="old")], None, id="meant for another of that name"),
])  # fmt: skip
def test_b25_odd_volumes_have_one_event(volumes: list[Any], note: str | None) -> None:
    """B-25 On the pod and on the claim; another claim of that name has another event."""
    world = VolumeWorld(U1, *volumes)
    for name in ("p", "p", "q"):
        world.pre_filtered(using(name, "u1"))

    once = [] if note is None else [("default/p", note), ("default/u1", note)]
    assert once == notes(world)
    world.show(U1.uid("new"))
    world.pre_filtered(using("p", "u1"))
    assert 2 * once == notes(world)


# -- unreadable objects ---------------------------------------------------------------------------------------------------


def broken(world: VolumeWorld, kind: str, key: str, why: str) -> None:
    """It changed, and cannot be read any more (or could not be from the first)."""
    namespace, _, name = key.rpartition("/")
    bad = Broken(kind=kind, metadata=Metadata(name=name, namespace=namespace), why=why)
    old = world._shown.get((kind, key))
    world.storage.handlers()[kind](Delta(old, bad))
    world._shown[kind, key] = bad


WHY = "'many' is not a quantity - at `$.spec.capacity[...]`"


@pytest.mark.parametrize(("claim", "kind", "key", "text"), [
    pytest.param("bnd", "PersistentVolume", "pb", f'persistentvolume "pb" cannot be read: {WHY}', id="its volume"),
    pytest.param("bnd", "PersistentVolumeClaim", "default/bnd", f'persistentvolumeclaim "bnd" cannot be read: {WHY}',
        id="it"),
    pytest.param("u1", "StorageClass", "W", f'storageclass "W" cannot be read: {WHY}', id="its class"),
    pytest.param("i", "StorageClass", "I", f'storageclass "I" cannot be read: {WHY}', id="its immediate class"),
    pytest.param("i", "StorageClass", "W", UNBOUND_IMMEDIATE, id="another class"),
    pytest.param("u1", "PersistentVolume", "pb", None, id="another claim's volume"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(claim: str, kind: str, key: str, text: str | None) -> None:
    """The object and the field, whatever the nodes are; and nothing once it can be read again."""
    world = VolumeWorld(U1, IMM, BND, PB, A)
    before = world.pre_filtered(using("p", claim))[1]
    broken(world, kind, key, WHY)
    no = world.pre_filtered(using("p", claim))[1]

    if text is None:
        assert no is None
        return
    assert isinstance(no, Rejection)
    assert (Code.UNRESOLVABLE, text) == (no.code, no.message)
    shown = {"PersistentVolume": PB, "PersistentVolumeClaim": BND, "StorageClass": a_class("W")}[kind]
    if key != "I":
        world.show(shown)
        assert before == world.pre_filtered(using("p", claim))[1]


def test_a_broken_volume_is_nobodys() -> None:
    """No claim gets it, although it is free; other claims get their volumes."""
    world = VolumeWorld(U1, a_claim("u2", "1G", "W"), A, a_pv("z", "2G", "W").where("k", "n1"))
    broken(world, "PersistentVolume", "z", WHY)

    assert (("u1", "a"),) == world.decide(using("p", "u1")).static
    assert {"n1", "n2"} == set(world.judged(using("p", "u1", "u2")))


# -- why a claim found nothing ------------------------------------------------------------------------------------------------


def logged(world: VolumeWorld, *claims: str) -> list[dict[str, Any]]:
    with structlog.testing.capture_logs() as lines:
        world.judged(using("p", *claims))
    return [dict(line) for line in lines if line["event"] == "no node serves all claims of a pod"]


def test_b20_numbers_for_the_log() -> None:
    """B-20 Which claim, of which class, how large, and what the volumes of its class lack."""
    world = VolumeWorld(
        a_claim("c", "2G", "W").matching({"tier": "a"}),
        a_pv("far", "2G", "W").label("tier", "a").where("k", "n9"),
        a_pv("small", "1G", "W").label("tier", "a"),
        a_pv("block", "2G", "W").volume_mode("Block"),
        a_pv("gold", "2G", "W").attributes_class("gold"),
        a_pv("going", "2G", "W").deleting(),
        a_pv("used", "2G", "W").claimed_by("x", uid="x").phase("Bound"),
        a_pv("meant", "3G", "W").claimed_by("c").where("k", "n9"),
        a_pv("left", "2G", "W").phase("Released"),
        a_pv("plain", "2G", "W"),
        a_pv("read", "2G", "W").label("tier", "a").modes("ReadOnlyMany"),
        a_pv("elsewhere", "2G", "X"),
    )
    (line,) = logged(world, "c")
    each_once = ("fitting", "too small", "other mode", "other attributes", "deleting", "taken", "meant for it")
    also_once = ("not available", "not selected", "lacking an access mode")

    assert ("default/c", "W", 2 * 10**9, None) == tuple(
        line[key] for key in ("claim", "storageClass", "bytes", "selectedNode")
    )
    assert dict.fromkeys((*each_once, *also_once), 1) == line["volumes"]
    assert ("kubernetes.io/no-provisioner", 0, None) == tuple(
        line[key] for key in ("provisioner", "capacityObjects", "largestBytes")
    )


def test_b20_of_every_claim_and_its_pools() -> None:
    """B-20 The pod is refused as a whole: which claim it was is for the reader to see."""
    world = VolumeWorld(D1, U1, *tracking(True), a_capacity("o", "D", "1Mi").everywhere(), a_capacity("p", "D", "2Mi"))
    of_d, of_u = logged(world, "d1", "u1")

    assert ("P", 2, 2 * 2**20) == (of_d["provisioner"], of_d["capacityObjects"], of_d["largestBytes"])
    assert ("default/u1", {}) == (of_u["claim"], of_u["volumes"])
    explained = world.plugin.explain(using("p", "d1", "u1"))
    assert explained is not None
    assert all(each.items() <= line.items() for each, line in zip(explained["claims"], (of_d, of_u)))


def test_b20_nothing_while_a_node_is_left() -> None:
    """B-20 Nor for claims that are bound."""
    assert [] == logged(VolumeWorld(U1, A), "u1")
    assert [] == logged(VolumeWorld(BND, PB.set({"spec": {"nodeAffinity": None}}).where("k", "n9")), "bnd")


@pytest.mark.parametrize(
    ("things", "explained"),
    [
        pytest.param((), {"problem": 'persistentvolumeclaim "bnd" not found'}, id="the claim is missing"),
        pytest.param((BND, PB), None, id="everything is bound"),
    ],
)
def test_b20_an_explanation_without_numbers(things: tuple[Any, ...], explained: Any) -> None:
    """B-20 A bound claim has its volume. The text of PreFilter is passed on."""
    assert explained == VolumeWorld(*things).plugin.explain(using("p", "bnd"))
