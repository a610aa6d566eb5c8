"""PodTopologySpread, what wakes a pod that it refused: docs/spec/core.md §5.8, Events."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import Service
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import PodTopologySpreadArgs
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.framework.interface import EventHint, Hint
from scheduler.plugins.podtopologyspread import PodTopologySpread
from tests.unit.objects import cluster, handle
from tests.unit.plugins.ask import hinted
from tests.unit.plugins.spreading import BAR, HOST, LIST, hard, node, pod, soft

RELABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
TOLERATING = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_TOLERATION)
OWN_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

WAITING = pod("p", hard())
TWO = pod("p", hard(), hard(HOST, selector=BAR))
HONORING = pod("p", hard(nodeTaintsPolicy="Honor"))
TOLERATION: dict[str, Any] = {"tolerations": [{"key": "t", "operator": "Exists"}]}


def hint_of(
    event: ClusterEvent, waiting: PodInfo, old: object, new: object, args: PodTopologySpreadArgs = LIST
) -> Hint | None:
    seen = cluster()
    manifest = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    seen.workloads.set_service(from_manifest(Service, manifest))
    return hinted(PodTopologySpread(args, handle(seen)), event, waiting, old=old, new=new)


def other(labels: str = "foo", **more: Any) -> PodInfo:
    return pod("q", labels=labels, **{"on": "n1", **more})


@pytest.mark.parametrize(
    ("event", "waiting", "old", "new", "hint"),
    [
        pytest.param(ASSIGNED_POD_ADD, WAITING, None, other(on=""), Hint.SKIP, id="one without a place"),
        pytest.param(ASSIGNED_POD_ADD, TWO, None, other("bar"), Hint.QUEUE, id="one that any constraint counts"),
        pytest.param(
            ASSIGNED_POD_ADD,
            pod("p", hard(selector={})),
            None,
            other("x"),
            Hint.QUEUE,
            id="an empty selector selects all pods",
        ),
        pytest.param(
            ASSIGNED_POD_ADD,
            pod("p", hard(selector=None)),
            None,
            other(),
            Hint.SKIP,
            id="a nil selector selects no pod",
        ),
        pytest.param(ASSIGNED_POD_ADD, pod("p", soft(), hard(selector=BAR)), None, other(), Hint.SKIP, id="soft ones"),
        pytest.param(
            ASSIGNED_POD_ADD,
            pod("p", hard(matchLabelKeys=["foo"]), labels={"foo": "2"}),
            None,
            other(),
            Hint.SKIP,
            id="matchLabelKeys: another value",
        ),
        pytest.param(TOLERATING, HONORING, other(), other(**TOLERATION), None, id="the toleration of another pod"),
        pytest.param(ASSIGNED_POD_DELETE, WAITING, other(on=""), None, Hint.SKIP, id="one that never had a place went"),
        pytest.param(
            ASSIGNED_POD_DELETE,
            WAITING,
            other("bar", on="", status={"nominatedNodeName": "n1"}),
            None,
            Hint.SKIP,
            id="a nominated one that did not count went",
        ),
        pytest.param(RELABELLED, TWO, other("foo x"), other("foo y"), Hint.SKIP, id="nothing that any reads"),
        pytest.param(
            RELABELLED, WAITING, other("bar", ns="else"), other(ns="else"), Hint.SKIP, id="one of another namespace"
        ),
    ],
)
def test_other_pods(event: ClusterEvent, waiting: PodInfo, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue if the counts of a hard constraint change."""
    assert hint is hint_of(event, waiting, old, new)


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(OWN_LABEL, pod("q", labels="x"), pod("q"), Hint.SKIP, id="it was another waiting pod"),
        pytest.param(
            OWN_LABEL,
            pod("p", hard(matchLabelKeys=["rev"]), labels={"foo": "", "rev": "1"}),
            pod("p", hard(matchLabelKeys=["rev"]), labels={"foo": ""}),
            Hint.QUEUE,
            id="it lost a label that matchLabelKeys names",
        ),
    ],
)
def test_the_pod_itself(event: ClusterEvent, old: PodInfo, new: PodInfo, hint: Hint | None) -> None:
    """The waiting pod before and after the update."""
    waiting = new if new.uid == "p" else WAITING

    assert hint is hint_of(event, waiting, old, new)


BARE, ZONED, BOTH = node("n", zone="", host=""), node("n", zone="a", host=""), node("n", zone="a")
BY_ZONE_AND_NODE = pod("p", hard(), hard(HOST))


@pytest.mark.parametrize(
    ("event", "waiting", "old", "new", "hint"),
    [
        pytest.param(NODE_ADD, BY_ZONE_AND_NODE, None, ZONED, Hint.SKIP, id="one with some of the keys came"),
        pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, BARE, ZONED, Hint.SKIP, id="a node got one of the keys"),
        pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, ZONED, BOTH, Hint.QUEUE, id="a node got the last of the keys"),
        pytest.param(NODE_LABEL, WAITING, ZONED, node("n", "x", zone="a", host=""), Hint.SKIP, id="another label"),
        pytest.param(
            NODE_TAINT,
            WAITING,
            BARE,
            node("n", zone="", host="", taints=["t=:NoSchedule"]),
            Hint.SKIP,
            id="taints of a node without the key",
        ),
        pytest.param(
            NODE_LABEL,
            pod("p", hard(nodeAffinityPolicy="Ignore"), nodeSelector={"x": ""}),
            ZONED,
            node("n", "x", zone="a", host=""),
            Hint.SKIP,
            id="a label of the nodeSelector where that decides nothing",
        ),
        pytest.param(NODE_DELETE, BY_ZONE_AND_NODE, ZONED, None, Hint.SKIP, id="one with some of the keys went"),
        pytest.param(NODE_TAINT, WAITING, BOTH, BOTH, Hint.SKIP, id="no other taints"),
    ],
)
def test_nodes(event: ClusterEvent, waiting: PodInfo, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue if the domains of the pod's hard constraints may have changed."""
    assert hint is hint_of(event, waiting, old, new)


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
