"""Laws about preemptions, checked when they are decided, on the state that the daemon has then.

A plan has victims of lower priority on the named node; the pod fits without them, and not without one less. Once a victim of a plan was deleted,
another node is only chosen for the pod after a change: of either node, of the pods nominated there, or of a disruption budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scheduler.api.podinfo import PodInfo
from scheduler.daemon.app import Daemon


class NodePod(NamedTuple):
    priority: int
    milli_cpu: int
    ports: frozenset[int]
    labels: frozenset[tuple[str, str]]
    started: str


class NodeState(NamedTuple):
    """A node in the cache of the daemon, for one preemptor."""

    milli_cpu: int
    allowed_pods: int
    labels: frozenset[tuple[str, str]]
    is_cordoned: bool
    is_left_out: bool
    pods: dict[str, NodePod]
    expected: dict[str, NodePod]
    """Pods of equal or higher priority that are nominated to it and not bound."""

    def takes(self, pod: PodInfo, without: Iterable[str]) -> bool:
        """Return whether the pod fits without these pods."""
        out = set(without)
        there = [each for uid, each in {**self.pods, **self.expected}.items() if uid not in out]
        selector = dict(pod.pod.spec.node_selector)
        wanted = node_pod(pod)
        return (
            not self.is_cordoned
            and selector.items() <= dict(self.labels).items()
            and len(there) < self.allowed_pods
            and sum(other.milli_cpu for other in there) + wanted.milli_cpu <= self.milli_cpu
            and not any(wanted.ports & other.ports for other in there)
        )


class Plan(NamedTuple):
    node_name: str
    victims: tuple[str, ...]
    nodes: dict[str, NodeState]
    budgets: tuple[Any, ...]


@dataclass
class Plans:
    """Plans of all daemons. `has_died` returns whether the server has begun to delete a pod."""

    has_died: Callable[[str], bool]
    broken: list[str] = field(default_factory=list)
    """Laws that a plan has broken."""
    _made: dict[str, list[Plan]] = field(default_factory=dict)
    _wanted_by: dict[str, set[str]] = field(default_factory=dict)
    """Victim → its preemptors."""

    def __len__(self) -> int:
        return sum(map(len, self._made.values()))

    def judge(self, daemon: Daemon, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Check a plan before the daemon acts on it."""
        uids = tuple(victim.uid for victim in victims)
        plan = Plan(node_name, uids, nodes(daemon, preemptor), budgets(daemon))
        says = f"for {preemptor.key} on {node_name} were to die {[victim.key for victim in victims]}"
        self.broken += [f"{says}: {wrong}" for wrong in _wrong(plan, preemptor)]
        earlier = self._made.setdefault(preemptor.uid, [])
        self.broken += [
            f"{says}: victims on {before.node_name} had died for it, and nothing else has changed"
            for before in earlier
            if before.node_name != node_name and self._has_cost(before) and _still_holds(before, plan)
        ]
        earlier.append(plan)
        for uid in uids:
            self._wanted_by.setdefault(uid, set()).add(preemptor.uid)

    def _has_cost(self, plan: Plan) -> bool:
        """Return whether a victim was deleted for it. A victim of several preemptors does not count."""
        return any(self.has_died(uid) and len(self._wanted_by[uid]) == 1 for uid in plan.victims)


def _wrong(plan: Plan, preemptor: PodInfo) -> list[str]:
    node = plan.nodes.get(plan.node_name)
    if node is None:
        return ["the node is not there"]
    wrong = []
    if preemptor.pod.spec.preemption_policy == "Never":
        wrong.append("the pod may not preempt")
    if not node.pods.keys() >= set(plan.victims):
        wrong.append("they are not all on the node")
    elif any(node.pods[uid].priority >= preemptor.priority for uid in plan.victims):
        wrong.append("one of them is not less important")
    if not node.takes(preemptor, plan.victims):
        wrong.append("it does not fit without them either")
    wrong += [
        "one of them less would do"
        for uid in plan.victims
        if node.takes(preemptor, [other for other in plan.victims if other != uid])
    ]
    return wrong


def _still_holds(before: Plan, now: Plan) -> bool:
    """Return whether the earlier plan could have been continued: only its victims have left."""
    then, here = before.nodes[before.node_name], now.nodes.get(before.node_name)
    if here is None or here.is_left_out or before.budgets != now.budgets:
        return False
    left = {uid: each for uid, each in then.pods.items() if uid in here.pods or uid not in before.victims}
    other_then = before.nodes.get(now.node_name)
    return here == then._replace(pods=left) and other_then == now.nodes[now.node_name]


def nodes(daemon: Daemon, preemptor: PodInfo) -> dict[str, NodeState]:
    scheduler = daemon.scheduler
    nodes, nominator = scheduler.cluster.nodes, scheduler.queue.nominator
    cpu = nodes.resources()["cpu"]
    left_out = scheduler.evictions._preempting.left_out(preemptor.uid, daemon._clock.now())
    found = {}
    for name in nodes.known_names():
        slot = nodes.present_slot(name)
        if slot is None:
            continue
        shown = nodes.node(slot)
        assert shown is not None
        expected = {
            other.uid: node_pod(other)
            for other in nominator.for_node(name)
            if other.uid != preemptor.uid
            and other.priority >= preemptor.priority
            and scheduler.cluster.get(other.uid) is None
        }
        found[name] = NodeState(
            int(nodes.allocatable[cpu, slot]),
            int(nodes.allowed_pods[slot]),
            frozenset(shown.metadata.labels.items()),
            bool(nodes.unschedulable >> slot & 1),
            name in left_out,
            {uid: node_pod(info) for uid, info in nodes.pods(slot).items()},
            expected,
        )
    return found


def budgets(daemon: Daemon) -> tuple[Any, ...]:
    known = daemon.scheduler.cluster.disruptions.budgets
    return tuple((key, budget.spec, budget.status.disruptions_allowed) for key, budget in sorted(known.items()))


def node_pod(info: PodInfo) -> NodePod:
    spec = info.pod.spec
    ports = frozenset(port.host_port for container in spec.containers for port in container.ports if port.host_port)
    labels = frozenset(info.pod.metadata.labels.items())
    return NodePod(spec.priority or 0, info.requests["cpu"], ports, labels, info.pod.status.start_time or "")
