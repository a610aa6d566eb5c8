"""Histories: what may happen to a cluster, as hypothesis draws it, and the run of one from empty to quiet."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, settings, strategies as st

from tests.integration.judging import Object
from tests.integration.world import SHARED, World, inhabited

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
    """One thing that happens: a method of `World` and what it is called with."""

    act: Callable[..., Coroutine[Any, Any, None] | None]
    args: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"{self.act.__name__}{self.args}"


LONG: Final = int(os.environ.get("KUBESTOW_HISTORIES", "0"))
"""So many drawn anew, and shrunk: `KUBESTOW_HISTORIES=2000 pytest tests/integration/test_fault_histories.py`."""
_BUSY: Final = (HealthCheck.too_slow, HealthCheck.data_too_large)
_SHORT: Final = (Phase.explicit, Phase.reuse, Phase.generate)


def so_many(few: int) -> settings:
    """Few histories, always the same."""
    return settings(max_examples=few, derandomize=True, database=None, phases=_SHORT, suppress_health_check=_BUSY)


def so_many_anew(few: int) -> settings:
    """Few histories, others in each run; as many as the environment says if it does.

    They follow from the seed of the run, which a failure tells (tests/seeds.py). One that failed is kept and tried first.
    Only long runs shrink, as a history takes a second.
    """
    phases = (*_SHORT, Phase.shrink) if LONG else _SHORT
    return settings(max_examples=LONG or few, phases=phases, suppress_health_check=_BUSY)


def a_step(act: Callable[..., Coroutine[Any, Any, None] | None], *args: st.SearchStrategy[Any]) -> Any:
    return st.builds(Step, st.just(act), st.tuples(*args))


def one_of(*weighted: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of them, by weight: `st.one_of` takes every alternative for equally likely, however often it is named."""
    return st.sampled_from([each for weight, each in weighted for _ in range(weight)]).flatmap(lambda each: each)


nodes, zones, truth = (st.sampled_from(values) for values in (NODES, ZONES, (False, True)))
sizes, requests = st.sampled_from((4000, 2000, 3000)), st.sampled_from((500, 100, 1000, 3000))
resources, picks = st.sampled_from(("", "pods", "nodes")), st.integers(0, 15)
classes, teams = st.sampled_from(CLASS_NAMES), st.sampled_from(TEAMS)

new_node = a_step(World.add_node, nodes, sizes, zones)
new_pod = a_step(
    World.add_pod,
    st.sampled_from(PODS),
    requests,
    st.sampled_from(("", "", *ZONES)),
    st.sampled_from((0, 0, 0, 8080)),
    st.sampled_from((False, False, False, True)),
    classes,
    teams,
)
burst = a_step(World.add_burst, st.integers(3, 10), requests, classes, teams)
crowd = st.tuples(
    a_step(World.add_burst, st.integers(5, 12), st.sampled_from((1000, 500)), st.sampled_from(("", "", "mid")), teams),
    a_step(World.seconds, st.just(3)),
).map(list)
"""Whoever comes after it finds the nodes full."""
life = one_of(
    (2, new_node),
    (3, new_pod),
    (2, a_step(World.add_foreign_pod, st.sampled_from(FOREIGN), requests, st.sampled_from(("", "mid", "high")))),
    (2, a_step(World.promise, picks, st.sampled_from(("", *NODES)))),
    (3, a_step(World.bind_by_others, picks)),
    (5, a_step(World.delete_pod, picks, truth)),
    (3, a_step(World.replace_pod, picks, requests)),
    (3, a_step(World.finish_pod, picks)),
    (1, a_step(World.open_gate, picks)),
    (1, a_step(World.remove_node, picks)),
    (2, a_step(World.remove_promised_node, picks)),
    (2, a_step(World.delete_preemptor, picks)),
    (2, a_step(World.cling, picks, truth)),
    (3, a_step(World.protect, st.sampled_from(("red", "blue")), st.sampled_from((None, 0, 1, 5)))),
    (2, a_step(World.cordon_node, picks, truth)),
    (2, a_step(World.relabel_node, picks, zones)),
    (2, a_step(World.resize_node, picks, sizes)),
    (2, a_step(World.storm, st.sampled_from(("heartbeats", "labels", "pods")), st.integers(5, 20))),
)
fault = a_step(
    World.fault,
    one_of(*((weight, st.just(where)) for weight, where in zip((6, 3, 2, 3, 1, 2, 1, 1, 6), WHERE, strict=True))),
    st.sampled_from(HARMS),
    st.sampled_from((3, 1, 10, None)),
)
trouble = one_of(
    (4, a_step(World.end_faults)),
    (3, a_step(World.cut_watches, resources, truth)),
    (2, a_step(World.compact)),
    (2, a_step(World.hold_watches, resources)),
    (4, a_step(World.release_watches)),
    (2, a_step(World.forbid, st.sampled_from(PERMISSIONS))),
    (4, a_step(World.allow_all)),
    (1, a_step(World.restart_server)),
    (2, a_step(World.crash_daemon)),
    (1, a_step(World.kill_daemon)),
    (1, a_step(World.stop_daemon)),
    (2, a_step(World.change_profile)),
    (6, a_step(World.start_daemon)),
)
time = one_of(
    (1, a_step(World.turns, st.sampled_from((1, 3, 10, 50)))), (1, a_step(World.seconds, st.sampled_from((1, 3, 8))))
).map(lambda step: [step])
gap = st.tuples(
    a_step(World.hold_watches, resources), st.lists(life, min_size=1, max_size=4), a_step(World.compact)
).map(lambda parts: [parts[0], *parts[1], parts[2]])
"""What happens in it is never told: the watches were silent, then cut, then history was gone."""
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
    st.just([Step(World.settle)]),
    st.lists(life, min_size=2, max_size=8),
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Some nodes, most often full; then, again and again, trouble, pods, time, life, time; at last peace, and life that goes on in it."""


async def live(history: list[Step], *, watch_list: bool) -> list[str]:
    """Run it, and then to quiet. The laws that were broken; AssertionError if the world never gets quiet."""
    async with inhabited(watch_list=watch_list, kubelets_grace_s=2) as world:
        for step in history:
            done = step.act(world, *step.args)
            if inspect.isawaitable(done):
                await done
        await world.settle()
        return world.broken_laws()
