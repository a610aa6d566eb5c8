"""A law of the queue and of NodeResourcesFit: a pod that fits by now, or could evict pods to fit, does not wait.

A small cluster, full or nearly so, and a pod that fits on no node. Then pods end, shrink, come, and are nominated, nodes
change, and the pod is tried again only when one of these wakes it. Left waiting at the end, it is tried by force: it must
be refused, and it must evict no pod (docs/spec/core.md §5.5).
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, example, given, settings, strategies as st

from scheduler.config.types import KubeSchedulerProfile
from tests.examples import SLOW_SHARE, examples
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import DEFAULT, IGNORES_GPUS, harness_of, node, pod, requesting
from tests.unit.wakeups.happenings import (
    PARITY,
    Thing,
    ended,
    forced,
    is_left_waiting,
    leaves,
    passes,
    place,
    refusers,
    some,
)

GPU: Final = "example.com/gpu"
CPUS: Final = ("1", "2", "2", "4")


def _node(name: str, cpu: str, pods: str, gpus: str) -> Thing:
    shown = node(name, cpu=cpu, pods=pods, **({GPU: gpus} if gpus else {}))
    return Thing(f"node({name}, {cpu}, {pods}, {gpus})", shown)


def _requests(cpu: str, gpus: str) -> dict[str, Any]:
    return {"containers": requesting(cpu=cpu, **({GPU: gpus} if gpus else {}))}


def _there(name: str, where: str, spec: dict[str, Any]) -> Thing:
    return Thing(f"there({name}, {where}, {spec})", pod(f"{name}-{where}", on=where, **_fixed(name), **spec))


def _nominated(name: str, where: str, cpu: str) -> Thing:
    """A gated pod has a nominated node, or has lost it."""
    shown = pod(name, nominated=where, gates=["g"], **_fixed(name), **_requests(cpu, ""))
    return Thing(f"nominated({name}, {where}, {cpu})", shown)


def _fixed(name: str) -> dict[str, Any]:
    """What never changes of a pod. Priorities lie below, at and above those of the pod that waits."""
    return {"priority": PRIORITIES[name], "scheduler": "theirs" if name in "ru" else "kubestow"}


PRIORITIES: Final = {"q": 0, "r": 5, "s": 9, "t": 5, "u": 0}
requests = st.builds(_requests, some([*CPUS]), some(["", "", "1", "2"]))
nodes = st.builds(_node, some(["n1", "n2"]), some(["2", "4"]), some(["1", "2", "110"]), some(["", "1", "2"]))
pods = st.builds(_there, some(["q", "r", "s"]), some(["n1", "n1", "n2"]), requests)
nominees = st.builds(_nominated, some(["t", "u"]), some(["n1", "n2", ""]), some([*CPUS]))
leavers = some(["q-n1", "r-n1", "s-n1", "q-n2", "r-n2", "s-n2", "t", "u", "n2"])
things = st.one_of(pods, nodes, nominees, st.builds(leaves, leavers), st.builds(passes, some([0.1, 11.0])))
waiting = st.fixed_dictionaries(
    {"priority": some([0, 5, 6]), "preemptionPolicy": some(["PreemptLowerPriority", "Never"])}
)


def _evicted(sched: SchedulerHarness) -> list[str]:
    return [write for write in sched.writer.wire if write.startswith("delete")]


async def look(sched: SchedulerHarness, there: list[Thing], wants: dict[str, Any], then: list[Thing]) -> None:
    """A pod that is left waiting is tried by force. One that has evicted a pod waits for that pod's end."""
    if not await is_left_waiting(sched, there, wants, then) or _evicted(sched):
        return
    plugins = refusers(sched)

    await forced(sched)

    assert place(sched) != "placed", f"refused by {plugins}"
    assert [] == _evicted(sched), f"refused by {plugins}"


START: Final = _node("n1", "4", "110", "2")
HALF_LEFT: Final = (START, _there("q", "n1", _requests("1", "")), _nominated("u", "n1", "2"))
"""A nominated pod of another scheduler takes half of the node."""
SHARED: Final = (START, _there("s", "n1", _requests("2", "")), _there("q", "n1", _requests("2", "")))
"""Two pods use the node, a more important one and one that may be evicted."""


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    one=some([DEFAULT, PARITY, IGNORES_GPUS]),
    start=some([(START,), SHARED]),
    there=st.lists(st.one_of(nodes, pods, pods, nominees), max_size=6),
    wants=st.builds(lambda spec, more: {**spec, **more}, requests, waiting),
    then=st.lists(things, min_size=1, max_size=6),
)
@example(
    one=DEFAULT,
    start=HALF_LEFT,
    there=[],
    wants={**_requests("2", "1"), "priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
    then=[_nominated("u", "n1", "1")],
)
async def test_a_waiting_pod_would_be_refused(
    one: KubeSchedulerProfile, start: tuple[Thing, ...], there: list[Thing], wants: dict[str, Any], then: list[Thing]
) -> None:
    """Whatever is there, and whatever happens."""
    sched = harness_of(one)
    try:
        await look(sched, [*start, *there], wants, then)
    finally:
        await ended(sched)
