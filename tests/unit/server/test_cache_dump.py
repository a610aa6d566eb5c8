"""/debug/cache: state that the cluster does not show; decision records (docs/spec/core.md §10.5) and what /debug/pod shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, strategies as st

from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import (
    PersistentVolume,
)
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import SystemClock
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.decision_record import DecisionRecord, DecisionRecords
from scheduler.eventhandlers.devices import DeviceHandlers
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.profile import Profile
from scheduler.scheduler import shown
from scheduler.server import cache_dump as cachedump
from scheduler.server.cache_dump import PAUSE, ROWS, DumpSections, cache_page, indented, pieces
from simulator.builders.claims import a_claim as a_device_claim, a_result
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_slice
from tests.support.volumebuilders import a_capacity, a_claim, a_pv
from tests.unit.harness import SchedulerHarness


class World:
    """A cluster with node n1, and the deltas that bring the rest."""

    def __init__(self) -> None:
        self.cluster = Cluster(SystemClock())
        self.cluster.set_node(node("n1").label("zone", "a").typed())
        self.storage = StorageHandlers(self.cluster, self._move)
        self.devices = DeviceHandlers(self.cluster, self._move, Preempting())

    def _move(self, event: ClusterEvent, old: object, new: object) -> None:
        """Wake nothing: there is no queue."""

    def seen(self, kind: str, obj: object) -> None:
        handlers = {**self.storage.handlers(), **self.devices.handlers()}
        handlers[kind](Delta(None, obj))

    def shown(self, part: str = "volumes") -> dict[str, object]:
        """As the endpoint prints it."""
        shown: dict[str, object] = json.loads(b"".join(pieces({"shown": cache_page(self.cluster)[part]})))["shown"]
        return shown


def test_what_pods_hold_of_resources_that_no_node_offers_any_more() -> None:
    world, gpu = World(), "example.com/gpu"
    world.cluster.set_node(node("n1").resource(gpu, "2").typed())
    world.cluster.add_pod(pod_info(pod("p").bound_to("n1").req(gpu, "1").typed()))
    world.cluster.set_node(node("n1").typed())

    (shown,) = json.loads(b"".join(pieces({"shown": cache_page(world.cluster)["nodes"]})))["shown"]
    assert (shown["requested"][gpu], gpu in shown["allocatable"]) == (1, False)


def test_nothing_in_particular() -> None:
    world = World()
    world.seen("PersistentVolumeClaim", a_claim("c").typed())
    world.seen("PersistentVolume", a_pv("v").typed())

    assert world.shown() == {"assumedVolumes": [], "assumedClaims": [], "inFlight": [], "unreadable": []}


def test_what_is_ours_alone() -> None:
    world = World()
    world.seen("CSIStorageCapacity", a_capacity("a", "s", "10Gi", ns="csi").where("zone", "a").typed())
    world.cluster.volumes.reservations.users.add("ns/p", ["ns/c", "ns/d"])
    for name in ("c", "d"):
        claim = a_claim(name, storage_class="s", ns="ns").uid(f"u-{name}").resource_version("1")
        world.seen("PersistentVolumeClaim", claim.typed())
        world.cluster.volumes.claims.assume(claim.selected("n1").typed())
    for name in ("v", "w"):
        volume = a_pv(name, storage_class="s").uid(f"u-{name}").resource_version("1")
        world.seen("PersistentVolume", volume.typed())
        world.cluster.volumes.volumes.assume(volume.typed())
    world.seen("PersistentVolume", volume.resource_version("2").typed())
    world.seen("CSINode", ObjectDecoder("CSINode", PersistentVolume).decode(b'{"metadata":{"name":"n1"},"spec":3}'))

    shown = world.shown()
    unreadable = shown.pop("unreadable")
    assert shown == {
        "assumedVolumes": ["v"],
        "assumedClaims": [{"claim": "ns/c", "node": "n1"}, {"claim": "ns/d", "node": "n1"}],
        "inFlight": [
            {"claim": key, "class": "s", "node": "n1", "bytes": 2**30, "state": "flying", "pool": "csi/a"}
            for key in ("ns/c", "ns/d")
        ],
    }
    assert isinstance(unreadable, list)
    assert [(row["kind"], row["object"], "$.spec" in row["why"]) for row in unreadable] == [("CSINode", "n1", True)]


NO_DEVICES = {"assumedClaims": [], "inFlight": [], "heldTwice": [], "pools": [], "nodeSelection": "", "unreadable": []}


def test_nothing_in_particular_of_devices() -> None:
    world = World()
    world.seen("ResourceClaim", a_device_claim("c").uid("c").allocated(a_result("r", "drv/n1/d0")).typed())
    world.seen("ResourceSlice", a_slice("n1", "drv", a_device("d0")).typed())
    world.cluster.devices.on_nodes.catch_up()

    assert NO_DEVICES == world.shown("devices")


def test_devices_that_are_ours_alone() -> None:
    world = World()
    for name in ("a", "b", "c", "d"):
        world.seen("ResourceClaim", a_device_claim(name).uid(name).resource_version("1").typed())
    claims = world.cluster.devices.claims
    for name, version in (("a", "2"), ("b", "3")):
        written = a_device_claim(name).uid(name).allocated(a_result("r", "drv/n1/d0"))
        claims.assume(written.resource_version(version).typed())
    for name in ("d", "c"):
        results = [a_result("r", f"drv/n1/{name}"), a_result("s", f"drv/n1/{name}{name}")]
        claims.signal(name, a_device_claim(name).uid(name).allocated(*results).typed())
    claims.set(a_device_claim("b").uid("b").resource_version("3").allocated(a_result("r", "drv/n1/d0")).typed())

    assert world.shown("devices") == NO_DEVICES | {
        "assumedClaims": ["default/a"],
        "inFlight": [
            {"claim": f"default/{name}", "devices": [f"drv/n1/{name}", f"drv/n1/{name}{name}"]} for name in ("c", "d")
        ],
        "heldTwice": [{"device": "drv/n1/d0", "claims": ["default/a", "default/b"]}],
    }


def test_many_devices_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachedump, "_LOOKED_AT", 3)
    world = World()
    for number in range(20):
        written = a_device_claim(f"c{number}").uid(f"u{number}").allocated(a_result("r", f"drv/n1/d{number // 2 * 2}"))
        world.seen("ResourceClaim", written.resource_version("1").typed())
    world.cluster.devices.claims.assume(a_device_claim("c7").uid("u7").resource_version("2").typed())

    assert world.shown("devices") == NO_DEVICES | {
        "assumedClaims": ["default/c7"],
        "heldTwice": [
            {"device": f"drv/n1/d{number}", "claims": [f"default/c{number}", f"default/c{number + 1}"]}
            for number in (0, 10, 12, 14, 16, 18, 2, 4, 8)
        ],
    }
    said = list(pieces({"devices": cache_page(world.cluster)["devices"]}))
    assert said.count(b"") == 7 + 4 + 1  # parts of claims, devices and nodes


def test_what_is_wrong_with_what_was_published() -> None:
    world = World()
    world.seen("ResourceSlice", a_slice("n1", "halved", a_device("d0")).of(2).typed())
    world.seen("ResourceSlice", a_slice("n1", "twice", a_device("d0"), a_device("d0")).typed())
    world.seen("ResourceSlice", a_slice("n1", "far").named("far").selecting(("zone", "Near", "a")).typed())
    world.seen(
        "ResourceSlice", ObjectDecoder("ResourceSlice", PersistentVolume).decode(b'{"metadata":{"name":"s"},"spec":3}')
    )
    world.cluster.devices.on_nodes.catch_up()

    shown = world.shown("devices")
    unreadable = shown.pop("unreadable")
    selection = shown.pop("nodeSelection")
    pools = [
        {"driver": "halved", "pool": "n1", "state": "incomplete", "why": ""},
        {"driver": "twice", "pool": "n1", "state": "invalid", "why": "duplicate device name d0"},
    ]
    assert NO_DEVICES == shown | {"pools": [], "nodeSelection": "", "unreadable": []}
    assert shown["pools"] == pools
    assert "slice far" in str(selection)
    assert isinstance(unreadable, list)
    assert [(row["kind"], row["object"], "$.spec" in row["why"]) for row in unreadable] == [
        ("ResourceSlice", "s", True)
    ]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), plain | st.lists(plain, max_size=3 * ROWS), min_size=1, max_size=4))
def test_pieces_make_the_whole(page: dict[str, object]) -> None:
    """Whether a list is given at once or row by row."""
    whole = {name: (lambda value=value: value) for name, value in page.items()}
    by_rows = {
        name: (lambda value=value: iter(value) if isinstance(value, list) else value) for name, value in page.items()
    }

    assert b"".join(pieces(whole)) == indented(page) + b"\n"
    assert b"".join(pieces(by_rows)) == indented(page) + b"\n"
    inner = {"a": lambda: DumpSections(by_rows), "b": lambda: 1}
    assert b"".join(pieces(inner)) == indented({"a": page, "b": 1}) + b"\n"


@given(st.lists(st.none() | st.integers(0, 9), max_size=3 * ROWS))
def test_pauses_are_no_rows(rows: list[int | None]) -> None:
    """Each ends a piece, and nothing else."""
    said = list(pieces({"a": lambda: (PAUSE if row is None else row for row in rows)}))

    assert b"".join(said) == indented({"a": [row for row in rows if row is not None]}) + b"\n"
    assert len(said) >= 4 + rows.count(None)


def test_rows_are_made_when_their_turn_comes() -> None:
    made: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(10 * ROWS):
            made.append(number)
            yield number

    looked_at = 0
    for piece in pieces({"rows": rows, "end": lambda: len(made)}):
        assert len(made) - looked_at <= ROWS, piece
        looked_at = len(made)
    assert looked_at == 10 * ROWS


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": frozenset({"x"})}])
def test_what_json_has_no_word_for(value: object) -> None:
    assert msgspec.json.decode(b"".join(pieces({"a": lambda: value})))["a"] is not None


def record(pod: str, attempt: int) -> DecisionRecord:
    return DecisionRecord(pod=pod, uid="u", profile="kubestow", attempt=attempt, started_wall=0.0)


def test_the_last_attempts_of_a_pod_are_kept_in_order() -> None:
    records = DecisionRecords(per_pod=2)
    for attempt in (1, 2, 3):
        records.add(record("a/p", attempt))

    assert [r.attempt for r in records.of("a/p")] == [2, 3]


def test_the_pod_that_was_not_tried_for_longest_is_forgotten() -> None:
    records = DecisionRecords(pods=2)
    for key in ("a/old", "a/mid", "a/old", "a/new"):
        records.add(record(key, 1))

    assert records.of("a/mid") == ()
    assert len(records.of("a/new")) == 1
    assert len(records.of("a/old")) == 2


def test_what_is_shown() -> None:
    records = DecisionRecords()
    first, second = record("a/p", 1), record("a/p", 2)
    records.add(first)
    records.add(second)
    second.result = "scheduled"

    shown = records.to_dict("a/p")
    assert shown is not None
    assert [(a["attempt"], a["result"]) for a in shown["attempts"]] == [(2, "scheduled"), (1, "")]
    assert records.to_dict("a/q") is None


class Explains:
    """Says this of every pod."""

    def __init__(self, name: str, said: Mapping[str, Any] | None) -> None:
        self.name = name
        self._said = said

    def explain(self, pod: PodInfo) -> Mapping[str, Any] | None:
        return self._said


class Silent:
    """Has nothing to explain."""

    name = "Silent"


def profile(*plugins: object) -> dict[str, Profile]:
    return {"kubestow": cast("Profile", SimpleNamespace(pre_filter=plugins))}


WAITS = pod_info(pod("p").set({"spec": {"schedulerName": "kubestow"}}).typed())
OTHERS = pod_info(pod("p").set({"spec": {"schedulerName": "other"}}).typed())
NUMBERS = Explains("DynamicResources", {"requests": []})


@pytest.mark.parametrize(("waiting", "plugins", "expected"), [
    pytest.param(WAITS, (Silent(), NUMBERS), {"DynamicResources": {"requests": []}}, id="a plugin that has numbers"),
    pytest.param(WAITS, (Silent(), Explains("X", None)), None, id="none that has anything to say of this pod"),
    pytest.param(None, (NUMBERS,), None, id="the pod does not wait any more"),
    pytest.param(OTHERS, (NUMBERS,), None, id="it is another scheduler's by now"),
])  # fmt: skip
def test_facts_of_plugins(waiting: PodInfo | None, plugins: tuple[object, ...], expected: object) -> None:
    records = DecisionRecords()
    records.add(DecisionRecord("default/p", "p", "kubestow", 1, 0.0))

    found = shown("default/p", records, waiting=lambda _: waiting, profiles=profile(*plugins))

    assert found is not None
    assert (1, expected) == (len(found["attempts"]), found.get("facts"))


def test_a_pod_that_is_not_remembered() -> None:
    assert shown("default/p", DecisionRecords(), waiting=lambda _: WAITS, profiles=profile(NUMBERS)) is None


NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."


def a_cluster(*, on_n1: int) -> SchedulerHarness:
    """All are full: n1 of pods of that priority, n2 of priority 9, n4 of both; n3 is out of the question."""
    sched = SchedulerHarness()
    for name in ("n1", "n2", "n4"):
        sched.node(name, cpu="2")
    sched.node("n3", cpu="2", taints=[{"key": "k", "effect": "NoSchedule"}])
    for name, node_name, cpu, priority in (
        ("low", "n1", "2", on_n1),
        ("equal", "n2", "2", 9),
        ("half", "n4", "1", 0),
        ("other-half", "n4", "1", 9),
    ):
        sched.pod(name, cpu=cpu, on=node_name, priority=priority)
    return sched


def last_attempt(sched: SchedulerHarness, name: str) -> dict[str, Any]:
    """The last attempt, as /debug/pod prints it."""
    page = sched.parts.records.to_dict(f"default/{name}")
    assert page is not None
    attempt: dict[str, Any] = page["attempts"][0]
    return attempt


def why(attempt: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Reason → its plugin, and nodes."""
    return {row["reasons"][0]: (row["plugin"], row["examples"]) for row in attempt["preemption"]}


