"""The read of a contested node's pods before a Binding (docs/spec/core.md §2.6, docs/adr/0017)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.config.args import KubestowArgs
from scheduler.config.load import default
from scheduler.config.types import Configuration
from scheduler.controllers import contested_nodes
from scheduler.core.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from tests.unit.harness import SchedulerHarness, manifest, read_pod
from tests.unit.scenarios.seen import conflicts, samples


def another_binds(sched: SchedulerHarness, name: str = "first", on: str = "elsewhere", **spec: Any) -> None:
    """The watch shows a pod of another scheduler, and then that it is bound."""
    spec = {"cpu": "1", "scheduler": "theirs"} | spec
    sched.pod(name, **spec)
    sched.pod(name, **spec, on=on)


def has(sched: SchedulerHarness, *pods: str, on: str = "n1", **spec: Any) -> None:
    """The API server has these pods on the node, which the watch has not shown."""
    spec = {"cpu": "1", "scheduler": "theirs"} | spec
    sched.writer.pods_of[on] = [read_pod(manifest(name, on=on, **spec)) for name in pods]


def contested(config: Configuration | None = None, cpu: str = "2") -> SchedulerHarness:
    """Another scheduler has just bound a pod of one CPU to another node."""
    sched = SchedulerHarness(config)
    sched.node("n1", cpu=cpu)
    another_binds(sched)
    return sched


def reads(sched: SchedulerHarness) -> dict[str, float]:
    return {each.labels["result"]: each.value for each in samples(sched, "kubestow_node_reads_total") if each.value}


async def test_a_pod_that_the_watch_has_not_shown_counts_before_a_binding() -> None:
    sched = contested()
    has(sched, "q")
    sched.pod("p", cpu="2")
    await sched.settle()
    sched.pod("q", cpu="1", on="n1", scheduler="theirs")
    await sched.later(0.1)

    assert (sched.writer.binds, conflicts(sched), reads(sched)) == ([], {"node": 1}, {"unseen": 1})
    assert sched.writer.node_reads == [("uids", "n1"), ("pods", "n1")]
    assert sched.refusal("p") == "0/1 nodes are available: 1 Insufficient cpu."
    assert sched.recorder.events[0].note == "0/1 nodes are available: 1 Insufficient cpu."


async def test_the_refused_pod_is_tried_again_once_the_watch_shows_the_other_pod() -> None:
    """Until then it would be placed on the same node again and again."""
    sched = contested()
    has(sched, "q")
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(1)
    assert len(sched.writer.node_reads) == 2
    assert sorted(info.key for info in sched.cluster.pods()) == ["default/first", "default/p"]

    sched.pod("q", cpu="1", on="n1", scheduler="theirs")
    sched.node("n2", cpu="8")
    await sched.later(0.1)

    assert (sched.writer.binds, len(sched.writer.node_reads)) == ([("default/p", "n2")], 2)


async def test_the_refused_pod_waits_two_seconds_at_most_for_the_watch() -> None:
    sched = contested()
    has(sched, "q")
    sched.pod("p", cpu="2")
    await sched.settle()
    sched.writer.pods_of.clear()  # q is gone, and the watch never shows it
    await sched.later(2)
    await sched.later(1)

    assert (sched.writer.binds, conflicts(sched)) == ([("default/p", "n1")], {"node": 1})


@pytest.mark.parametrize(("pods", "spec", "sent"), [
    pytest.param((), {}, ["uids"], id="the node has no pod"),
    pytest.param(("q",), {}, ["uids", "pods"], id="the node fits both"),
    pytest.param(("q",), {"cpu": "9", "phase": "Succeeded"}, ["uids", "pods"], id="the unseen pod has finished"),
    pytest.param(("p",), {"cpu": "9"}, ["uids"], id="it is the pod itself"),
    pytest.param(("first",), {"cpu": "9"}, ["uids"], id="the watch has shown the pod"),
])  # fmt: skip
async def test_a_pod_is_bound_after_a_read_if(pods: tuple[str, ...], spec: dict[str, Any], sent: list[str]) -> None:
    sched = contested()
    has(sched, *pods, **spec)
    sched.pod("p", cpu="1")
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
    assert sched.writer.node_reads == [(what, "n1") for what in sent]
    assert conflicts(sched) == {}


async def test_a_pod_that_the_watch_shows_during_the_read_counts_once() -> None:
    sched = contested()
    has(sched, "q")

    async def shown() -> None:
        sched.pod("q", cpu="1", on="n1", scheduler="theirs")

    sched.writer.on_node_read = shown
    sched.pod("p", cpu="1")
    await sched.settle()

    assert (sched.writer.binds, reads(sched)) == ([("default/p", "n1")], {"current": 1})


async def test_a_pod_that_the_watch_shows_during_the_read_refuses_the_binding() -> None:
    sched = contested()
    has(sched, "q")

    async def shown() -> None:
        sched.pod("q", cpu="1", on="n1", scheduler="theirs")

    sched.writer.on_node_read = shown
    sched.pod("p", cpu="2")
    await sched.settle()

    assert (sched.writer.binds, conflicts(sched)) == ([], {"node": 1})


# -- which nodes are contested ------------------------------------------------------------------------------------------


def _nothing(sched: SchedulerHarness) -> None:
    """No pod of another scheduler."""


def _listed(sched: SchedulerHarness) -> None:
    sched.pod("first", cpu="1", on="elsewhere", scheduler="theirs")


def _earlier_leader(sched: SchedulerHarness) -> None:
    another_binds(sched, scheduler="kubestow")


def _unbound(sched: SchedulerHarness) -> None:
    sched.pod("first", cpu="1", scheduler="theirs")


def _long_ago(sched: SchedulerHarness) -> None:
    another_binds(sched)
    sched.clock.move(60.1)


def _small(sched: SchedulerHarness) -> None:
    another_binds(sched, cpu="500m")


@pytest.mark.parametrize("before", [
    pytest.param(_nothing, id="there is none"),
    pytest.param(_listed, id="its pod was bound before the first list"),
    pytest.param(_earlier_leader, id="another replica bound a pod of ours"),
    pytest.param(_unbound, id="it has not bound its pod"),
    pytest.param(_long_ago, id="it bound nothing for a minute"),
    pytest.param(_small, id="two of its pods fit on the node"),
])  # fmt: skip
async def test_no_request_is_sent_for_another_scheduler_if(before: Callable[[SchedulerHarness], None]) -> None:
    sched = SchedulerHarness()
    before(sched)
    sched.node("n1", cpu="2")
    sched.pod("p", cpu="1")
    await sched.settle()

    assert (sched.writer.binds, sched.writer.node_reads) == ([("default/p", "n1")], [])


@pytest.mark.parametrize("args", [KubestowArgs(parity=True), KubestowArgs(busy_nodes="none")], ids=["parity", "none"])
async def test_no_request_is_sent_without_the_switch(args: KubestowArgs) -> None:
    config = default()
    config.profiles[0].args["Kubestow"] = args  # type: ignore[index]
    sched = contested(config)
    has(sched, "q")
    sched.pod("p", cpu="2")
    await sched.settle()

    assert (sched.writer.binds, sched.writer.node_reads) == ([("default/p", "n1")], [])


@pytest.mark.parametrize(("node", "spec", "is_read"), [
    pytest.param({"cpu": "3"}, {"cpu": "1"}, False, id="two of theirs fit"),
    pytest.param({"cpu": "2999m"}, {"cpu": "1"}, True, id="a little less capacity"),
    pytest.param({"cpu": "1"}, {}, False, id="the pod requests no cpu"),
    pytest.param({"cpu": "9", "pods": "2"}, {}, True, id="one more pod is allowed"),
    pytest.param({"cpu": "9", "pods": "3"}, {}, False, id="two more pods are allowed"),
    pytest.param({"cpu": "9"}, {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, True, id="a host port"),
])  # fmt: skip
async def test_a_node_is_contested(node: dict[str, str], spec: dict[str, Any], is_read: bool) -> None:
    sched = SchedulerHarness()
    sched.node("n1", **node)
    another_binds(sched)
    sched.pod("p", **spec)
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
    assert sched.writer.node_reads == ([("uids", "n1")] if is_read else [])


async def test_the_largest_pod_of_the_last_minute_counts() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="6")
    another_binds(sched, "large", cpu="2")
    sched.clock.move(59)
    another_binds(sched, "small", cpu="100m")
    sched.clock.move(2)
    another_binds(sched, "smaller", cpu="10m")
    sched.pod("p", cpu="3")
    await sched.settle()
    assert sched.writer.node_reads == [("uids", "n1")]

    sched.clock.move(61)
    another_binds(sched, "last", cpu="10m")
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.writer.node_reads == [("uids", "n1")]
    assert len(sched.writer.binds) == 2


# -- failures, limits, and cancellation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "pause_s"), [
    pytest.param(Unavailable("no", status=500), 1, id="the server fails"),
    pytest.param(Unavailable("TimeoutError"), 1, id="the read takes too long"),
    pytest.param(Forbidden("no", status=403), 1, id="the permission is missing"),
    pytest.param(TooManyRequests("busy"), 1, id="the server is busy"),
    pytest.param(TooManyRequests("busy", retry_after_s=30.0), 30, id="the server is busy for longer"),
])  # fmt: skip
async def test_a_failed_read_delays_no_binding_and_pauses_reads(error: ApiError, pause_s: float) -> None:
    sched = contested(cpu="3")
    another_binds(sched, "second", cpu="2")
    has(sched, "q")
    fail_reads(sched, error)
    sched.pod("p1", cpu="1")
    await sched.settle()
    assert (sched.writer.binds, reads(sched)) == ([("default/p1", "n1")], {"failed": 1})

    sched.clock.move(pause_s - 0.5)
    sched.pod("p2", cpu="1")
    await sched.settle()
    assert (len(sched.writer.binds), len(sched.writer.node_reads)) == (2, 1)

    sched.clock.move(0.5)
    sched.writer.on_node_read = None
    sched.pod("p3", cpu="1")
    await sched.settle()
    assert (len(sched.writer.binds), len(sched.writer.node_reads)) == (2, 3)


async def test_the_pause_doubles_until_a_read_succeeds() -> None:
    sched = contested(cpu="1")
    fail_reads(sched, Unavailable("no", status=503))

    async def pause() -> float:
        """Place one pod per half second until a read is sent; return the time."""
        sent, began = len(sched.writer.node_reads), sched.clock.now()
        while len(sched.writer.node_reads) == sent:
            sched.clock.move(0.5)
            another_binds(sched, f"theirs-{sched.clock.now()}")
            sched.node(f"n-{sched.clock.now()}", cpu="1")
            sched.pod(f"p-{sched.clock.now()}", cpu="1")
            await sched.settle()
        return sched.clock.now() - began

    pauses = [await pause() for _ in range(8)]
    sched.writer.on_node_read = None
    pauses += [await pause()]
    fail_reads(sched, Unavailable("no", status=503))
    pauses += [await pause(), await pause()]

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.5, 1]


def fail_reads(sched: SchedulerHarness, error: ApiError) -> None:
    async def fails() -> None:
        raise error

    sched.writer.on_node_read = fails


async def test_bindings_to_one_node_share_a_read() -> None:
    sched = contested(cpu="3")
    has(sched, "q")
    answered = asyncio.Event()
    sched.writer.on_node_read = lambda: _waits(answered)
    for name in ("p1", "p2", "p3"):
        sched.pod(name, cpu="1")
    await sched.settle()
    assert sched.writer.node_reads == [("uids", "n1")]

    answered.set()
    await sched.settle()

    # Three pods were assumed, and q is the fourth: one of the three gives way.
    assert len(sched.writer.binds) == 2
    assert sched.writer.node_reads == [("uids", "n1"), ("pods", "n1")]
    assert (conflicts(sched), reads(sched)) == ({"node": 1}, {"unseen": 1})


async def _waits(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_read_that_was_sent_earlier_is_not_shared() -> None:
    sched = contested(cpu="2")
    answered = asyncio.Event()
    sched.writer.on_node_read = lambda: _waits(answered)
    sched.pod("p1", cpu="1")
    await sched.settle()
    sched.clock.move(0.06)
    sched.pod("p2", cpu="1")
    await sched.settle()
    assert sched.writer.node_reads == [("uids", "n1")] * 2

    answered.set()
    await sched.settle()

    assert len(sched.writer.binds) == 2


@pytest.mark.parametrize(("took_s", "waits_s"), [(0.2, 0.2), (9.0, 0.5)])
async def test_a_read_waits_as_long_as_a_binding_takes(took_s: float, waits_s: float) -> None:
    """Another scheduler that decided at the same moment has sent its Binding at the end of this wait."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.writer.hold = asyncio.Event()
    sched.pod("before", cpu="1")
    await sched.settle()
    sched.clock.move(took_s)
    sched.writer.hold.set()
    await sched.settle()
    another_binds(sched)
    sched.pod("p", cpu="1")
    await sched.settle()
    assert (len(sched.writer.binds), sched.writer.node_reads) == (1, [])

    has(sched, "q")
    await sched.later(waits_s)

    assert (len(sched.writer.binds), sched.writer.node_reads) == (1, [("uids", "n1"), ("pods", "n1")])
    assert conflicts(sched) == {"node": 1}


async def test_reads_per_second_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contested_nodes, "READS_PER_S", 2)
    sched = SchedulerHarness()
    another_binds(sched)
    for index in range(4):
        sched.node(f"n{index}", cpu="1")
        sched.pod(f"p{index}", cpu="1")
    await sched.settle()
    assert (len(sched.writer.binds), len(sched.writer.node_reads)) == (4, 2)

    sched.clock.move(1)
    sched.node("n4", cpu="1")
    sched.pod("p4", cpu="1")
    await sched.settle()
    assert (len(sched.writer.binds), len(sched.writer.node_reads)) == (5, 3)


async def test_draining_cancels_a_read() -> None:
    """No Binding is sent, and bindings that share the read end as well."""
    sched = contested(cpu="3")
    sched.writer.on_node_read = lambda: _waits(asyncio.Event())
    for name in ("p1", "p2"):
        sched.pod(name, cpu="1")
    await sched.settle()

    drain = asyncio.ensure_future(sched.parts.binder.drain(5))
    await sched.turns()
    sched.clock.move(6)
    await sched.settle()

    assert (drain.done(), drain.result()) == (True, 2)
    assert (sched.writer.binds, len(sched.parts.binder)) == ([], 0)
    assert sched.is_free()
