"""The law of topics (`hints.Topics`) for every plugin that has some, and examples of pods that they skip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import NodeAffinityArgs, NodeResourcesFitArgs
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint
from scheduler.plugins.nodeaffinity import NodeAffinityPlugin
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.tainttoleration import TaintToleration
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import cluster, handle, info, node, ports
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


def expression(key: str, operator: str, *some: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(some)}]}


def pin(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def required(*some: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(some)}}}}


def concerns(plugin: Any, event: ClusterEvent, pod: PodInfo, *, old: object, new: object) -> bool:
    wanting = [registration for registration in with_topics(plugin) if registration.event.wants(event)]
    assert wanting
    return any(is_concerned(registration, pod, old=old, new=new) for registration in wanting)


PLAIN, SSD = node(), node(labels={"disk": "ssd"})
ON_SSD: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}}


@pytest.mark.parametrize(
    ("spec", "old", "new", "concerned"),
    [
        pytest.param(ON_SSD, PLAIN, node(labels={"disk": "hdd"}), False, id="another value"),
        pytest.param(required(expression("disk", "DoesNotExist")), SSD, PLAIN, True, id="an unwanted label went"),
        pytest.param(required(pin("n1")), PLAIN, SSD, False, id="a name is no label"),
        pytest.param(ON_SSD, None, PLAIN, False, id="a node came without the wanted label"),
        pytest.param(required(pin("n2")), None, PLAIN, False, id="another than the named node came"),
        pytest.param(
            required(expression("disk", "In", "ssd"), expression("zone", "NotIn", "b")),
            None,
            PLAIN,
            True,
            id="one of two terms lets it come bare",
        ),
    ],
)
def test_node_affinity(spec: dict[str, Any], old: Node | None, new: Node, concerned: bool) -> None:
    """A pod is concerned if a label became one that it selects, or if the new node can match."""
    event = NODE_ADD if old is None else LABELS

    assert concerned == concerns(affinity(), event, info(**spec), old=old, new=new)


def test_node_affinity_that_the_profile_adds() -> None:
    """It belongs to every pod of the profile."""
    plugin = affinity({REQUIRED: {"nodeSelectorTerms": [expression("team", "In", "a")]}})

    assert concerns(plugin, LABELS, info(**ON_SSD), old=SSD, new=node(labels={"disk": "ssd", "team": "a"}))
    assert not concerns(plugin, LABELS, info(**ON_SSD), old=SSD, new=node(labels={"disk": "ssd", "zone": "a"}))


HARD, SOFT = node(taints=("a=b:NoSchedule",)), node(taints=("a=b:PreferNoSchedule",))
TWICE = node(taints=("c=:NoExecute", "a=b:NoSchedule"))
TOLERANT, ANYWHERE = [{"key": "a", "operator": "Exists"}], [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("tolerations", "old", "new", "concerned"),
    [
        pytest.param([], SOFT, PLAIN, False, id="a soft taint went"),
        pytest.param([], None, HARD, False, id="a node came with a hard taint"),
        pytest.param(TOLERANT, None, TWICE, False, id="a node came with another taint besides"),
        pytest.param([], TWICE, HARD, False, id="one hard taint of two went"),
    ],
)
def test_taints(tolerations: list[dict[str, str]], old: Node | None, new: Node, concerned: bool) -> None:
    """No pod is concerned while nodes only get taints, as in an outage."""
    plugin, waiting = TaintToleration(None, handle(cluster())), info(tolerations=tolerations)

    assert concerned == concerns(plugin, NODE_ADD if old is None else TAINTS, waiting, old=old, new=new)


def sized(name: str = "p", **requests: str) -> PodInfo:
    return info(name, on="n1", containers=[{"name": "c", "resources": {"requests": requests}}])


@pytest.mark.parametrize(
    ("event", "old", "new", "concerned"),
    [
        pytest.param(ALLOCATABLE, node(memory="1Gi"), node(memory="2Gi"), False, id="another resource grew"),
        pytest.param(ALLOCATABLE, node(memory="1024Mi"), node(memory="1Gi"), False, id="spelt otherwise"),
        pytest.param(
            ALLOCATABLE, node(cpu="100m"), node(cpu="200m"), False, id="the wanted resource grew to too little"
        ),
        pytest.param(NODE_ADD, None, node(cpu="500m"), False, id="a node came that is much too small"),
        pytest.param(SCALE_DOWN, sized("q", memory="2"), sized("q"), False, id="a pod gave back something else"),
    ],
)
def test_node_resources(event: ClusterEvent, old: Any, new: Any, concerned: bool) -> None:
    """A pod that requests only cpu is concerned by more cpu, or by more pods."""
    plugin = NodeResourcesFit(None, handle(cluster()))

    assert concerned == concerns(plugin, event, sized(cpu="1"), old=old, new=new)


GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("wanted", "came", "concerned"),
    [
        pytest.param({GPU: "1", "cpu": "8"}, {}, False, id="the rare resource is not there"),
        pytest.param({GPU: "4"}, {GPU: "1"}, False, id="there is far too little of it"),
        pytest.param(
            {"cpu": "64", "memory": "4Gi"}, {}, False, id="more cpu than memory is wanted, and it is too much"
        ),
        pytest.param({"other.example/ignored": "4"}, {}, True, id="what is ignored need not be there"),
    ],
)
def test_a_node_is_offered_to_pods_of_its_size(wanted: dict[str, str], came: dict[str, str], concerned: bool) -> None:
    """By the one resource that most nodes have too little of."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("other.example/ignored",)), handle(cluster()))

    assert concerned == concerns(plugin, NODE_ADD, sized(**wanted), old=None, new=node(**came))


@pytest.mark.parametrize(
    ("gone", "concerned"),
    [
        pytest.param(("TCP/80",), True, id="the wanted port"),
        pytest.param(("TCP/81", "TCP/80/10.0.0.1"), True, id="the wanted port of one address"),
        pytest.param(("UDP/80", "TCP/81"), False, id="another protocol, another port"),
        pytest.param((), False, id="no ports"),
    ],
)
def test_node_ports(gone: tuple[str, ...], concerned: bool) -> None:
    """Most pods have no host ports: their end is nothing to those that wait for one."""
    plugin, waiting = NodePorts(None, handle(cluster())), info(containers=ports("TCP/80"))
    left = info("q", on="n1", containers=ports(*gone))

    assert concerned == concerns(plugin, ASSIGNED_POD_DELETE, waiting, old=left, new=None)