async def test_the_victims_and_the_nodes_where_it_would_not_help() -> None:
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["nominated"], attempt["victims"], attempt["node"]) == ("n1", ("default/low",), "")
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n2",)),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
    }
    assert {row["reasons"][0] for row in attempt["groups"]} == {"Insufficient cpu", "node(s) had untolerated taint(s)"}


async def test_why_no_eviction_would_help() -> None:
    sched = a_cluster(on_n1=9)
    sched.pod("p", cpu="2", priority=9)
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["nominated"], attempt["victims"]) == ("", ())
    assert why(attempt) == {
        "No preemption victims found for incoming pod": ("DefaultPreemption", ("n1", "n2")),
        "Insufficient cpu": ("NodeResourcesFit", ("n4",)),
        "Preemption is not helpful for scheduling": ("DefaultPreemption", ("n3",)),
    }
    assert sum(row["nodes"] for row in attempt["preemption"]) == attempt["node_count"] == 4


async def test_a_pod_that_may_not_preempt_has_no_such_groups() -> None:
    sched = a_cluster(on_n1=0)
    sched.pod("p", cpu="2", priority=9, preemptionPolicy="Never")
    await sched.settle()

    attempt = last_attempt(sched, "p")
    assert (attempt["preemption"], attempt["nominated"]) == ((), "")
    assert attempt["message"].endswith(NEVER)
