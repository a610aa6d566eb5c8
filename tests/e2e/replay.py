"""What two schedulers did to the same nodes, replayed write by write: which binding exceeded a node, and was it avoidable.

Only cpu is compared. The histories come from one watch, in the order of their resourceVersions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """One version of a pod. `is_over`: finished or deleted, so that it uses nothing."""

    version: int
    pod: str
    scheduler: str
    milli_cpu: int
    node: str = ""
    is_over: bool = False


@dataclass(slots=True)
class Replay:
    """Bindings that exceeded a node, by scheduler; and the avoidable ones of Kubestow."""

    by_us: list[str] = field(default_factory=list)
    by_others: list[str] = field(default_factory=list)
    avoidable: list[str] = field(default_factory=list)
    created: dict[str, int] = field(default_factory=dict)
    """Pod → the version at which it was there first."""
    bound: dict[str, int] = field(default_factory=dict)
    """Pod → the version of its binding."""


@dataclass(frozen=True, slots=True)
class _Held:
    milli_cpu: int
    since: int
    is_ours: bool


def replay(writes: Iterable[Write], *, cpu_of: Mapping[str, int], ours: str, seen: Mapping[str, int]) -> Replay:
    """`cpu_of` is each node's cpu, `seen` the version that our watch had shown when we bound the pod.

    A binding of ours is avoidable if the pod exceeded the node even without those other pods that our watch had not shown
    yet. Our own pods need no watch: the cache has them."""
    found = Replay()
    held: defaultdict[str, dict[str, _Held]] = defaultdict(dict)
    for write in writes:
        found.created.setdefault(write.pod, write.version)
        if write.is_over:
            held[write.node].pop(write.pod, None)
            continue
        if not write.node or write.pod in found.bound:
            continue
        found.bound[write.pod] = write.version
        is_ours = write.scheduler == ours
        before = held[write.node]
        excess = sum(pod.milli_cpu for pod in before.values()) + write.milli_cpu - cpu_of[write.node]
        if excess > 0:
            (found.by_us if is_ours else found.by_others).append(write.pod)
        if excess > 0 and is_ours:
            known = seen.get(write.pod, write.version)
            hidden = sum(p.milli_cpu for p in before.values() if not p.is_ours and p.since > known)
            if excess > hidden:
                found.avoidable.append(
                    f"{write.pod} on {write.node}: {excess} m too much, {hidden} m of it unseen at version {known}"
                )
        before[write.pod] = _Held(write.milli_cpu, write.version, is_ours)
    return found
