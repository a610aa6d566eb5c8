"""The law of topics (`hints.Topics`) for every plugin that has some, and examples of pods that they skip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import NodeAffinityArgs, NodeResourcesFitArgs
from scheduler.core.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint
from scheduler.plugins.nodeaffinity import NodeAffinityPlugin
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.tainttoleration import TaintToleration
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import cluster, container, handle, info, node, ports
from tests.unit.plugins.ask import is_concerned

LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
ALLOCATABLE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
SCALE_DOWN = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_EVENTS = {NODE_ADD, LABELS, TAINTS, ALLOCATABLE}

# -- random pods and nodes -----------------------------------------------------------------------------

keys = st.sampled_from(["zone", "disk", "metadata.name"])
values = st.sampled_from(["1", "2", "n1"])
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "example.com/gpu", "other.example/gpu"]), st.sampled_from("0123")
)
requirements = st.one_of(
    st.builds(
        lambda key, operator, some: {"key": key, "operator": operator, "values": some},
        keys,
        st.sampled_from(["In", "NotIn", "Gt", "Lt"]),
        st.lists(values, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator}, keys, st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
fields = st.builds(
    lambda operator, value: {"key": "metadata.name", "operator": operator, "values": [value]},
    st.sampled_from(["In", "NotIn"]),
    values,
)
terms = st.builds(
    lambda some, pins: {"matchExpressions": some, "matchFields": pins},
    st.lists(requirements, max_size=2),
    st.lists(fields, max_size=1),
)
selectors = st.builds(lambda some: {"nodeSelectorTerms": some}, st.lists(terms, max_size=2))
taints = st.builds(
    lambda key, value, effect: f"{key}={value}:{effect}",
    st.sampled_from("ab"),
    st.sampled_from("xy"),
    st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
)
tolerations = st.builds(
    lambda key, operator, value, effect: {"key": key, "operator": operator, "value": value, "effect": effect},
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "Equal", "Exists", "Gt"]),
    st.sampled_from("xy"),
    st.sampled_from(["", "NoSchedule", "NoExecute"]),
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    return node(
        "n1", labels=draw(st.dictionaries(keys, values)), taints=draw(st.lists(taints, max_size=2)), **draw(amounts)
    )


@st.composite
def pods(draw: st.DrawFn, name: str = "p", on: str = "") -> PodInfo:
    wanted = draw(
        st.lists(st.sampled_from(["TCP/1", "UDP/1", "TCP/2", "TCP/1/10.0.0.1", "TCP/1/10.0.0.2"]), max_size=2)
    )
    containers = ports(*wanted)
    containers[0]["resources"] = {"requests": draw(amounts)}
    required = draw(st.none() | selectors)
    return info(
        name,
        containers=containers,
        nodeSelector=draw(st.dictionaries(keys, values, max_size=1)),
        affinity={"nodeAffinity": {REQUIRED: required}} if required is not None else {},
        tolerations=draw(st.lists(tolerations, max_size=2)),
        on=on,
    )


def affinity(added: dict[str, Any] | None = None) -> NodeAffinityPlugin:
    return NodeAffinityPlugin(NodeAffinityArgs(added_affinity=added), handle(cluster()))


plugins = st.one_of(
    st.just(affinity()),
    selectors.map(lambda added: affinity({REQUIRED: added})),
    st.just(NodePorts(None, handle(cluster()))),
    st.just(NodeResourcesFit(None, handle(cluster()))),
    st.just(NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("example.com/gpu",)), handle(cluster()))),
    st.just(TaintToleration(None, handle(cluster()))),
)

# -- the law -----------------------------------------------------------------------------------------------------------


def with_topics(plugin: Any) -> Iterable[EventHint]:
    return [registration for registration in plugin.events_to_register() if registration.topics is not None]


def is_about_nodes(registration: EventHint) -> bool:
    return any(registration.event.wants(event) for event in NODE_EVENTS)


@settings(max_examples=examples(600, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plugin=plugins,
    waiting=pods(),
    node_change=st.tuples(st.none() | nodes(), nodes()),
    pod_change=st.tuples(pods(name="q", on="n1"), st.none() | pods(name="q", on="n1")),
)
def test_a_yes_is_about_a_topic_of_the_pod(
    plugin: Any, waiting: PodInfo, node_change: tuple[Any, Any], pod_change: tuple[Any, Any]
) -> None:
    """Whatever waits and whatever happens: no event that helps is kept from the pod."""
    for registration in with_topics(plugin):
        old, new = node_change if is_about_nodes(registration) else pod_change
        assert registration.hint is not None
        answer = registration.hint(waiting, old, new)
        concerned = is_concerned(registration, waiting, old=old, new=new)
        noted(f"{plugin.name} {registration.event.label}: {answer.value}, {'' if concerned else 'not '}concerned")

        assert concerned or answer is Hint.SKIP


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plugin=plugins, one=pods(name="one"), other=pods(name="other"))
def test_pods_of_one_shape_have_the_same_topics(plugin: Any, one: PodInfo, other: PodInfo) -> None:
    """The first pod of a shape answers for all that come after it."""
    for registration in with_topics(plugin):
        assert registration.shape is not None
        assert registration.topics is not None
        if registration.shape(one) == registration.shape(other):
            assert set(registration.topics.of_pod(one) or ()) == set(registration.topics.of_pod(other) or ())


@given(plugin=plugins, seen=nodes(), pod=pods(name="q", on="n1"))
def test_an_update_without_a_change_has_no_topics(plugin: Any, seen: Node, pod: PodInfo) -> None:
    """Topics of an update are about what differs."""
    for registration in with_topics(plugin):
        assert registration.topics is not None
        if is_about_nodes(registration):
            assert [] == list(registration.topics.of_event(seen, seen) or ())
        elif registration.event.wants(SCALE_DOWN):
            assert [] == list(registration.topics.of_event(pod, pod) or ())


# -- examples ------------------------------------------------------------------------------------------------------

FIT = NodeResourcesFit(None, handle(cluster()))
ADDED = affinity({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "Exists"}]}]}})
PLAIN, SSD = node(), node(labels={"disk": "ssd"})
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
PINNED = info(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [PIN]}}})


def sized(**requests: str) -> PodInfo:
    return info(containers=[container(**requests)])


@pytest.mark.parametrize(("plugin", "pod", "event", "old", "new"), [
    pytest.param(affinity(), PINNED, LABELS, PLAIN, SSD, id="a node gets a label, and the pod selects by name"),
    pytest.param(ADDED, info(nodeSelector={"disk": "ssd"}), LABELS, SSD, node(labels={"disk": "ssd", "zone": "a"}),
        id="a node gets a label that neither the pod nor the profile selects"),
    pytest.param(TaintToleration(None, handle(cluster())), info(), TAINTS, node(taints=("a=b:PreferNoSchedule",)),
        PLAIN, id="a soft taint goes"),
    pytest.param(FIT, sized(memory="1"), ALLOCATABLE, node(memory="1024Mi"), node(memory="1Gi"),
        id="an amount is respelled"),
    pytest.param(FIT, sized(cpu="64", memory="4Gi"), NODE_ADD, None, node(),
        id="a node is too small in what it wants most of"),
])  # fmt: skip
def test_an_event_that_does_not_concern_a_pod(
    plugin: Any, pod: PodInfo, event: ClusterEvent, old: Any, new: Any
) -> None:
    """More such events are in the table of how many questions an event costs."""
    wanting = [registration for registration in with_topics(plugin) if registration.event.wants(event)]

    assert wanting
    assert not any(is_concerned(registration, pod, old=old, new=new) for registration in wanting)
