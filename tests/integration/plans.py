"""Judging preemptions at the moment they are decided, on the picture that the daemon has of its cluster then.

What a plan must be: victims of lower priority on the named node, so many that the pod fits without them, and not one more
than that. What plans for one pod must be together: once somebody has died for a place, another place is only chosen after
something else has changed: the node of either, who else is to come there, or a disruption budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scheduler.api.podinfo import PodInfo
from scheduler.daemon.app import Daemon


class Lodger(NamedTuple):
    """A pod on a node, by what a plan may depend on."""

    priority: int
    milli_cpu: int
    ports: frozenset[int]
    labels: frozenset[tuple[str, str]]
    started: str


class Site(NamedTuple):
    """A node as the daemon sees it for one preemptor."""

    milli_cpu: int
    allowed_pods: int
    labels: frozenset[tuple[str, str]]
    is_cordoned: bool
    is_left_out: bool
    lodgers: dict[str, Lodger]
    expected: dict[str, Lodger]
    """Pods of equal or higher priority that are nominated to it and not there yet."""

    def takes(self, pod: PodInfo, without: Iterable[str]) -> bool:
        """Whether it would take the pod once these have left."""
        out = set(without)
        there = [lodger for uid, lodger in {**self.lodgers, **self.expected}.items() if uid not in out]
        selector = dict(pod.pod.spec.node_selector)
        wanted = lodger(pod)
        return (
            not self.is_cordoned
            and selector.items() <= dict(self.labels).items()
            and len(there) < self.allowed_pods
            and sum(other.milli_cpu for other in there) + wanted.milli_cpu <= self.milli_cpu
            and not any(wanted.ports & other.ports for other in there)
        )


class Plan(NamedTuple):
    """A decision, and what it was made from."""

    node_name: str
    victims: tuple[str, ...]
    sites: dict[str, Site]
    budgets: tuple[Any, ...]


@dataclass
class Plans:
    """Of all daemons of a world. `has_died` says whether the server has let a pod's deletion begin."""

    has_died: Callable[[str], bool]
    broken: list[str] = field(default_factory=list)
    """Plans that were wrong when they were made."""
    _made: dict[str, list[Plan]] = field(default_factory=dict)
    _wanted_by: dict[str, set[str]] = field(default_factory=dict)
    """Victim → for whom it was to be evicted."""

    def __len__(self) -> int:
        return sum(map(len, self._made.values()))

    def judge(self, daemon: Daemon, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """To be called when the decision has been made and before anything has been done."""
        uids = tuple(victim.uid for victim in victims)
        plan = Plan(node_name, uids, sites(daemon, preemptor), budgets(daemon))
        says = f"for {preemptor.key} on {node_name} were to die {[victim.key for victim in victims]}"
        self.broken += [f"{says}: {wrong}" for wrong in _wrong(plan, preemptor)]
        earlier = self._made.setdefault(preemptor.uid, [])
        self.broken += [
            f"{says}: on {before.node_name} others had died for it, and nothing else has changed"
            for before in earlier
            if before.node_name != node_name and self._has_cost(before) and _still_holds(before, plan)
        ]
        earlier.append(plan)
        for uid in uids:
            self._wanted_by.setdefault(uid, set()).add(preemptor.uid)

    def _has_cost(self, plan: Plan) -> bool:
        """Whether somebody has died for it. Whom several pods wanted dead may have died for another."""
        return any(self.has_died(uid) and len(self._wanted_by[uid]) == 1 for uid in plan.victims)


def _wrong(plan: Plan, preemptor: PodInfo) -> list[str]:
    site = plan.sites.get(plan.node_name)
    if site is None:
        return ["the node is not there"]
    wrong = []
    if preemptor.pod.spec.preemption_policy == "Never":
        wrong.append("the pod may not preempt")
    if not site.lodgers.keys() >= set(plan.victims):
        wrong.append("they are not all on the node")
    elif any(site.lodgers[uid].priority >= preemptor.priority for uid in plan.victims):
        wrong.append("one of them is not less important")
    if not site.takes(preemptor, plan.victims):
        wrong.append("it does not fit without them either")
    wrong += [
        "one of them less would do"
        for uid in plan.victims
        if site.takes(preemptor, [other for other in plan.victims if other != uid])
    ]
    return wrong


def _still_holds(before: Plan, now: Plan) -> bool:
    """Whether the earlier plan could have been gone through with: all that changed is that its victims have left."""
    then, here = before.sites[before.node_name], now.sites.get(before.node_name)
    if here is None or here.is_left_out or before.budgets != now.budgets:
        return False
    left = {uid: lodger for uid, lodger in then.lodgers.items() if uid in here.lodgers or uid not in before.victims}
    other_then = before.sites.get(now.node_name)
    return here == then._replace(lodgers=left) and other_then == now.sites[now.node_name]


def sites(daemon: Daemon, preemptor: PodInfo) -> dict[str, Site]:
    """Every node that the daemon knows to be there."""
    decisions = daemon.decisions
    nodes, nominator = decisions.cluster.nodes, decisions.queue.nominator
    cpu = nodes.resources()["cpu"]
    left_out = decisions.evictions._preempting.left_out(preemptor.uid, daemon._clock.now())
    found = {}
    for name in nodes.known_names():
        slot = nodes.present_slot(name)
        if slot is None:
            continue
        shown = nodes.node(slot)
        assert shown is not None
        expected = {
            other.uid: lodger(other)
            for other in nominator.for_node(name)
            if other.uid != preemptor.uid
            and other.priority >= preemptor.priority
            and decisions.cluster.get(other.uid) is None
        }
        found[name] = Site(
            int(nodes.allocatable[cpu, slot]),
            int(nodes.allowed_pods[slot]),
            frozenset(shown.metadata.labels.items()),
            bool(nodes.unschedulable >> slot & 1),
            name in left_out,
            {uid: lodger(info) for uid, info in nodes.pods(slot).items()},
            expected,
        )
    return found


def budgets(daemon: Daemon) -> tuple[Any, ...]:
    """What protects whom, as the daemon knows it."""
    known = daemon.decisions.cluster.disruptions._budgets
    return tuple((key, budget.spec, budget.status.disruptions_allowed) for key, budget in sorted(known.items()))


def lodger(info: PodInfo) -> Lodger:
    spec = info.pod.spec
    ports = frozenset(port.host_port for container in spec.containers for port in container.ports if port.host_port)
    labels = frozenset(info.pod.metadata.labels.items())
    return Lodger(spec.priority or 0, info.requests["cpu"], ports, labels, info.pod.status.start_time or "")
