"""Histories of pods with devices: what may happen to them, as hypothesis draws it, and the run of one from empty to quiet."""

from __future__ import annotations

import inspect
import itertools
from typing import Final

import structlog.testing
from hypothesis import strategies as st

from tests.integration.deviceworld import NODES, DeviceWorld, with_devices
from tests.integration.histories import BINDINGS, HARMS, Step, a_step, life, one_of, picks, sizes, time, truth, zones
from tests.integration.judging import Object
from tests.integration.nodedevices import DRIVERS, GPU, MEMORY, PART, SLOW

PODS: Final = tuple(f"p{i}" for i in range(6))
FOREIGN: Final = ("f1", "f2", "f3")
RESOURCES: Final = (
    "",
    "pods",
    "resourceclaims",
    "resourceclaims",
    "resourceclaims",
    "resourceslices",
    "deviceclasses",
)
PROTECT: Final[Object] = {"verb": "patch", "resource": "resourceclaims", "subresource": ""}
ALLOCATE: Final[Object] = {"verb": "patch", "resource": "resourceclaims", "subresource": "status"}
WHERE: Final[tuple[Object, ...]] = (
    ALLOCATE,
    PROTECT,
    {"verb": "get", "resource": "resourceclaims"},
    BINDINGS,
    {},
    {"verb": "watch", "resource": "resourceclaims"},
    {"verb": "list"},
)
PERMISSIONS: Final = (
    (("patch", "resourceclaims"),),
    (("patch", "resourceclaims/status"),),
    (("patch", "resourceclaims/binding"),),
    (("get", "resourceclaims"),),
    (("list", "resourceclaims"), ("watch", "resourceclaims")),
    (("list", "resourceslices"), ("watch", "resourceslices")),
    (("create", "pods/binding"),),
)
_CAUSES: Final = frozenset({"gave up", "not done", "devices of somebody else are not given back"})
"""What the log says when something could not be given back."""

_exclusive = st.sampled_from(("gpu-1", "gpu-1", "gpu-2", "gpu-3", "net-1"))
_parts = st.sampled_from(("part-1", "part-2", "part-4"))
_rooms = st.sampled_from(("memory-2", "memory-3", "memory-5"))
_late = st.sampled_from(("slow-1", "slow-2"))
_shared = st.sampled_from(("gpu-1+", "net-1+", "memory-3+", "slow-1+", "part-2+"))
_want = one_of((4, _exclusive), (3, _parts), (3, _rooms), (2, _late), (3, _shared))
_wants = st.lists(_want, min_size=1, max_size=3)
_theirs = st.lists(st.sampled_from(("gpu-1", "gpu-1", "gpu-2", "net-1")), min_size=1, max_size=2)
nodes, cpus, values = st.sampled_from(NODES), st.sampled_from((100, 100, 500)), st.sampled_from("abc")
class_names = st.sampled_from(("gpu", "gpu", "slow", "part", "memory", "net"))

