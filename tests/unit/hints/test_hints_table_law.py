"""A law of the queue and of all real plugins together: an event wakes the same pods as if each hint ran for each pod.

Random pods wait in the pool, refused by random plugins, some behind a gate; then the watch shows something. Each event
that follows is answered by the index, and once more by the hints of each pod (docs/spec/core.md §1.10).
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.podinfo import pod_info
from scheduler.config.args import DefaultConstraint
from scheduler.core.cluster_events import ClusterEvent
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.queueing_hints import QueueingStrategy
from scheduler.queueing.types import Place
from tests.examples import SLOW_SHARE, examples
from tests.unit.harness import SchedulerHarness, manifest, typed
from tests.unit.hints.hint_rows import (
    DEFAULT,
    Thing,
    apart,
    gone,
    harness_of,
    listens,
    near,
    needs,
    node,
    node_gone,
    pod,
    requesting,
    shown,
    spread,
    spreads_by_default,
    tolerates,
    withdrawn,
)
from tests.unit.plugins.ask import is_concerned

PROFILES = (DEFAULT, spreads_by_default(DefaultConstraint(1, "zone", "DoNotSchedule")))
PLUGINS = sorted(harness_of(DEFAULT).parts.profiles["kubestow"].hints)
GATES = ("SchedulingGates", "DefaultPreemption")
TEAM: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "t"}}}
GPU = "example.com/gpu"

LABELS: list[dict[str, str]] = [{}, {"app": "a"}, {"app": "b"}, {"app": "a", "rev": "1"}]
RULES: list[dict[str, Any]] = [
    {},
    {"nodeSelector": {"disk": "ssd"}},
    {"affinity": needs("zone", "In", "a")},
    {"affinity": needs("zone", "NotIn", "a")},
    {"affinity": near("a")},
    {"affinity": near("a", "host")},
    {"affinity": near("b", **TEAM)},
    {"affinity": apart("a")},
    {"affinity": apart("a", "b", key="host")},
    {"affinity": apart("b", **TEAM)},
    {"topologySpreadConstraints": spread("a")},
    {"topologySpreadConstraints": spread("a", nodeAffinityPolicy="Ignore"), "nodeSelector": {"disk": "ssd"}},
    {"topologySpreadConstraints": spread("b", "host", matchLabelKeys=["rev"])},
    {"topologySpreadConstraints": [*spread("a"), *spread("b", "host")], "nodeSelector": {"disk": "ssd"}},
]
CONTAINERS = [
    requesting(),
    requesting(cpu="1"),
    requesting(cpu="6"),
    requesting(memory="1Gi"),
    requesting(cpu="1", **{GPU: "2"}),
    listens(80),
    listens(81),
]
TOLERATIONS = [[], tolerates("x"), tolerates("x", "y"), [{"operator": "Exists"}]]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": True}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    return {
        **draw(st.sampled_from(RULES)),
        "labels": draw(st.sampled_from(LABELS)),
        "containers": draw(st.sampled_from(CONTAINERS)),
        "tolerations": draw(st.sampled_from(TOLERATIONS)),
        "owners": draw(st.sampled_from([[], [OWNER]])),
    }


waiting = st.tuples(
    specs(), st.sets(st.sampled_from(PLUGINS), min_size=1, max_size=4), st.sampled_from(["", "", "", *GATES])
)
nodes = st.builds(
    lambda name, labels, taints, room, cordoned, features: node(
        name, labels=labels, taints=taints, cordoned=cordoned, features=features, **room
    ),
    st.sampled_from(["n1", "n2", "n3"]),
    st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}, {"zone": "a", "host": "h"}, {"zone": "a", "disk": "ssd"}]),
    st.sampled_from([[], ["x:NoSchedule"], ["x:NoSchedule", "y:NoExecute"], ["x:PreferNoSchedule"]]),
    st.sampled_from([{}, {"cpu": "8"}, {"cpu": "500m"}, {GPU: "1"}, {GPU: "4"}, {"pods": "0"}]),
    st.booleans(),
    st.sampled_from([(), ("f",)]),
)
bound = st.builds(
    lambda name, on, spec, phase, namespace: pod(name, on=on, **dict(spec), phase=phase, namespace=namespace),
    st.sampled_from(["b0", "b1", "b2"]),
    st.sampled_from(["n1", "n1", "n2", "n3"]),
    specs(),
    st.sampled_from(["Running", "Running", "Running", "Succeeded"]),
    st.sampled_from(["default", "default", "default", "else"]),
)
others = st.one_of(
    st.builds(
        lambda name, labels: shown("Namespace", name, labels=labels),
        st.sampled_from(["default", "else"]),
        st.sampled_from([{}, {"team": "t"}, {"team": "u"}]),
    ),
    st.builds(
        lambda name, selector: shown("Service", name, selector=selector),
        st.sampled_from("st"),
        st.sampled_from([{}, {"app": "a"}, {"app": "b"}, {"rev": "1"}]),
    ),
    st.builds(lambda app: shown("ReplicaSet", "o", selector={"matchLabels": {"app": app}}), st.sampled_from("ab")),
    st.sampled_from([withdrawn("Service", "s"), withdrawn("ReplicaSet", "o")]),
)


def if_there(sched: SchedulerHarness, name: str) -> None:
    if name in sched.seen:
        gone(name)(sched)
    elif name in sched.nodes:
        node_gone(name)(sched)


leaving = st.builds(lambda name: lambda sched: if_there(sched, name), st.sampled_from(["b0", "b1", "b2", "n1", "n2"]))
things = st.one_of(nodes, nodes, bound, bound, others, leaving)


class Watched:
    """Pods that wait. Checks every event that goes to the queue, and wakes no pod."""

    def __init__(self, sched: SchedulerHarness) -> None:
        self.pool = sched.parts.queue._pool
        self.wakers = sched.parts.queue._wakers
        sched.parts.queue.move_all = self.move_all  # type: ignore[method-assign, assignment]

    def wait(self, uid: str, spec: dict[str, Any], plugins: set[str], gate: str) -> None:
        """A pod begins to wait."""
        spec = dict(spec)
        owners = spec.pop("owners")
        raw = manifest(uid, **spec, uid=uid)
        raw["metadata"]["ownerReferences"] = owners
        queued = QueuedPodInfo(pod_info(typed(raw)), 0.0)
        queued.unschedulable_plugins = plugins | ({gate} if gate else set())
        queued.gating_plugin, queued.place = gate, Place.GATED if gate else Place.WAITING
        self.pool.add(queued)

    def try_all(self) -> None:
        """All pods are tried again, in vain: they wait for what may change from now on."""
        for queued in list(self.pool):
            self.pool.remove(queued)
            self.pool.add(queued)

    def move_all(self, event: ClusterEvent, old: Any, new: Any) -> None:
        expected = {
            queued.uid: strategy
            for queued in self.pool
            if self.may(queued, event, old, new)
            and (strategy := self.wakers.evaluate(queued, event, old, new)) is not QueueingStrategy.SKIP
        }
        woken = {queued.uid: strategy for queued, strategy in self.pool.woken_by(event, old, new, concerns=None)}
        noted(f"{event.label}: {'some' if woken else 'none'}")

        assert expected == woken

    def may(self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any) -> bool:
        """The hints of a gated pod run only if the event concerns the gate."""
        return queued.place is Place.WAITING or any(
            waker.plugin == queued.gating_plugin and is_concerned(waker.registered, queued.info, old=old, new=new)
            for waker in self.wakers.of(event)
        )


START = (node("n1", zone="a"), node("n2", zone="b"), pod("b0", on="n1", labels={"app": "a"}))


@settings(max_examples=examples(150, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    profile=st.sampled_from(PROFILES),
    before=st.lists(things, max_size=6),
    pods=st.lists(waiting, min_size=3, max_size=12),
    then=st.lists(things, min_size=1, max_size=6),
)
def test_the_index_wakes_the_same_pods_as_the_hints(
    profile: Any, before: list[Thing], pods: list[tuple[dict[str, Any], set[str], str]], then: list[Thing]
) -> None:
    sched = harness_of(profile)
    for thing in (*START, *before):
        thing(sched)
    sched.parts.evictions._preempting.begin("w0", ["uid-b0"])
    watched = Watched(sched)
    for i, (spec, plugins, gate) in enumerate(pods):
        watched.wait(f"w{i}", spec, plugins, gate)

    for thing in then:
        thing(sched)
        watched.try_all()
