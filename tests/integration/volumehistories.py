"""Histories of pods with volumes: what may happen to them, as hypothesis draws it, and the run of one from empty to quiet."""

from __future__ import annotations

import inspect
import itertools
from typing import Final

from hypothesis import strategies as st

from tests.integration.histories import BINDINGS, HARMS, Step, a_step, life, one_of, picks, sizes, time, truth, zones
from tests.integration.judging import Object
from tests.integration.volumeworld import RACKS, SPACE, VolumeWorld, Want, with_volumes

NODES: Final = tuple(RACKS)
PODS: Final = tuple(f"p{i}" for i in range(6))
FOREIGN: Final = ("f1", "f2")
RESOURCES: Final = (
    "",
    "pods",
    "nodes",
    "persistentvolumes",
    "persistentvolumes",
    "persistentvolumeclaims",
    "persistentvolumeclaims",
    "csistoragecapacities",
)
CLAIM_WRITES: Final[Object] = {"verb": "patch", "resource": "persistentvolumeclaims"}
VOLUME_WRITES: Final[Object] = {"verb": "patch", "resource": "persistentvolumes"}
WHERE: Final[tuple[Object, ...]] = (
    CLAIM_WRITES,
    VOLUME_WRITES,
    {"verb": "get", "resource": "persistentvolumes"},
    {"verb": "get", "resource": "persistentvolumeclaims"},
    BINDINGS,
    {},
    {"verb": "watch", "resource": "persistentvolumeclaims"},
    {"verb": "watch", "resource": "persistentvolumes"},
    {"verb": "list"},
)
PERMISSIONS: Final = (
    (("patch", "persistentvolumes"),),
    (("patch", "persistentvolumeclaims"),),
    (("get", "persistentvolumes"), ("get", "persistentvolumeclaims")),
    (("list", "persistentvolumes"), ("watch", "persistentvolumes")),
    (("list", "persistentvolumeclaims"), ("watch", "persistentvolumeclaims")),
    (("list", "csistoragecapacities"), ("watch", "csistoragecapacities")),
    (("create", "pods/binding"),),
)


def _want(
    class_names: tuple[str, ...], sizes: tuple[int, ...], hows: tuple[str, ...] = ("own",)
) -> st.SearchStrategy[Want]:
    return st.builds(Want, st.sampled_from(class_names), st.sampled_from(sizes), st.sampled_from(hows))


_local = _want(("local",), (1, 2, 3, 5))
_made = _want(("fast", "fast", "plain"), (1, 2, 3), ("own", "own", "ephemeral"))
_at_once = _want(("now", "eager"), (1, 2))
_shared = _want(("local", "fast", "plain", "now"), (2,), ("shared",))
_alone = _want(("fast", "plain"), (2,), ("alone",))
"""Volumes by hand are for any number of pods of a node, and so never for a claim that is for one alone."""
_wants = st.lists(one_of((4, _local), (4, _made), (1, _at_once), (2, _shared), (1, _alone)), min_size=1, max_size=3)
_theirs = st.lists(one_of((3, _local), (2, _made)), min_size=1, max_size=2)
nodes, cpus = st.sampled_from(NODES), st.sampled_from((100, 100, 500))
kinds = st.sampled_from(("persistentvolumes", "persistentvolumeclaims"))
values = st.sampled_from("abc")

