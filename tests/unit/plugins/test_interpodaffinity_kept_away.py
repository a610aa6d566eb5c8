"""Pods on nodes that keep this one away: docs/spec/core.md §5.9, rows 82 and 177."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.decode import from_manifest
from scheduler.core.events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler.core.namespace import Namespace
from scheduler.core.podinfo import PodInfo, pod_info
from scheduler.core.verdicts import Code
from scheduler.framework.hints import Hint
from scheduler.framework.state import CycleState
from scheduler.plugins.interpodaffinity import InterPodAffinity
from tests.unit import objects
from tests.unit.objects import cluster, handle, node
from tests.unit.plugins.ask import hinted, refused

LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
RELABELLED = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
AWAY = (Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",))
NODES = (
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("bare"),
)


def info(name: str = "p", *, namespace: str = "default", labels: dict[str, str] | None = None, **more: Any) -> PodInfo:
    """A pod labelled app=a if nothing else is said."""
    pod = objects.pod(name, **more)
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace, labels=labels or {"app": "a"})
    return pod_info(msgspec.structs.replace(pod, metadata=metadata))


def term(key: str = "zone", *, app: str = "a", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def guard(*terms: dict[str, Any], on: str, name: str = "guard", namespace: str = "default") -> PodInfo:
    return info(name, namespace=namespace, on=on, affinity={"podAntiAffinity": {HARD: list(terms)}})


@pytest.mark.parametrize(
    ("guards", "pod", "out"),
    [
        pytest.param(
            [guard(term(namespaceSelector={"matchLabels": {"team": "t"}}), on="a1")],
            info(namespace="teams"),
            "a1 a2",
            id="177 a namespaceSelector looks at the labels of the incoming pod's namespace",
        ),
        pytest.param([guard(term(app="b"), term("host"), on="a1")], info(), "a1", id="any term of several keeps away"),
    ],
)
def test_kept_away(guards: list[PodInfo], pod: PodInfo, out: str) -> None:
    """A plain pod does not go where a pod that is there forbids it; eviction could help."""
    seen = cluster(*NODES, *guards)
    seen.namespaces.set(from_manifest(Namespace, {"metadata": {"name": "teams", "labels": {"team": "t"}}}))

    assert dict.fromkeys(out.split(), AWAY) == refused(InterPodAffinity(None, handle(seen)), seen, pod)


def test_only_candidates_are_refused() -> None:
    """And Filter is never skipped, for pods may come between two looks."""
    seen = cluster(*NODES)
    plugin, state = InterPodAffinity(None, handle(seen)), CycleState()

    plugin.pre_filter(state, info(), seen.nodes.present)
    seen.add_pod(guard(term(), on="a1"))
    assert list(plugin.filter(state, info(), seen.nodes.by_name(["a2", "b1"])).values()) == [seen.nodes.by_name(["a2"])]
    assert plugin.filter(state, info(), seen.nodes.by_name(["b1"])) == {}


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(ASSIGNED_POD_DELETE, guard(term(app="b"), on="a1"), None, Hint.SKIP, id="who minded others went"),
        pytest.param(LABELS, node(), node(labels={"rank": "1"}), Hint.SKIP, id="a label that is no topology key"),
        pytest.param(LABELS, node(labels={"rack": "1"}), node(), Hint.SKIP, id="a key of a term that means others"),
        pytest.param(RELABELLED, info("q"), info("q", labels={"app": "b"}), Hint.SKIP, id="another pod's labels"),
    ],
)
def test_hints(event: ClusterEvent, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue exactly when the event can have opened a node."""
    seen = cluster(*NODES, guard(term(), on="a1"), guard(term("rack", app="b"), on="b1", name="other"))
    plugin = InterPodAffinity(None, handle(seen))

    assert hint is hinted(plugin, event, info(), old=old, new=new)


def test_equal_pods_are_asked_once() -> None:
    """The shape of pod hints is what terms look at; of node hints, the topology keys that matter to the pod."""
    plugin = InterPodAffinity(None, handle(cluster()))
    shapes = {r.event.resource: r.shape for r in plugin.events_to_register() if r.shape is not None}
    pods = [
        info("a", labels={"app": "a", "tier": "x"}),
        info("b", labels={"tier": "x", "app": "a"}),
        info("c", namespace="else", labels={"app": "a", "tier": "x"}),
        info("d", affinity={"podAntiAffinity": {HARD: [term("rack")]}}),
    ]

    assert {resource: len({shape(pod) for pod in pods}) for resource, shape in shapes.items()} == {
        Resource.ASSIGNED_POD: 3,
        Resource.NODE: 2,
        Resource.NAMESPACE: 3,
    }
