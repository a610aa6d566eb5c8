"""The law of the cache: whatever happened, columns and indexes are what a recount from scratch gives."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, allocatable, placed
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.cache.pods import pod_terms
from scheduler.core import nodeset
from tests.examples import examples
from tests.unit.cache.picture import named
from tests.unit.objects import container, info, node, ports

NAMES = ("n1", "n2", "n3", "n4")
NODES = [
    {},
    {"cpu": "8", "labels": {"zone": "a"}},
    {"labels": {"zone": "b", "rank": "1"}, "taints": ("a=b:NoSchedule",)},
    {"cordoned": True, "taints": ("a=b:NoSchedule", "c=d:PreferNoSchedule"), "example.com/x": "3"},
]
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
BY_ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
BY_HOST = {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {}}
PODS: list[dict[str, Any]] = [
    {},
    {"containers": [container(cpu="1", memory="1Gi")]},
    {"containers": [container(cpu="250m", **{"example.com/x": "1", "example.com/y": "2"})]},
    {"containers": ports("TCP/80", "TCP/80")},
    {"containers": ports("TCP/80/127.0.0.1", "UDP/53")},
    {"affinity": {"podAntiAffinity": {HARD: [BY_ZONE]}}},
    {"affinity": {"podAntiAffinity": {HARD: [BY_ZONE, BY_HOST, BY_HOST]}}},
]
UIDS = ("a", "b", "c", "d", "e")

steps = st.tuples(
    st.sampled_from(
        ["set_node", "remove_node", "add", "update", "remove", "assume", "forget", "break", "mend", "trial"]
    ),
    st.sampled_from(NAMES),
    st.sampled_from(UIDS),
    st.integers(0, len(PODS) - 1),
    st.integers(0, len(NODES) - 1),
)


def apply(seen: Cluster, step: tuple[str, str, str, int, int]) -> None:
    what, where, uid, pod_kind, node_kind = step
    here = info(uid, on=where, **PODS[pod_kind])
    match what:
        case "set_node":
            seen.set_node(node(where, **NODES[node_kind]))  # type: ignore[arg-type]
        case "remove_node":
            seen.remove_node(where)
        case "add":
            seen.add_pod(here)
        case "update":
            seen.update_pod(here)
        case "remove":
            seen.remove_pod(uid)
        case "assume":
            with contextlib.suppress(AssumptionError):
                seen.assume(here)
        case "forget":
            with contextlib.suppress(AssumptionError):
                seen.forget(here)
        case "break":
            seen.add_broken(Broken("Pod", Metadata(name=uid, uid=f"broken-{uid}"), "no", node_name=where))
        case "mend":
            seen.remove_broken(f"broken-{uid}")
        case "trial":
            run_trial(seen, here, where)


def run_trial(seen: Cluster, extra: PodInfo, where: str) -> None:
    leaving = [pod for pod in seen.pods() if pod.node_name == where]
    with seen.trial(add=[(extra, "n1"), (placed(extra, "n2"), "n2")], remove=leaving):
        slot = seen.nodes.slot(where)
        left = set(seen.nodes.pods(slot)) if slot is not None else set()
        assert left <= {extra.uid}


def recount(seen: Cluster) -> dict[str, Any]:
    """What the columns of every known node must hold, from the pods and node objects alone."""
    expected: dict[str, Any] = {}
    by_node: dict[str, list[PodInfo]] = defaultdict(list)
    for pod in seen.pods():
        by_node[pod.node_name].append(pod)
    objects = {o.metadata.name: o for slot in nodeset.each(seen.nodes.present) if (o := seen.nodes.node(slot))}
    for name in {*by_node, *objects}:
        requested: dict[str, int] = defaultdict(int)
        for pod in by_node[name]:
            for resource, amount in pod.requests.items():
                requested[resource] += amount
        amounts = allocatable(objects[name].status.allocatable) if name in objects else {}
        expected[name] = {
            "pods": {pod.uid for pod in by_node[name]},
            "count": len(by_node[name]),
            "non_zero": [
                sum(pod.non_zero_milli_cpu for pod in by_node[name]),
                sum(pod.non_zero_memory_bytes for pod in by_node[name]),
            ],
            "requested": {k: v for k, v in requested.items() if v},
            "allowed": amounts.pop("pods", 0),
            "allocatable": {k: v for k, v in amounts.items() if v},
            "ports": {port for pod in by_node[name] for port in pod.host_ports},
            "keeping_away": Counter(t.key for pod in by_node[name] for t in pod_terms(pod)),
        }
    return expected


def columns(seen: Cluster) -> dict[str, Any]:
    """The same, read from columns and indexes."""
    nodes = seen.nodes
    actual: dict[str, Any] = {}
    for name in NAMES:
        slot = nodes.slot(name)
        if slot is None:
            continue
        held = {
            port
            for pod in seen.pods()
            for port in pod.host_ports
            if nodes.ports.held.count(slot, (port.protocol, port.port, port.ip))
        }
        actual[name] = {
            "pods": set(nodes.pods(slot)),
            "count": int(nodes.pod_count[slot]),
            "non_zero": nodes.non_zero[:, slot].tolist(),
            "requested": {r: v for r in named(nodes, slot) if (v := nodes.view(slot).requested(r))},
            "allowed": int(nodes.allowed_pods[slot]),
            "allocatable": {r: v for r in nodes.resources() if (v := nodes.view(slot).allocatable(r))},
            "ports": held,
            "keeping_away": {
                group.term.key: count for group in nodes.pod_terms.groups.values() if (count := group.counts.get(slot))
            },
        }
    return actual


def each_slot(seen: Cluster) -> list[int]:
    return [slot for name in NAMES if (slot := seen.nodes.slot(name)) is not None]


def check_object_indexes(seen: Cluster) -> None:
    nodes = seen.nodes
    objects: dict[int, Node] = {slot: o for slot in nodeset.each(nodes.present) if (o := nodes.node(slot))}
    taints: dict[Any, int] = defaultdict(int)
    labels: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for slot, each in objects.items():
        if each.spec.taints:
            taints[each.spec.taints] |= 1 << slot
        for key, value in each.metadata.labels.items():
            labels[key][value] |= 1 << slot

    assert all(group.counts and {*group.counts} <= {*each_slot(seen)} for group in nodes.pod_terms.groups.values())
    assert taints == nodes.taints
    assert nodeset.of(s for s, o in objects.items() if o.spec.unschedulable) == nodes.unschedulable
    assert {k: dict(v) for k, v in labels.items()} == nodes.labels._values
    free = nodeset.of(range(nodes.capacity)) & ~nodeset.of(each_slot(seen))
    offered = {name for o in objects.values() for name in allocatable(o.status.allocatable)} - {"pods"}
    assert offered | {"cpu", "memory", "ephemeral-storage"} == nodes.resources().keys()
    assert not nodes.requested[:, nodeset.slots(free, nodes.capacity)].any()
    assert not nodes.allocatable[:, nodeset.slots(free, nodes.capacity)].any()
    assert sorted(nodes._free) == list(nodeset.each(free))
    assert {"nodes": len(objects), "pods": len(list(seen.pods())), "assumed_pods": len(list(seen.assumed()))} == (
        seen.sizes()
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=40))
def test_columns_equal_a_recount(history: list[tuple[str, str, str, int, int]]) -> None:
    """77, 78, 83, 85, 88: nodes that go while pods are there, stale deletions and resizes are among the steps."""
    seen = Cluster()
    for step in history:
        apply(seen, step)
        assert recount(seen) == columns(seen)
    check_object_indexes(seen)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(steps, max_size=25))
def test_the_log_names_every_change(history: list[tuple[str, str, str, int, int]]) -> None:
    seen = Cluster()
    for step in history:
        nodes = seen.nodes
        position, before = nodes.position, fingerprint(seen)
        apply(seen, step)
        after = fingerprint(seen)
        changed = {slot for slot in range(nodes.capacity) if before.get(slot) != after.get(slot)}
        assert changed <= set(nodes.changed_since(position) or ())


def fingerprint(seen: Cluster) -> dict[int, Any]:
    nodes = seen.nodes
    return {
        slot: (
            {
                r: (nodes.view(slot).requested(r), nodes.view(slot).allocatable(r))
                for r in sorted(named(nodes, slot))
                if nodes.view(slot).requested(r) or nodes.view(slot).allocatable(r)
            },
            nodes.non_zero[:, slot].tolist(),
            int(nodes.pod_count[slot]),
            int(nodes.allowed_pods[slot]),
        )
        for slot in range(nodes.capacity)
    }