new_node = a_step(VolumeWorld.add_node, nodes, sizes, zones)
new_volume = a_step(
    VolumeWorld.add_volume,
    st.sampled_from(("local", "local", "now")),
    st.sampled_from((1, 2, 3, 5)),
    st.sampled_from((*NODES, *SPACE)),
)
new_pod = a_step(VolumeWorld.add_pod_with, st.sampled_from(PODS), cpus, _wants)
new_set = a_step(VolumeWorld.add_set, st.sampled_from("st"), st.integers(2, 5), _wants)
volume_life = one_of(
    (4, new_volume),
    (4, new_pod),
    (2, a_step(VolumeWorld.add_pod_with, st.sampled_from(FOREIGN), st.just(100), _theirs, st.just(False))),
    (4, a_step(VolumeWorld.delete_pod, picks, truth)),
    (3, a_step(VolumeWorld.delete_claim, picks)),
    (3, a_step(VolumeWorld.add_missing_claims, st.sampled_from(("local", "fast", "plain")))),
    (2, a_step(VolumeWorld.replace_released)),
    (3, a_step(VolumeWorld.label, kinds, picks, values)),
    (2, a_step(VolumeWorld.label_all, values)),
    (2, a_step(VolumeWorld.reserve_volume, picks, picks)),
    (2, a_step(VolumeWorld.select_by_others, picks, nodes)),
    (2, a_step(VolumeWorld.remove_selected_node, picks)),
    (2, new_node),
    (2, a_step(VolumeWorld.unbind, picks)),
    (1, a_step(VolumeWorld.raise_limit, picks)),
    (2, a_step(VolumeWorld.drop_capacity, picks)),
    (2, life),
)
ills = one_of(
    (2, a_step(VolumeWorld.lose_binds, st.integers(1, 3))),
    (2, a_step(VolumeWorld.resync)),
    (3, a_step(VolumeWorld.fail_provisioning, st.integers(1, 4), truth)),
    (2, a_step(VolumeWorld.kill_provisioner, truth)),
    (3, a_step(VolumeWorld.revive_provisioner)),
)
fault = a_step(
    VolumeWorld.fault,
    one_of(*((weight, st.just(where)) for weight, where in zip((5, 5, 2, 2, 3, 2, 1, 1, 1), WHERE, strict=True))),
    st.sampled_from(HARMS),
    st.sampled_from((3, 1, 10, None)),
)
trouble = one_of(
    (4, a_step(VolumeWorld.end_faults)),
    (3, a_step(VolumeWorld.cut_watches, st.sampled_from(RESOURCES), truth)),
    (1, a_step(VolumeWorld.compact)),
    (2, a_step(VolumeWorld.hold_watches, st.sampled_from(RESOURCES))),
    (4, a_step(VolumeWorld.release_watches)),
    (2, a_step(VolumeWorld.forbid, st.sampled_from(PERMISSIONS))),
    (4, a_step(VolumeWorld.allow_all)),
    (1, a_step(VolumeWorld.restart_server)),
    (3, a_step(VolumeWorld.crash_daemon)),
    (1, a_step(VolumeWorld.kill_daemon)),
    (1, a_step(VolumeWorld.stop_daemon)),
    (2, a_step(VolumeWorld.change_profile)),
    (5, a_step(VolumeWorld.start_daemon)),
)
gap = st.tuples(
    a_step(VolumeWorld.hold_watches, st.sampled_from(RESOURCES)),
    st.lists(volume_life, min_size=1, max_size=4),
    a_step(VolumeWorld.compact),
).map(lambda parts: [parts[0], *parts[1], parts[2]])
"""What happens in it is never told."""
crossed = st.tuples(
    st.just(Step(VolumeWorld.end_faults)),
    st.just(Step(VolumeWorld.start_daemon)),
    a_step(VolumeWorld.fault, st.sampled_from((VOLUME_WRITES, CLAIM_WRITES)), st.just({"delay_s": 6}), st.just(3)),
    one_of((1, new_set), (2, new_pod)),
    a_step(VolumeWorld.seconds, st.just(3)),
    one_of(
        (3, a_step(VolumeWorld.label_all, values)),
        (2, a_step(VolumeWorld.crash_daemon)),
        (1, a_step(VolumeWorld.stop_daemon)),
        (2, a_step(VolumeWorld.change_profile)),
        (1, a_step(VolumeWorld.delete_claim, picks)),
        (1, a_step(VolumeWorld.reserve_volume, picks, picks)),
        (1, a_step(VolumeWorld.delete_pod, picks, truth)),
        (1, a_step(VolumeWorld.remove_node, picks)),
    ),
    time,
).map(lambda parts: [*parts[:-1], *parts[-1]])
"""Something happens while writes are on their way."""
_rounds = st.tuples(
    one_of((2, fault), (2, ills), (1, trouble)).map(lambda step: [step]),
    one_of((4, one_of((3, trouble), (1, ills)).map(lambda step: [step])), (1, gap)),
    one_of((1, new_set), (2, new_pod)).map(lambda step: [step]),
    time,
    st.lists(volume_life, max_size=4),
    time,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
rounds = one_of((2, _rounds), (1, crossed))
kindness = one_of(
    (4, new_volume),
    (3, a_step(VolumeWorld.add_missing_claims, st.sampled_from(("local", "fast", "plain")))),
    (1, a_step(VolumeWorld.replace_released)),
    (3, a_step(VolumeWorld.delete_pod, picks, st.just(True))),
    (2, a_step(VolumeWorld.finish_pod, picks)),
    (1, a_step(VolumeWorld.raise_limit, picks)),
    (1, a_step(VolumeWorld.reserve_volume, picks, picks)),
    (1, a_step(VolumeWorld.delete_claim, picks)),
)
wakings = st.lists(
    st.tuples(kindness, kindness, st.just(Step(VolumeWorld.settle))).map(list),
    min_size=1,
    max_size=3,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Two things happen to a quiet world, and what they make possible must come about: nothing else wakes anybody."""
histories = st.tuples(
    st.lists(new_node, min_size=2, max_size=3),
    st.lists(new_volume, min_size=3, max_size=8),
    st.lists(rounds, min_size=3, max_size=7).map(itertools.chain.from_iterable),
    st.just([Step(VolumeWorld.settle)]),
    wakings,
    st.lists(volume_life, min_size=2, max_size=8),
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Nodes and volumes; then, again and again, trouble, pods, time, life, time; at last peace, and life that goes on in it."""


async def live(history: list[Step], *, watch_list: bool) -> list[str]:
    """Run it, and then to quiet. The laws that were broken; AssertionError if the world never gets quiet."""
    async with with_volumes(watch_list=watch_list) as world:
        for step in history:
            done = step.act(world, *step.args)
            if inspect.isawaitable(done):
                await done
        await world.settle()
        return world.broken_laws()
