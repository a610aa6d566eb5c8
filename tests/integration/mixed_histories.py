"""Histories of a cluster with volumes, devices, placement rules and two replicas, as hypothesis draws them.

There are three kinds of rounds: faults as in the other histories; changes while pods are assumed and their volumes and devices are written; and
fail-overs. Most pods have volumes and devices, so that each can fail while the other is held.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from hypothesis import strategies as st

from tests.integration.daemon_laws import Object
from tests.integration.device_steps import DEVICE_CLASSES, DRIVERS
from tests.integration.harness import Harness
from tests.integration.histories import BINDINGS, HARMS, Step, a_step, one_of, picks, sizes, time, truth, zones
from tests.integration.pod_steps import APART, NODES, SPREAD, SPREAD_HOSTS, TOGETHER, ZONED, Rules
from tests.integration.volume_steps import SPACE, Want

FOREIGN: Final = ("f1", "f2", "f3")
_VOLUMES: Final = ("persistentvolumes", "persistentvolumeclaims")
RESOURCES: Final = ("", "pods", "nodes", *_VOLUMES, "resourceclaims", "resourceslices", "csistoragecapacities")
LEASES: Final[Object] = {"resource": "leases"}
VOLUME_WRITES: Final[Object] = {"verb": "patch", "resource": "persistentvolumes"}
CLAIM_WRITES: Final[Object] = {"verb": "patch", "resource": "persistentvolumeclaims"}
PROTECT: Final[Object] = {"verb": "patch", "resource": "resourceclaims", "subresource": ""}
ALLOCATE: Final[Object] = {"resource": "resourceclaims", "subresource": "status"}
ON_THE_WAY: Final[tuple[Object, ...]] = (VOLUME_WRITES, CLAIM_WRITES, ALLOCATE, PROTECT, BINDINGS)
"""The writes for a pod after Reserve."""
WHERE: Final[tuple[Object, ...]] = (
    *ON_THE_WAY,
    LEASES,
    {},
    {"verb": "get"},
    {"verb": "list"},
    {"verb": "watch", "resource": "pods"},
    {"verb": "delete", "resource": "pods"},
)
_READ: Final = (*_VOLUMES, "csistoragecapacities", "resourceclaims", "resourceslices")
_WRITTEN: Final = (*_VOLUMES, "resourceclaims", "resourceclaims/status", "resourceclaims/binding")
PERMISSIONS: Final = (
    *((("list", resource), ("watch", resource)) for resource in _READ),
    *((("patch", resource),) for resource in _WRITTEN),
    (("get", "persistentvolumes"), ("get", "persistentvolumeclaims")),
    (("get", "resourceclaims"),),
    (("create", "pods/binding"),),
    (("create", "pods/binding"),),
    (("get", "leases"), ("update", "leases"), ("patch", "leases")),
)


def _each(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _volume(class_names: tuple[str, ...], sizes_gi: tuple[int, ...], *hows: str) -> st.SearchStrategy[Want]:
    return st.builds(Want, st.sampled_from(class_names), st.sampled_from(sizes_gi), st.sampled_from(hows or ("own",)))


_volumes = st.lists(
    one_of(
        (3, _volume(("local",), (1, 2, 3))),
        (4, _volume(("fast", "fast", "plain"), (1, 2, 3), "own", "own", "ephemeral")),
        (1, _volume(("now", "eager"), (1, 2))),
        (1, _volume(("local", "fast", "plain"), (2,), "shared")),
        (1, _volume(("fast", "plain"), (2,), "alone")),
    ),
    min_size=1,
    max_size=2,
)
_devices = st.lists(
    one_of(
        (4, _each("gpu-1", "gpu-1", "gpu-2", "gpu-3", "net-1")),
        (3, _each("slow-1", "slow-2")),
        (3, _each("part-1", "part-2", "part-4", "memory-3", "memory-5")),
        (1, _each("gpu-1+", "net-1+", "memory-3+", "slow-1+", "part-2+")),
    ),
    min_size=1,
    max_size=2,
)
_none: st.SearchStrategy[Any] = st.just([])
_asks = one_of(
    (5, st.tuples(_volumes, _devices)),
    (1, st.tuples(_volumes, _none)),
    (1, st.tuples(_none, _devices)),
    (2, st.tuples(_none, _none)),
)
_easy = st.tuples(
    st.lists(_volume(("fast", "plain", "local"), (1, 2)), min_size=1, max_size=2),
    st.lists(_each("gpu-1", "slow-1", "memory-3", "part-1"), min_size=1, max_size=2),
)
"""Most nodes can serve it, so such pods pass Reserve."""
_kinds = one_of((5, st.just("")), (3, _each(APART, TOGETHER, SPREAD, SPREAD_HOSTS)), (1, st.just(ZONED)))
_rules = st.tuples(
    _kinds,
    _each("red", "red", "blue"),
    _each(0, 0, 1, 3),
    _each(0, 0, 0, 1, 2),
    _each(0, 0, 250),
    truth,
    _each("", "", "", "mid", "high", "meek"),
).map(lambda of: Rules(*of))
nodes, cpus, values = _each(*NODES), _each(100, 100, 100, 500, 1000), _each(*"abc")

new_node = a_step(Harness.add_node, nodes, sizes, zones)
new_volume = a_step(Harness.add_volume, _each("local", "local", "now"), _each(1, 2, 3, 5), _each(*NODES, *SPACE))


def _pods(counts: tuple[int, ...], milli_cpus: Any, asks: Any, rules: st.SearchStrategy[Rules]) -> Any:
    return st.tuples(st.sampled_from(counts), milli_cpus, asks, rules).map(
        lambda made: Step(Harness.add_mixed, (made[0], made[1], *made[2], made[3]))
    )


new_pod, new_set = _pods((1, 1, 2), cpus, _asks, _rules), _pods((2, 3, 4), cpus, _asks, _rules)
_easy_rules = st.tuples(_each("", "", APART, SPREAD), _each("red", "blue")).map(lambda of: Rules(*of))
easy_set = _pods((2, 3, 4), _each(100, 1000, 1500), _easy, _easy_rules)
_theirs = one_of(
    (1, st.tuples(st.lists(_volume(("local", "fast"), (1, 2)), min_size=1, max_size=2), _none)),
    (1, st.tuples(_none, st.lists(_each("gpu-1", "gpu-2", "net-1"), min_size=1, max_size=2))),
)
foreign = st.tuples(_each(*FOREIGN), _theirs).map(lambda made: Step(Harness.add_foreign_pod_with, (made[0], *made[1])))
on_assumed = one_of((3, a_step(Harness.bind_assumed, picks, truth)), (2, a_step(Harness.delete_assumed, picks, truth)))
meddling = one_of((4, on_assumed), (1, a_step(Harness.bind_as_another, picks)), (2, foreign))
"""Writes of another scheduler, mostly to pods that ours has assumed."""
on_nodes = one_of(
    (3, a_step(Harness.taint_node, picks, _each("", "NoSchedule", "NoExecute", "PreferNoSchedule"))),
    (2, a_step(Harness.cordon_node, picks, truth)),
    (2, a_step(Harness.relabel_node, picks, zones)),
    (1, a_step(Harness.resize_node, picks, sizes)),
    (1, a_step(Harness.remove_node, picks)),
    (2, new_node),
)
resizing = one_of((2, a_step(Harness.grow_pod, picks, _each(100, 500, 1500))), (3, a_step(Harness.shrink_pod, picks)))
on_volumes = one_of(
    (3, new_volume),
    (2, a_step(Harness.delete_claim, picks)),
    (3, a_step(Harness.add_missing_claims, _each("local", "fast", "plain"))),
    (2, a_step(Harness.label_all, values)),
    (1, a_step(Harness.reserve_volume, picks, picks)),
    (1, a_step(Harness.replace_released)),
    (1, a_step(Harness.unbind, picks)),
    (1, a_step(Harness.select_as_another, picks, nodes)),
    (1, a_step(Harness.remove_selected_node, picks)),
    (1, a_step(Harness.drop_capacity, picks)),
    (1, a_step(Harness.raise_limit, picks)),
)
on_devices = one_of(
    (2, a_step(Harness.delete_device_claim, picks)),
    (2, a_step(Harness.add_missing_device_claims)),
    (2, a_step(Harness.label_device_claims, values)),
    (2, a_step(Harness.republish, nodes, st.integers(2, 4))),
    (1, a_step(Harness.withdraw, _each("gpu.example", "slow.example"), nodes)),
    (1, a_step(Harness.delete_class, _each(*DEVICE_CLASSES))),
    (2, a_step(Harness.add_class, _each(*DEVICE_CLASSES))),
)
on_pods = one_of(
    (4, a_step(Harness.delete_pod, picks, truth)),
    (2, a_step(Harness.finish_pod, picks)),
    (1, a_step(Harness.cling, picks, truth)),
    (1, a_step(Harness.protect, _each("red", "blue"), _each(None, 0, 1))),
    (1, a_step(Harness.delete_preemptor, picks)),
)
life = one_of(
    (3, new_pod),
    (2, meddling),
    (2, on_nodes),
    (2, resizing),
    (2, on_volumes),
    (2, on_devices),
    (3, on_pods),
    (1, a_step(Harness.storm, _each("heartbeats", "labels", "pods"), st.integers(2, 6))),
)
ills = one_of(
    (3, a_step(Harness.answer, _each("it is broken", None), st.integers(1, 3))),
    (1, a_step(Harness.kill_driver, _each(*DRIVERS))),
    (1, a_step(Harness.stall, _each(*DRIVERS), st.integers(0, 3))),
    (3, a_step(Harness.revive_drivers)),
    (3, a_step(Harness.fail_provisioning, st.integers(1, 4), truth)),
    (1, a_step(Harness.kill_provisioner, truth)),
    (2, a_step(Harness.revive_provisioner)),
    (1, a_step(Harness.lose_binds, st.integers(1, 2))),
    (1, a_step(Harness.lose_names, st.integers(1, 2))),
)
fault = a_step(Harness.fault, st.sampled_from(WHERE), st.sampled_from(HARMS), _each(3, 1, 10, None))
fail_over = one_of(
    (3, a_step(Harness.kill_daemon)),
    (2, a_step(Harness.stop_daemon)),
    (3, a_step(Harness.crash_daemon)),
    (2, a_step(Harness.take_lease)),
    (1, a_step(Harness.fault, st.just(LEASES), _each({"status": 503}, {"delay_s": 30}), _each(5, None))),
    (1, a_step(Harness.kill_all)),
    (1, a_step(Harness.change_profile)),
)
trouble = one_of(
    (4, a_step(Harness.end_faults)),
    (3, a_step(Harness.cut_watches, st.sampled_from(RESOURCES), truth)),
    (1, a_step(Harness.compact)),
    (2, a_step(Harness.hold_watches, st.sampled_from(RESOURCES))),
    (4, a_step(Harness.release_watches)),
    (2, a_step(Harness.forbid, st.sampled_from(PERMISSIONS))),
    (3, a_step(Harness.allow_all)),
    (1, a_step(Harness.restart_server)),
    (3, fail_over),
    (5, a_step(Harness.start_daemon)),
)
_interruption = one_of((6, meddling), (2, on_nodes), (2, on_volumes), (2, on_devices), (2, on_pods), (3, fail_over))
_calm = (
    Step(Harness.end_faults),
    Step(Harness.allow_all),
    Step(Harness.release_watches),
    Step(Harness.revive_drivers),
    Step(Harness.revive_provisioner),
    Step(Harness.start_daemon),
)
on_the_way = st.tuples(
    one_of((2, st.just([*_calm, Step(Harness.finish_all)])), (1, st.just([*_calm]))),
    st.lists(new_volume, max_size=2),
    st.just([Step(Harness.seconds, (5,))]),
    st.lists(
        a_step(
            Harness.fault,
            st.sampled_from((*ON_THE_WAY, BINDINGS, BINDINGS, BINDINGS)),
            _each({"delay_s": 4}, {"delay_s": 4}, {"delay_s": 4, "reset": "after"}, {"delay_s": 4, "reset": "before"}),
            _each(4, 8),
        ),
        min_size=1,
        max_size=3,
    ),
    one_of((1, ills.map(lambda step: [step])), (2, st.just([]))),
    one_of((3, easy_set), (1, new_set)).map(lambda step: [step]),
    a_step(Harness.seconds, _each(1, 1, 2, 3)).map(lambda step: [step]),
    one_of((3, on_assumed), (1, fail_over)).map(lambda step: [step]),
    st.lists(_interruption, min_size=1, max_size=3),
    time,
    st.lists(_interruption, max_size=2),
    time,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Changes while pods are assumed and their volumes and devices are written."""
