"""What a daemon that has run for long holds, against what one that starts now computes from the same server.

Two kinds of things are compared: figures of the caches (nodes, the ledger of capacity, device use, the queue), and answers.
Answers are what the filters and scores of a profile say of the pods that wait and of some pods that are only asked about:
so counts that are kept by adding and subtracting are compared whatever they look like inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Set as AbstractSet
from typing import Any, Final

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.cooperative import finish
from scheduler.daemon.app import Daemon
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import Runner
from scheduler.framework.status import AttemptError, Groups
from scheduler.queueing.nominator import DERIVED
from simulator.builders.core import PodBuilder, pod

Picture = dict[str, Any]
"""Section → what it shows: plain values that can be compared."""
_FLYING: Final = "flying"
"""A state of ledger entries: a node is selected. Entries in other states end with time."""


def differences(daemon: Daemon, fresh: Daemon, probes: Iterable[PodBuilder] = ()) -> list[str]:
    """What the daemon holds otherwise than one that has just started; both have nothing to do."""
    given_up = {entry.claim.metadata.uid for entry in daemon.decisions.cluster.volumes.reservations if entry.is_over}
    for each in (daemon, fresh):
        _let_time_pass(each.decisions.cluster, given_up)
    asked = [pod_info(probe.uid(f"probe-{at}").typed()) for at, probe in enumerate(probes)]
    have, want = picture(daemon, asked), picture(fresh, asked)
    return [
        f"{section}, {key}: the daemon has {have[section].get(key)}, a fresh start computes {want[section].get(key)}"
        for section in want
        for key in sorted(have[section].keys() | want[section].keys())
        if have[section].get(key) != want[section].get(key)
    ]


def _let_time_pass(cluster: Cluster, given_up: AbstractSet[str]) -> None:
    """As if all that settles or is held in the ledger had been there for too long: such time starts again with a daemon.

    So do claims that wait for their volume on a selected node only if that has taken too long for the other daemon already.
    """
    reservations = cluster.volumes.reservations
    for entry in reservations:
        if entry.state != _FLYING or entry.claim.metadata.uid in given_up:
            entry.until = reservations._due = -math.inf
    reservations.catch_up()


def picture(daemon: Daemon, probes: Iterable[PodInfo] = ()) -> dict[str, Picture]:
    """All sections of one daemon."""
    decisions = daemon.decisions
    waiting = sorted(decisions.shared.pending, key=lambda info: info.key)
    return {
        "sizes": dict(decisions.cluster.sizes()),
        "nodes": _nodes(decisions.cluster),
        "volumes": _volumes(decisions.cluster),
        "devices": _devices(decisions.cluster),
        "queue": _queue(daemon),
        "gauges": _gauges(daemon),
        "answers": {
            f"{info.key} {profile}": answer
            for profile, runner in decisions.loop._cycle._runners.items()
            for info in (*waiting, *probes)
            for answer in [_answer(runner, decisions.cluster, info)]
            if info.pod.spec.scheduler_name == profile
        },
    }


# -- figures --------------------------------------------------------------------------------------------------------------


def _nodes(cluster: Cluster) -> Picture:
    nodes, shown = cluster.nodes, Picture()
    for name in nodes.known_names():
        slot = nodes.slot(name)
        assert slot is not None
        known = nodes.node(slot)
        there = nodes.pods(slot)
        resources = {*nodes.resources(), *(resource for info in there.values() for resource in info.requests)}
        shown[name] = {
            "labels": known and dict(known.metadata.labels),
            "taints": known and known.spec.taints,
            "cordoned": bool(nodes.unschedulable >> slot & 1),
            "allocatable": {r: int(nodes.allocatable[row, slot]) for r, row in nodes.resources().items()},
            "requested": {resource: nodes.requested_at(slot, resource) for resource in resources},
            "as scored": [int(amount) for amount in nodes.non_zero[:, slot]],
            "pods": {uid: (info.key, info.requests, info.priority) for uid, info in there.items()},
            "counts": (int(nodes.pod_count[slot]), int(nodes.allowed_pods[slot])),
        }
    return shown


def _volumes(cluster: Cluster) -> Picture:
    volumes = cluster.volumes
    return {
        "claims": {each.key: each.metadata.resource_version for each in volumes.claims},
        "volumes": {each.key: each.metadata.resource_version for each in volumes.volumes},
        "classes": sorted(volumes.classes),
        "assumed": (volumes.claims.assumed_keys(), volumes.volumes.assumed_keys()),
        "unselected claims": {namespace: sorted(keys) for namespace, keys in volumes.claims.unselected.items()},
        "under way": (volumes.holders, volumes.under_way, volumes.binding),
        "pools": {pool.key: pool.in_flight for pool in volumes.capacities},
        "ledger": {
            entry.claim.key: (entry.state, entry.node_name, entry.size, entry.pool and entry.pool.key, entry.is_over)
            for entry in volumes.reservations
        },
        "claims used together": volumes.reservations._plans,
        "drift": volumes.reservations.drift_bytes(),
    }


def _devices(cluster: Cluster) -> Picture:
    devices, use = cluster.devices, cluster.devices.use
    return {
        "claims": {claim.key: (claim.uid, claim.metadata.resource_version) for claim in devices.claims},
        "in flight": sorted(claim.key for claim in devices.claims.in_flight()),
        "slices": {each.key: each.metadata.resource_version for each in devices.slices()},
        "held": {uid: use._held[uid] for uid in sorted(use._held)},
        "holders": use._holders,
        "shares": {device: sorted((s.claim_uid, s.share_id) for s in each) for device, each in use._shares.items()},
        "consumed": use._consumed,
        "counts": use.counts(),
    }


def _queue(daemon: Daemon) -> Picture:
    """Where a pod waits depends on when it was tried; that it waits does not, nor do gates of its own.

    A nomination that is derived from claims depends on that, too: a pod that was not tried yet holds its place.
    """
    queue, pending = daemon.decisions.queue, daemon.decisions.shared.pending
    gated = {info.key for info in pending if info.pod.spec.scheduling_gates}
    return {
        "entries": sorted(entry.key for entry in queue.entries()),
        "gated": sorted(entry.key for entry in queue.entries() if entry.key in gated and entry.place == "gated"),
        "pending": sorted(info.key for info in pending),
        "nominations": sorted(
            (name, info.key) for name, info in queue.nominator.pods() if queue.nominator.source(info) != DERIVED
        ),
        "count": sum(queue.counts().values()),
    }


def _gauges(daemon: Daemon) -> Picture:
    """Sums that are kept by adding and subtracting, or sampled: pods in the queue, and what the caches hold."""
    daemon.metrics.sample()
    found: Picture = {}
    for line in daemon.metrics.render().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("scheduler_cache_size{"):
            found[name] = float(value)
        elif name.startswith("scheduler_pending_pods{"):
            found["pending pods"] = found.get("pending pods", 0.0) + float(value)
    return found


# -- answers --------------------------------------------------------------------------------------------------------------


def _answer(runner: Runner, cluster: Cluster, info: PodInfo) -> Any:
    """What the profile says of the pod now, nominated pods aside: refusals by node, or scores by node and plugin."""
    state, names = CycleState(), cluster.nodes
    try:
        with cluster.devices.use.still():
            pre = runner.pre_filter(state, info)
            if pre.rejection is not None:
                return {"all nodes": (pre.rejection.plugin, pre.rejection.message)}
            groups: Groups = {}
            feasible = finish(runner._passing(state, info, pre.nodes, groups, exact=True))
            answer: dict[str, Any] = {
                names.name(slot): (no.plugin, no.code.value, no.message)
                for no, refused in groups.items()
                for slot in nodeset.each(refused)
            }
            if feasible:
                runner.pre_score(state, info, feasible)
                scored = finish(runner.score(state, info, feasible))
                for slot in nodeset.each(feasible):
                    answer[names.name(slot)] = {plugin: int(column[slot]) for plugin, column in scored.parts.items()}
            return answer
    except AttemptError as error:
        return error.message


def probes_of(keys: Iterable[str], labels: dict[str, str]) -> Iterator[PodBuilder]:
    """Pods that ask for what is counted: topology spread and (anti-)affinity over each of these node labels."""
    selector = {"matchLabels": labels}
    for key in keys:
        term = {"labelSelector": selector, "topologyKey": key}
        base = pod("probe").labels(labels)
        for skew, when in ((1, "DoNotSchedule"), (2, "DoNotSchedule"), (1, "ScheduleAnyway")):
            constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
            yield base.set({"spec": {"topologySpreadConstraints": [constraint]}})
        for kind in ("podAffinity", "podAntiAffinity"):
            wish = {"weight": 10, "podAffinityTerm": term}
            yield base.affinity({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
            yield base.affinity({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}})
