"""PodTopologySpread, what its laws do not draw: docs/spec/core.md §5.8."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import Service
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import Cluster
from scheduler.config.args import PodTopologySpreadArgs
from scheduler.config.types import Configuration
from scheduler.core.clock import SystemClock
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.core.cooperative import finish
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.runtime import Runner
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.profiles.build import build_profiles
from tests.unit import objects
from tests.unit.fake_plugins import Nominated
from tests.unit.objects import cluster, handle
from tests.unit.plugins.ask import Refusals, hinted, refused
from tests.unit.plugins.spreading import BAR, HOST, LIST, SKEWED, ZONE, hard, node, on, pod, soft

FOUR = (node("a1"), node("a2"), node("b1"), node("b2"))
BROKEN = {"matchExpressions": [{"key": "gpu", "operator": "In"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def filtered(incoming: PodInfo, seen: Cluster) -> Refusals:
    plugin = PodTopologySpread(LIST, handle(seen))
    assert plugin.pre_filter(CycleState(), incoming, seen.nodes.present) is None
    return refused(plugin, seen, incoming)


def test_a_broken_term_of_node_affinity_matches_no_node() -> None:
    """So there is no domain, and no node is refused."""
    terms = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [BROKEN]}}}

    assert {} == filtered(pod("p", hard(), affinity=terms), cluster(*FOUR, *on(a1=1, b2=2)))


def test_a_cordon_alone_is_no_taint() -> None:
    """`spec.unschedulable` without its taint leaves the zone a domain, as upstream."""
    cordoned = objects.node("c1", labels={ZONE: "c", HOST: "c1"}, cordoned=True)
    seen = cluster(*FOUR, cordoned, *on(a1=1, b1=1))

    assert dict.fromkeys(("a1", "a2", "b1", "b2"), SKEWED) == filtered(pod("p", hard(nodeTaintsPolicy="Honor")), seen)


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        pytest.param(None, {"Service", "ReplicationController", "ReplicaSet", "StatefulSet"}, id="system defaults"),
        pytest.param(LIST, set(), id="an empty list"),
    ],
)
def test_kinds_that_are_read(args: PodTopologySpreadArgs | None, kinds: set[str]) -> None:
    """Without default constraints Services and controllers are not watched."""
    assert kinds == set(PodTopologySpread(args, handle(cluster())).reads)


def test_the_check_before_bind_sees_pods_of_other_schedulers() -> None:
    """Just before Bind the pod itself is taken out, and another scheduler's pod may have filled the zone."""
    seen = cluster(*FOUR, *on(a1=1, b1=1))
    profile = build_profiles(Configuration(), handle(seen))["kubestow"]
    running = Runner(profile, seen, Nominated({}), clock=SystemClock(), metrics=Metrics(process=False))
    state = CycleState()
    assumed = placed(pod("p", hard()), "b2")
    running.pre_filter(state, assumed)
    slot = seen.nodes.slot("b2")
    assert slot is not None
    seen.assume(assumed)
    with seen.trial(remove=[assumed]):
        before = finish(running.check_node(assumed, slot, state))
    seen.add_pod(pod("foreign", on="b1"))
    with seen.trial(remove=[assumed]):
        after = finish(running.check_node(assumed, slot, state))

    assert before is None
    assert after is not None
    assert (after.code, after.reasons) == SKEWED


# -- events ------------------------------------------------------------------------------------------------------------

OWN_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

WAITING = pod("p", hard())
TWO = pod("p", hard(), hard(HOST, selector=BAR))


def other(labels: str = "foo", *, on: str = "n1") -> PodInfo:
    return pod("q", labels=labels, on=on)


BARE, ZONED, BOTH = node("n", zone="", host=""), node("n", zone="a", host=""), node("n", zone="a")
BY_ZONE_AND_NODE = pod("p", hard(), hard(HOST))


