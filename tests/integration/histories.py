"""Histories of a cluster, as hypothesis draws them, and the run of one from empty to quiet."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, settings, strategies as st

from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.integration.pod_steps import SHARED

T = TypeVar("T")

NODES: Final = ("n1", "n2", SHARED)
PODS: Final = tuple(f"p{i}" for i in range(6))
FOREIGN: Final = ("f1", "f2")
ZONES: Final = ("a", "b")
CLASS_NAMES: Final = ("", "", "mid", "high", "high", "meek")
TEAMS: Final = ("", "red", "blue")

BINDINGS: Final[Object] = {"verb": "create", "resource": "pods", "subresource": "binding"}
WHERE: Final[tuple[Object, ...]] = (
    BINDINGS,
    {},
    {"verb": "get", "resource": "pods"},
    {"verb": "patch", "resource": "pods", "subresource": "status"},
    {"verb": "create", "resource": "events"},
    {"verb": "watch", "resource": "pods"},
    {"verb": "watch", "resource": "nodes"},
    {"verb": "list"},
    {"verb": "delete", "resource": "pods"},
)
HARMS: Final[tuple[Object, ...]] = (
    *({"status": status} for status in (409, 410, 429, 500, 503, 504)),
    {"status": 429, "retry_after_s": 3},
    {"reset": "before"},
    {"reset": "after"},
    {"reset": "after", "delay_s": 1},
    {"delay_s": 2},
    {"delay_s": 20},
)
PERMISSIONS: Final = (
    (("create", "pods/binding"),),
    (("list", "nodes"), ("watch", "nodes")),
    (("list", "pods"), ("watch", "pods")),
    (("patch", "pods/status"),),
    (("get", "pods"),),
    (("delete", "pods"),),
    (("list", "poddisruptionbudgets"), ("watch", "poddisruptionbudgets")),
    (("create", "events"), ("patch", "events")),
)


@dataclass(frozen=True)
class Step:
    act: Callable[..., Coroutine[Any, Any, None] | None]
    args: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"{self.act.__name__}{self.args}"


LONG: Final = int(os.environ.get("KUBESTOW_HISTORIES", "0"))
"""The number of random histories, which are shrunk: `KUBESTOW_HISTORIES=2000 pytest tests/integration/test_fault_histories.py`."""
_BUSY: Final = (HealthCheck.too_slow, HealthCheck.data_too_large)
_SHORT: Final = (Phase.explicit, Phase.reuse, Phase.generate)


def fixed(count: int) -> settings:
    """Draw the same histories in each run."""
    return settings(max_examples=count, derandomize=True, database=None, phases=_SHORT, suppress_health_check=_BUSY)


def random(count: int) -> settings:
    """Draw other histories in each run; the environment may set their number.

    They follow from the seed of the run, which a failure prints (tests/seeds.py). A history that failed is kept and tried first.
    Only long runs shrink, as a history takes a second.
    """
    phases = (*_SHORT, Phase.shrink) if LONG else _SHORT
    return settings(max_examples=LONG or count, phases=phases, suppress_health_check=_BUSY)


def a_step(act: Callable[..., Coroutine[Any, Any, None] | None], *args: st.SearchStrategy[Any]) -> Any:
    return st.builds(Step, st.just(act), st.tuples(*args))


def one_of(*weighted: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """Choose by weight: for `st.one_of` each alternative is equally likely, however often it is named."""
    return st.sampled_from([each for weight, each in weighted for _ in range(weight)]).flatmap(lambda each: each)


nodes, zones, truth = (st.sampled_from(values) for values in (NODES, ZONES, (False, True)))
sizes, requests = st.sampled_from((4000, 2000, 3000)), st.sampled_from((500, 100, 1000, 3000))
resources, picks = st.sampled_from(("", "pods", "nodes")), st.integers(0, 15)
classes, teams = st.sampled_from(CLASS_NAMES), st.sampled_from(TEAMS)

new_node = a_step(Harness.add_node, nodes, sizes, zones)
new_pod = a_step(
    Harness.add_pod,
    st.sampled_from(PODS),
    requests,
    st.sampled_from(("", "", *ZONES)),
    st.sampled_from((0, 0, 0, 8080)),
    st.sampled_from((False, False, False, True)),
    classes,
    teams,
)
burst = a_step(Harness.add_burst, st.integers(3, 10), requests, classes, teams)
crowd = st.tuples(
    a_step(
        Harness.add_burst, st.integers(5, 12), st.sampled_from((1000, 500)), st.sampled_from(("", "", "mid")), teams
    ),
    a_step(Harness.seconds, st.just(3)),
).map(list)
"""Pods that come later find the nodes full."""
life = one_of(
    (2, new_node),
    (3, new_pod),
    (2, a_step(Harness.add_foreign_pod, st.sampled_from(FOREIGN), requests, st.sampled_from(("", "mid", "high")))),
    (2, a_step(Harness.promise, picks, st.sampled_from(("", *NODES)))),
    (3, a_step(Harness.bind_as_another, picks)),
    (5, a_step(Harness.delete_pod, picks, truth)),
    (3, a_step(Harness.replace_pod, picks, requests)),
    (3, a_step(Harness.finish_pod, picks)),
    (1, a_step(Harness.open_gate, picks)),
    (1, a_step(Harness.remove_node, picks)),
    (2, a_step(Harness.remove_promised_node, picks)),
    (2, a_step(Harness.delete_preemptor, picks)),
    (2, a_step(Harness.cling, picks, truth)),
    (3, a_step(Harness.protect, st.sampled_from(("red", "blue")), st.sampled_from((None, 0, 1, 5)))),
    (2, a_step(Harness.cordon_node, picks, truth)),
    (2, a_step(Harness.relabel_node, picks, zones)),
    (2, a_step(Harness.resize_node, picks, sizes)),
    (2, a_step(Harness.storm, st.sampled_from(("heartbeats", "labels", "pods")), st.integers(5, 20))),
)
fault = a_step(
    Harness.fault,
    one_of(*((weight, st.just(where)) for weight, where in zip((6, 3, 2, 3, 1, 2, 1, 1, 6), WHERE, strict=True))),
    st.sampled_from(HARMS),
    st.sampled_from((3, 1, 10, None)),
)
trouble = one_of(
    (4, a_step(Harness.end_faults)),
    (3, a_step(Harness.cut_watches, resources, truth)),
    (2, a_step(Harness.compact)),
    (2, a_step(Harness.hold_watches, resources)),
    (4, a_step(Harness.release_watches)),
    (2, a_step(Harness.forbid, st.sampled_from(PERMISSIONS))),
    (4, a_step(Harness.allow_all)),
    (1, a_step(Harness.restart_server)),
    (2, a_step(Harness.crash_daemon)),
    (1, a_step(Harness.kill_daemon)),
    (1, a_step(Harness.stop_daemon)),
    (2, a_step(Harness.change_profile)),
    (6, a_step(Harness.start_daemon)),
)
time = one_of(
    (1, a_step(Harness.turns, st.sampled_from((1, 3, 10, 50)))),
    (1, a_step(Harness.seconds, st.sampled_from((1, 3, 8)))),
).map(lambda step: [step])
gap = st.tuples(
    a_step(Harness.hold_watches, resources), st.lists(life, min_size=1, max_size=4), a_step(Harness.compact)
).map(lambda parts: [parts[0], *parts[1], parts[2]])
"""Its events are lost: watches are silent, then cut, and history is compacted."""
rounds = st.tuples(
    one_of((2, fault), (1, trouble)).map(lambda step: [step]),
    one_of((4, trouble.map(lambda step: [step])), (1, gap)),
    one_of((1, burst), (1, new_pod)).map(lambda step: [step]),
    time,
    st.lists(life, max_size=4),
    time,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
histories = st.tuples(
    st.lists(new_node, min_size=2, max_size=4),
    one_of((3, crowd), (1, st.just([]))),
    st.lists(rounds, min_size=3, max_size=8).map(itertools.chain.from_iterable),
    st.just([Step(Harness.settle)]),
    st.lists(life, min_size=2, max_size=8),
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Nodes, mostly full; then rounds of faults, pods and time; then a settled cluster, and life without faults."""


async def live(history: list[Step], **options: Any) -> list[str]:
    """Run a history and then to quiet; with several replicas, replace them at the end. Return the laws that were broken.

    Raises AssertionError if the cluster never gets quiet.
    """
    async with running_cluster(**options) as cluster:
        for step in history:
            done = step.act(cluster, *step.args)
            if inspect.isawaitable(done):
                await done
        await cluster.settle()
        broken = cluster.broken_laws()
        return broken if len(cluster.replicas.all) == 1 else [*broken, *(await cluster.start_over())]
