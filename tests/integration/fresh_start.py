"""The state of a daemon that has run for long, compared with that of one that starts now on the same server.

Two kinds of values are compared: figures of the caches (nodes, capacity reservations, device use, the queue), and answers. Answers are the results of
the filters and scores of a profile say about waiting pods and about probe pods, so counts
are compared without a look at their representation.
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
from scheduler.framework.nominator import DERIVED
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError, Groups
from simulator.builders.core import PodBuilder, pod

Section = dict[str, Any]
"""Key → plain values that can be compared."""
_FLYING: Final = "flying"
"""The state of a reservation whose node is selected. Reservations in other states expire."""


def differences(daemon: Daemon, fresh: Daemon, probes: Iterable[PodBuilder] = ()) -> list[str]:
    """Return what the daemon holds and one that has just started does not, or differently. Both are idle."""
    given_up = {entry.claim.metadata.uid for entry in daemon.scheduler.cluster.volumes.reservations if entry.is_over}
    for each in (daemon, fresh):
        _let_time_pass(each.scheduler.cluster, given_up)
    probed = [pod_info(probe.uid(f"probe-{at}").typed()) for at, probe in enumerate(probes)]
    have, want = snapshot(daemon, probed), snapshot(fresh, probed)
    return [
        f"{section}, {key}: the daemon has {have[section].get(key)}, a fresh start computes {want[section].get(key)}"
        for section in want
        for key in sorted(have[section].keys() | want[section].keys())
        if have[section].get(key) != want[section].get(key)
    ]


def _let_time_pass(cluster: Cluster, given_up: AbstractSet[str]) -> None:
    """Expire reservations that expire with time, which a restart begins again.

    Of those with a selected node, only the ones that the other daemon has already given up, and those that no pod uses.
    """
    reservations = cluster.volumes.reservations
    for entry in reservations:
        is_asked_again = reservations.is_used(entry.claim.key) and not entry.is_gone
        if entry.state != _FLYING or entry.claim.metadata.uid in given_up or not is_asked_again:
            entry.until = reservations._due = -math.inf
    reservations.catch_up()


def snapshot(daemon: Daemon, probes: Iterable[PodInfo] = ()) -> dict[str, Section]:
    scheduler = daemon.scheduler
    waiting = sorted(scheduler.shared.pending, key=lambda info: info.key)
    return {
        "sizes": dict(scheduler.cluster.sizes()),
        "nodes": _nodes(scheduler.cluster),
        "volumes": _volumes(scheduler.cluster),
        "devices": _devices(scheduler.cluster),
        "queue": _queue(daemon),
        "gauges": _gauges(daemon),
        "answers": {
            f"{info.key} {profile}": answer
            for profile, runner in scheduler.cycle.runners.items()
            for info in (*waiting, *probes)
            for answer in [_answer(runner, scheduler.cluster, info)]
            if info.pod.spec.scheduler_name == profile
        },
    }


# -- figures --------------------------------------------------------------------------------------------------------------


def _nodes(cluster: Cluster) -> Section:
    nodes, shown = cluster.nodes, Section()
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


def _volumes(cluster: Cluster) -> Section:
    volumes = cluster.volumes
    return {
        "claims": {each.key: each.metadata.resource_version for each in volumes.claims},
        "volumes": {each.key: each.metadata.resource_version for each in volumes.volumes},
        "classes": sorted(volumes.classes),
        "assumed": (volumes.claims.assumed_keys(), volumes.volumes.assumed_keys()),
        "unselected claims": {namespace: sorted(keys) for namespace, keys in volumes.claims.unselected.items()},
        "under way": (volumes.holders, volumes.under_way, volumes.binding),
        "pools": {pool.key: pool.in_flight for pool in volumes.capacities},
        "reservations": {
            entry.claim.key: (entry.state, entry.node_name, entry.size, entry.pool and entry.pool.key, entry.is_over)
            for entry in volumes.reservations
        },
        "claims used together": volumes.reservations.together.snapshot(),
        "drift": volumes.reservations.drift_bytes(),
    }


def _devices(cluster: Cluster) -> Section:
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


def _queue(daemon: Daemon) -> Section:
    """Return pending pods, gated pods and nominations. The place of other pods in the queue depends on when they were tried.

    Nominations that are derived from claims depend on it, too: a pod that was not tried yet keeps its nomination.
    """
    queue, pending = daemon.scheduler.queue, daemon.scheduler.shared.pending
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


def _gauges(daemon: Daemon) -> Section:
    """Return gauges that are kept by adding and subtracting, or sampled: pending pods, and sizes of caches."""
    daemon.metrics.sample()
    found: Section = {}
    for line in daemon.metrics.render().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("scheduler_cache_size{"):
            found[name] = float(value)
        elif name.startswith("scheduler_pending_pods{"):
            found["pending pods"] = found.get("pending pods", 0.0) + float(value)
    return found


# -- answers --------------------------------------------------------------------------------------------------------------


def _answer(runner: FrameworkRunner, cluster: Cluster, info: PodInfo) -> Any:
    """Return refusals by node, or scores by node and plugin, without regard to nominated pods."""
    state, names = CycleState(), cluster.nodes
    try:
        with cluster.devices.use.still():
            pre = runner.pre_filter(state, info)
            if pre.rejection is not None:
                return {"all nodes": (pre.rejection.plugin, pre.rejection.message)}
            groups: Groups = {}
            feasible = finish(runner.passing(state, info, pre.nodes, groups, exact=True))
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
    """Yield pods with topology spread and (anti-)affinity over each of these node labels."""
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