@pytest.mark.parametrize(
    ("event", "waiting", "old", "new", "hint"),
    [
        pytest.param(ASSIGNED_POD_ADD, WAITING, None, other(on=""), Hint.SKIP, id="a pod without a place"),
        pytest.param(ASSIGNED_POD_ADD, TWO, None, other("bar"), Hint.QUEUE, id="a pod that any constraint counts"),
        pytest.param(
            ASSIGNED_POD_ADD, pod("p", hard(selector={})), None, other("x"), Hint.QUEUE, id="an empty selector"
        ),
        pytest.param(
            ASSIGNED_POD_ADD,
            pod("p", hard(selector=None)),
            None,
            other(),
            Hint.SKIP,
            id="a nil selector selects no pod",
        ),
        pytest.param(
            ASSIGNED_POD_ADD, pod("p", soft(), hard(selector=BAR)), None, other(), Hint.SKIP, id="a soft constraint"
        ),
        pytest.param(
            ASSIGNED_POD_ADD,
            pod("p", hard(matchLabelKeys=["foo"]), labels={"foo": "2"}),
            None,
            other(),
            Hint.SKIP,
            id="another value of matchLabelKeys",
        ),
        pytest.param(ASSIGNED_POD_DELETE, WAITING, other(on=""), None, Hint.SKIP, id="a pod went that had no place"),
        pytest.param(OWN_LABEL, WAITING, pod("q", labels="x"), pod("q"), Hint.SKIP, id="another waiting pod's labels"),
        pytest.param(NODE_ADD, BY_ZONE_AND_NODE, None, ZONED, Hint.SKIP, id="a node with some of the keys came"),
        pytest.param(NODE_DELETE, BY_ZONE_AND_NODE, ZONED, None, Hint.SKIP, id="a node with some of the keys went"),
        pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, BARE, ZONED, Hint.SKIP, id="a node got one of the keys"),
        pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, ZONED, BOTH, Hint.QUEUE, id="a node got the last of the keys"),
        pytest.param(
            NODE_LABEL,
            pod("p", hard(nodeAffinityPolicy="Ignore"), nodeSelector={"x": ""}),
            ZONED,
            node("n", "x", zone="a", host=""),
            Hint.SKIP,
            id="a label of the nodeSelector, which decides nothing",
        ),
        pytest.param(NODE_TAINT, WAITING, BOTH, BOTH, Hint.SKIP, id="the same taints"),
    ],
)
def test_hints(event: ClusterEvent, waiting: PodInfo, old: Any, new: Any, hint: Hint) -> None:
    """Queue if the counts or the domains of a hard constraint change; more rows are in the table of hints."""
    seen = cluster()
    manifest = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    seen.workloads.set_service(from_manifest(Service, manifest))

    assert hint is hinted(PodTopologySpread(LIST, handle(seen)), event, waiting, old=old, new=new)


def registered(event: ClusterEvent) -> EventHint:
    plugin = PodTopologySpread(LIST, handle(cluster()))
    (found,) = [registration for registration in plugin.events_to_register() if registration.event.wants(event)]
    return found


def test_one_question_for_all_replicas() -> None:
    """Pods of one ReplicaSet, and of one StatefulSet, have one shape; those of another revision have not."""
    shape = registered(ASSIGNED_POD_ADD).shape
    assert shape is not None
    replicas = [
        pod(f"p{at}", hard(matchLabelKeys=["hash"]), labels={"foo": "", "hash": "1", "pod": f"p{at}"})
        for at in range(3)
    ]
    newer = pod("n", hard(matchLabelKeys=["hash"]), labels={"foo": "", "hash": "2", "pod": "n"})

    assert 1 == len({shape(replica) for replica in replicas})
    assert shape(newer) != shape(replicas[0])


def test_pods_of_all_namespaces_wait_for_one_node() -> None:
    """About nodes only the keys matter."""
    shape = registered(NODE_ADD).shape
    assert shape is not None

    assert shape(pod("p", hard(), ns="x")) == shape(pod("q", hard(skew=9, selector=BAR), soft(HOST), ns="y"))
    assert shape(pod("p", hard())) != shape(pod("p", hard(HOST)))
