"""A question never holds the loop, and nothing but the question sees its changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from scheduler.api.decode import Delta
from scheduler.api.podinfo import PodInfo
from scheduler.config.types import TRIAL_S
from scheduler.core.cooperative import TURN_S, Work, finish
from scheduler.explain.fixes import Steps
from scheduler.explain.what_if import WhatIfRequest
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import Rejection
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv
from tests.unit.explain.test_what_if import cluster, pausing, pod, state
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.device_harness import DeviceHarness

_STEP_S = 0.001


class HardSearch:
    """Verify of one node takes this many steps of a millisecond, and rejects the node."""

    def __init__(self, sched: SchedulerHarness, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        self.sched = sched
        self.steps = self.calls = 0
        self._limit = steps
        monkeypatch.setattr(FrameworkRunner, "verify", self._verify)

    def _verify(self, state: CycleState, pod: PodInfo, slot: int) -> Work[Rejection | None]:
        self.calls += 1
        for _ in range(self._limit):
            self.steps += 1
            self.sched.clock.time += _STEP_S
            yield
        return None


def stretches(sched: SchedulerHarness, work: Steps[Any]) -> tuple[list[float], Any]:
    """Drive the work; return the time of each stretch and the result."""
    took = list[float]()
    began = sched.clock.time
    while True:
        try:
            is_between = next(work)
        except StopIteration as done:
            return [*took, sched.clock.time - began], done.value
        if is_between:
            took.append(sched.clock.time - began)
            began = sched.clock.time


def news(sched: SchedulerHarness) -> Any:
    """Return what the cache has for waiting pods, and what is held for nominated ones."""
    volumes, devices = sched.cluster.volumes, sched.cluster.devices
    return (
        dict(volumes.given_back),
        set(volumes.reservations.freed),
        list(devices.claims.changes),
        list(devices.claims.given_back),
        list(devices.device_holds),
        [(each.claim.key, each.node_name, each.state) for each in volumes.reservations],
        sched.parts.queue.counts(),
    )


@pytest.mark.parametrize("steps", [30, 100, 1_000_000], ids=["within a stretch", "beyond it", "without an end"])
def test_no_search_of_a_question_lasts_longer_than_a_stretch(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sched = cluster({f"n{at}": {} for at in range(4)}, {})
    before = state(sched)
    search = HardSearch(sched, monkeypatch, steps)
    work = sched.parts.what_if.answer(WhatIfRequest(manifests=(pod("a", cpu="1"), pod("b", cpu="1"))))

    took, found = stretches(sched, work)

    assert max(took) <= TRIAL_S + 2 * _STEP_S
    assert state(sched) == before
    is_short = steps * _STEP_S < TRIAL_S
    assert (found.placed, found.is_complete) == ((2, True) if is_short else (0, False))
    if not is_short:
        assert found.cause == "0 of 2 pods fit; the search for a node takes too long for a question"
        assert search.calls <= 2 * 3


def test_pods_are_placed_after_one_whose_search_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stretch of the hard pod is over, so the next pod begins a new one."""
    sched = cluster({"n1": {}}, {})
    HardSearch(sched, monkeypatch, 40)

    took, found = stretches(sched, sched.parts.what_if.answer(WhatIfRequest(manifests=(pod(cpu="1"),), replicas=3)))

    assert found.placed == 3
    assert max(took) <= TRIAL_S + 2 * _STEP_S


def test_no_trial_of_an_explanation_lasts_longer_than_a_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    sched = cluster({f"n{at}": {} for at in range(4)}, {"p": {"cpu": "1"}})
    before = state(sched)
    HardSearch(sched, monkeypatch, 1_000_000)

    took, found = stretches(sched, sched.parts.explainer.explain("default/p"))

    assert max(took) <= TRIAL_S + 2 * _STEP_S
    assert state(sched) == before
    assert (found.code, found.is_search_complete) == ("Error", False)
    assert found.cause == "none of 4 nodes fits: 4 node(s) whose search takes too long for an explanation"