new_node = a_step(DeviceWorld.add_node, nodes, sizes, zones)
new_pod = a_step(DeviceWorld.add_pod_with, st.sampled_from(PODS), cpus, _wants)
new_set = a_step(DeviceWorld.add_set, st.sampled_from("st"), st.integers(2, 6), _wants)
foreign = a_step(DeviceWorld.add_pod_with, st.sampled_from(FOREIGN), st.just(0), _theirs, st.just(False))
device_life = one_of(
    (5, new_pod),
    (4, foreign),
    (5, a_step(DeviceWorld.delete_pod, picks, truth)),
    (2, a_step(DeviceWorld.finish_pod, picks)),
    (2, a_step(DeviceWorld.bind_by_others, picks)),
    (2, a_step(DeviceWorld.delete_claim, picks)),
    (3, a_step(DeviceWorld.add_missing_claims)),
    (3, a_step(DeviceWorld.label, picks, values)),
    (2, a_step(DeviceWorld.label_all, values)),
    (2, new_node),
    (2, a_step(DeviceWorld.remove_node, picks)),
    (3, a_step(DeviceWorld.republish, nodes, st.integers(2, 4))),
    (1, a_step(DeviceWorld.withdraw, st.sampled_from((GPU, SLOW, MEMORY, PART)), nodes)),
    (2, a_step(DeviceWorld.delete_class, class_names)),
    (3, a_step(DeviceWorld.add_class, class_names)),
    (1, life),
)
ills = one_of(
    (3, a_step(DeviceWorld.answer, st.sampled_from(("it is broken", None)), st.integers(1, 3))),
    (1, a_step(DeviceWorld.kill_driver, st.sampled_from(DRIVERS))),
    (2, a_step(DeviceWorld.stall, st.sampled_from(DRIVERS), st.integers(0, 3))),
    (4, a_step(DeviceWorld.revive_drivers)),
    (1, a_step(DeviceWorld.lose_names, st.integers(1, 2))),
)
fault = a_step(
    DeviceWorld.fault,
    one_of(*((weight, st.just(where)) for weight, where in zip((6, 3, 2, 3, 2, 1, 1), WHERE, strict=True))),
    st.sampled_from(HARMS),
    st.sampled_from((3, 1, 10, None)),
)
trouble = one_of(
    (4, a_step(DeviceWorld.end_faults)),
    (3, a_step(DeviceWorld.cut_watches, st.sampled_from(RESOURCES), truth)),
    (1, a_step(DeviceWorld.compact)),
    (3, a_step(DeviceWorld.hold_watches, st.sampled_from(RESOURCES))),
    (5, a_step(DeviceWorld.release_watches)),
    (2, a_step(DeviceWorld.forbid, st.sampled_from(PERMISSIONS))),
    (4, a_step(DeviceWorld.allow_all)),
    (1, a_step(DeviceWorld.restart_server)),
    (3, a_step(DeviceWorld.crash_daemon)),
    (1, a_step(DeviceWorld.kill_daemon)),
    (1, a_step(DeviceWorld.stop_daemon)),
    (2, a_step(DeviceWorld.change_profile)),
    (5, a_step(DeviceWorld.start_daemon)),
)
gap = st.tuples(
    a_step(DeviceWorld.hold_watches, st.sampled_from(RESOURCES)),
    st.lists(device_life, min_size=1, max_size=4),
    a_step(DeviceWorld.compact),
).map(lambda parts: [parts[0], *parts[1], parts[2]])
"""What happens in it is never told."""
crossed = st.tuples(
    st.just(Step(DeviceWorld.end_faults)),
    st.just(Step(DeviceWorld.start_daemon)),
    a_step(
        DeviceWorld.fault,
        st.sampled_from((ALLOCATE, PROTECT)),
        st.sampled_from(({"delay_s": 4}, {"delay_s": 4, "reset": "after"}, {"delay_s": 4, "reset": "before"})),
        st.just(3),
    ),
    one_of((1, new_set), (2, new_pod)),
    one_of((1, foreign), (1, new_pod)),
    a_step(DeviceWorld.seconds, st.sampled_from((1, 2, 3))),
    one_of(
        (3, a_step(DeviceWorld.label_all, values)),
        (3, a_step(DeviceWorld.crash_daemon)),
        (1, a_step(DeviceWorld.stop_daemon)),
        (2, a_step(DeviceWorld.change_profile)),
        (1, a_step(DeviceWorld.delete_claim, picks)),
        (2, a_step(DeviceWorld.delete_pod, picks, truth)),
        (2, foreign),
        (1, a_step(DeviceWorld.remove_node, picks)),
        (1, a_step(DeviceWorld.republish, nodes, st.integers(2, 4))),
    ),
    time,
).map(lambda parts: [*parts[:-1], *parts[-1]])
"""Something happens while writes are on their way."""
killed = st.tuples(
    st.just(Step(DeviceWorld.start_daemon)),
    one_of((1, new_set), (1, new_pod)),
    one_of(
        (2, a_step(DeviceWorld.turns, st.integers(1, 400))),
        (1, a_step(DeviceWorld.seconds, st.integers(1, 4))),
    ),
    one_of((2, a_step(DeviceWorld.crash_daemon)), (1, a_step(DeviceWorld.kill_daemon))),
    one_of((2, foreign), (1, device_life)),
    time,
    st.just(Step(DeviceWorld.start_daemon)),
).map(lambda parts: [*parts[:5], *parts[5], parts[6]])
"""The daemon dies at any of its awaits, and somebody else goes on."""
_rounds = st.tuples(
    one_of((2, fault), (2, ills), (1, trouble)).map(lambda step: [step]),
    one_of((4, one_of((3, trouble), (1, ills)).map(lambda step: [step])), (1, gap)),
    one_of((1, new_set), (2, new_pod)).map(lambda step: [step]),
    time,
    st.lists(device_life, max_size=4),
    time,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
rounds = one_of((3, _rounds), (2, crossed), (1, killed))
kindness = one_of(
    (3, a_step(DeviceWorld.delete_pod, picks, st.just(True))),
    (2, a_step(DeviceWorld.finish_pod, picks)),
    (2, a_step(DeviceWorld.add_missing_claims)),
    (2, a_step(DeviceWorld.republish, nodes, st.integers(2, 4))),
    (1, a_step(DeviceWorld.delete_claim, picks)),
    (1, new_node),
)
wakings = st.lists(
    st.tuples(kindness, kindness, st.just(Step(DeviceWorld.settle))).map(list), min_size=1, max_size=3
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Two things happen to a quiet world, and what they make possible must come about: nothing else wakes anybody."""
histories = st.tuples(
    st.lists(new_node, min_size=2, max_size=3),
    st.lists(rounds, min_size=3, max_size=7).map(itertools.chain.from_iterable),
    st.just([Step(DeviceWorld.settle)]),
    wakings,
    st.lists(device_life, min_size=2, max_size=8),
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Nodes; then, again and again, trouble, pods, time, life, time; at last peace, and life that goes on in it."""


async def live(history: list[Step], *, watch_list: bool) -> list[str]:
    """Run it, and then to quiet. The laws that were broken; AssertionError if the world never gets quiet."""
    with structlog.testing.capture_logs() as log:
        async with with_devices(watch_list=watch_list) as world:
            for step in history:
                done = step.act(world, *step.args)
                if inspect.isawaitable(done):
                    await done
            await world.settle()
            broken = world.broken_laws()
            if not world.was_killed and not _CAUSES & {line["event"] for line in log}:
                broken += world.reserved_by_nobody()
    # The self-check says which permission was taken away.
    errors = [line for line in log if line["log_level"] == "error" and line["event"] != "self-check"]
    return [*broken, *map(str, errors)]