_troubled = st.tuples(
    one_of((2, fault), (2, ills), (1, trouble)).map(lambda step: [step]),
    one_of((1, new_set), (1, new_pod)).map(lambda step: [step]),
    time,
    st.lists(life, max_size=4),
    trouble.map(lambda step: [step]),
    time,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
rounds = one_of((1, _troubled), (2, on_the_way))
kindness = one_of(
    (3, a_step(Harness.delete_pod, picks, st.just(True))),
    (2, a_step(Harness.finish_pod, picks)),
    (2, a_step(Harness.shrink_pod, picks)),
    (2, a_step(Harness.taint_node, picks, st.just(""))),
    (1, a_step(Harness.cordon_node, picks, st.just(False))),
    (2, a_step(Harness.relabel_node, picks, zones)),
    (2, new_volume),
    (1, a_step(Harness.add_missing_claims, _each("local", "fast", "plain"))),
    (1, a_step(Harness.add_missing_device_claims)),
    (1, a_step(Harness.republish, nodes, st.integers(2, 4))),
    (1, new_node),
)
wakings = st.lists(st.tuples(kindness, kindness, st.just(Step(Harness.settle))).map(list), min_size=1, max_size=2).map(
    lambda parts: list(itertools.chain.from_iterable(parts))
)
"""Two changes to a settled cluster: the pods that they help must be bound, and no other event wakes them."""
histories = st.tuples(
    st.tuples(*(a_step(Harness.add_node, st.just(name), _each(4000, 3000), zones) for name in NODES)),
    st.lists(new_volume, min_size=3, max_size=6),
    st.lists(rounds, min_size=2, max_size=5).map(itertools.chain.from_iterable),
    st.just([Step(Harness.settle)]),
    wakings,
    st.lists(life, min_size=2, max_size=6),
).map(lambda parts: list(itertools.chain.from_iterable(parts)))
"""Nodes and volumes; then rounds of faults; then a settled cluster, and life without faults."""