async def test_other_pods_are_tried_within_a_stretch_of_a_hard_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beat that /livez reads is never older than that."""
    sched = cluster({"n1": {}}, {})
    HardSearch(sched, monkeypatch, 1_000_000)
    manifests = tuple(pod(f"p{at}", cpu="1") for at in range(5))
    asking = asyncio.ensure_future(
        sched.parts.questions.answer_to(lambda: sched.parts.what_if.answer(WhatIfRequest(manifests=manifests)))
    )
    await asyncio.sleep(0)
    last, longest = sched.clock.time, 0.0
    while not asking.done():
        await sched.parts.loop.step()
        longest, last = max(longest, sched.clock.time - last), sched.clock.time
        await asyncio.sleep(0)

    assert longest <= TRIAL_S + TURN_S + 2 * _STEP_S
    assert (await asking).placed == 0


QUESTIONS = [
    pytest.param({"manifests": (pod(cpu="1"),), "replicas": 30}, id="replicas"),
    pytest.param({"manifests": (pod(cpu="1"),), "replicas": 30, "cordon": ("n1", "n2")}, id="cordon"),
    pytest.param({"manifests": (pod(cpu="1"),), "replicas": 30, "add_nodes_like": {"n1": 3}}, id="more nodes"),
    pytest.param({"manifests": (pod(cpu="1"),), "replicas": 30, "without": ("default/a",)}, id="without a pod"),
    pytest.param({"manifests": (pod(cpu="3", priority=5),), "replicas": 8}, id="preemption"),
    pytest.param({"drain": ("n1",)}, id="drain"),
]


@pytest.mark.parametrize("request_", QUESTIONS)
async def test_no_reader_on_the_event_loop_sees_a_question(request_: dict[str, Any]) -> None:
    """Bindings, pages and gauges read the cache whenever the event loop runs."""
    sched = cluster({"n1": {}, "n2": {}}, {"a": {"cpu": "1", "on": "n1"}, "b": {"cpu": "2", "on": "n2"}})
    before = state(sched), news(sched)
    what_if, seen = pausing(sched), 0
    asking = asyncio.ensure_future(sched.parts.questions.answer_to(lambda: what_if.answer(WhatIfRequest(**request_))))
    while not asking.done():
        await asyncio.sleep(0)
        assert (state(sched), news(sched)) == before
        seen += 1
        if len(sched.parts.questions):
            turn = asyncio.ensure_future(sched.parts.questions.turn())
            while not turn.done():
                await asyncio.sleep(0)
                assert (state(sched), news(sched)) == before
                seen += 1

    assert seen > 2


SPREAD = {
    "maxSkew": 2,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "v"}},
}


async def bound(request: dict[str, Any] | None) -> list[Any]:
    """Return the bindings of pods next to those of another scheduler, and to a question before each of them."""
    sched = cluster({f"n{at}": {} for at in range(4)}, {})
    sched.parts.rng.seed(5)
    what_if = pausing(sched)
    for number in range(6):
        asking = None
        if request is not None:
            steps = partial(what_if.answer, WhatIfRequest(**request))
            asking = asyncio.ensure_future(sched.parts.questions.answer_to(steps))
        sched.pod(f"v{number}", cpu="100m", labels={"app": "v"}, topologySpreadConstraints=[SPREAD])
        sched.pod(f"f{number}", cpu="100m", on=f"n{number % 4}", schedulerName="other")
        await sched.settle()
        if asking is not None:
            asking.cancel()
    assert len(sched.writer.binds) == 6
    return sched.writer.binds


async def test_pods_are_bound_to_the_same_nodes_with_questions_as_without() -> None:
    cordon = {"manifests": (pod(cpu="1"),), "replicas": 4, "cordon": ("n0", "n1", "n2", "n3")}

    assert await bound(cordon) == await bound(None)


def with_storage() -> SchedulerHarness:
    """Two nodes, a claim with a free local volume, and a claim that a provisioner serves, both without a pod."""
    sched = cluster({"n1": {}, "n2": {}}, {})
    objects = (
        ("StorageClass", a_class("local")),
        ("StorageClass", a_class("csi", "csi.example.com")),
        ("PersistentVolume", a_pv("v", "5Gi", "local")),
        ("PersistentVolumeClaim", a_claim("static", "1Gi", "local").uid("static").resource_version("1")),
        ("PersistentVolumeClaim", a_claim("dynamic", "1Gi", "csi").uid("dynamic").resource_version("1")),
        ("CSIStorageCapacity", a_capacity("o", "csi", "9Gi").everywhere()),
    )
    for kind, builder in objects:
        sched.parts.event_handlers.apply(kind, [Delta(None, builder.typed())])
    sched.parts.inbox.apply()
    return sched


def volume_of(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


def with_devices() -> SchedulerHarness:
    sched = DeviceHarness(devices=2, nodes=("n1", "n2"))
    sched.show(sched.claim("free"))
    sched.parts.inbox.apply()
    sched.parts.event_handlers.devices.tick()
    return sched


def device_of(claim: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": claim}]}


UNDONE = [
    pytest.param(with_storage, (pod(cpu="1", **volume_of("static")),), 1, id="a volume"),
    pytest.param(with_storage, (pod(cpu="1", **volume_of("dynamic")),), 1, id="storage of a provisioner"),
    pytest.param(with_storage, (pod(cpu="1", **volume_of("dynamic", "static")), pod("x", cpu="99")), 1, id="both, and a pod that fits nowhere"),
    pytest.param(with_devices, (pod(cpu="1", **device_of("free")),), 1, id="a device"),
]  # fmt: skip


@pytest.mark.parametrize(("world", "manifests", "placed"), UNDONE)
def test_what_a_question_takes_back_wakes_no_pod(
    world: Any, manifests: tuple[dict[str, Any], ...], placed: int
) -> None:
    sched = world()
    before = state(sched), news(sched)

    found = finish(sched.parts.what_if.answer(WhatIfRequest(manifests=manifests)))

    assert found.placed == placed
    assert (state(sched), news(sched)) == before


async def test_an_explanation_releases_no_claim_that_is_reserved_for_the_pod() -> None:
    """A binding that fails releases it; a trial that is taken back must not."""
    sched = DeviceHarness(devices=1)
    sched.holds("c", "d0", users=("p",))
    sched.pod("p", cpu="1", **device_of("c"))
    sched.parts.inbox.apply()

    found = finish(sched.parts.explainer.explain("default/p"))
    await sched.turns()

    assert found is not None
    assert found.code == "Fits"
    assert sched.writer.claim_writes == []


def test_news_from_before_a_question_is_kept() -> None:
    sched = with_storage()
    sched.cluster.volumes.given_back["PersistentVolume", "other"] = None
    sched.cluster.volumes.reservations.freed.add("csi")
    before = news(sched)

    finish(sched.parts.what_if.answer(WhatIfRequest(manifests=(pod(cpu="1", **volume_of("static", "dynamic")),))))

    assert news(sched) == before


def random_requests(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield questions about the claims of both kinds."""
    for _ in range(12):
        names = rng.sample(("static", "dynamic"), rng.randint(0, 2))
        yield {
            "manifests": (pod(cpu=f"{rng.randint(1, 6)}", **volume_of(*names)),),
            "replicas": rng.randint(1, 4),
            "cordon": tuple(rng.sample(("n1", "n2"), rng.randint(0, 1))),
            "add_nodes_like": {"n1": 1} if rng.random() < 0.5 else {},
        }


def test_random_questions_leave_no_news() -> None:
    sched = with_storage()
    before = state(sched), news(sched)
    for request in random_requests(random.Random(3)):
        finish(pausing(sched).answer(WhatIfRequest(**request)))
        assert (state(sched), news(sched)) == before
