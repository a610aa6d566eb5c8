"""NodeAffinity: docs/spec/core.md §5.4."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.config.args import NodeAffinityArgs
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, AttemptError, Code, Narrow, Rejection
from scheduler.plugins.nodeaffinity import NodeAffinityPlugin
from tests.unit.objects import cluster, handle, info, node
from tests.unit.plugins.ask import hinted, refused, scored

RELABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_NO = (Code.UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
ADDED_NO = (Code.UNRESOLVABLE, ("node(s) didn't match scheduler-enforced node affinity",))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

NODES = (
    node("n1", labels={"zone": "a", "disk": "ssd"}),
    node("n2", labels={"zone": "a"}),
    node("n3", labels={"zone": "b", "disk": "hdd"}),
    node("n4"),
)


def label(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def pin(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def preferred(**terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    wishes = [{"weight": weight, "preference": term} for weight, term in terms.values()]
    return {"affinity": {"nodeAffinity": {PREFERRED: wishes}}}


def added(rules: dict[str, Any] | None = None) -> NodeAffinityArgs:
    return NodeAffinityArgs(added_affinity=rules)


ZONE_A = added({REQUIRED: {"nodeSelectorTerms": [label("zone", "a")]}})


@pytest.mark.parametrize(("spec", "out"), [
    pytest.param({"nodeSelector": {"zone": "a", "disk": "ssd"}}, {"n2": POD_NO, "n3": POD_NO, "n4": POD_NO},
        id="all pairs of nodeSelector"),
    pytest.param(required(label("disk", "ssd"), label("zone", "b")), {"n2": POD_NO, "n4": POD_NO},
        id="154 or among terms"),
    pytest.param(required({}), {n.metadata.name: POD_NO for n in NODES}, id="155 an empty term"),
    pytest.param(required({}, label("zone", "b")), {"n1": POD_NO, "n2": POD_NO, "n4": POD_NO},
        id="an empty term next to another"),
])  # fmt: skip
def test_filter(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """A node that does not match is unresolvable."""
    seen = cluster(*NODES)

    assert out == refused(NodeAffinityPlugin(None, handle(seen)), seen, info(**spec))


@pytest.mark.parametrize(("spec", "out"), [
    pytest.param({}, {"n3": ADDED_NO, "n4": ADDED_NO}, id="159 the added affinity excludes"),
    pytest.param({"nodeSelector": {"disk": "ssd"}}, {"n2": POD_NO, "n3": ADDED_NO, "n4": ADDED_NO},
        id="the added affinity speaks first"),
])  # fmt: skip
def test_added_affinity(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """A profile's own affinity holds for every pod."""
    seen = cluster(*NODES)

    assert out == refused(NodeAffinityPlugin(ZONE_A, handle(seen)), seen, info(**spec))


def test_labels_are_followed() -> None:
    """A memo of an earlier answer does not outlive the labels."""
    seen = cluster(node("n1", labels={"zone": "a"}), node("n2"))
    plugin = NodeAffinityPlugin(None, handle(seen))
    wants = info(nodeSelector={"zone": "a"})
    before = refused(plugin, seen, wants)
    seen.set_node(node("n2", labels={"zone": "a"}))
    seen.set_node(node("n3"))

    assert (before, refused(plugin, seen, wants)) == ({"n2": POD_NO}, {"n3": POD_NO})


@pytest.mark.parametrize(("spec", "args", "answer"), [
    pytest.param({}, None, SKIP, id="nothing to do"),
    pytest.param({}, ZONE_A, None, id="the added affinity is something to do"),
    pytest.param(required(), None, None, id="no terms: Filter refuses"),
    pytest.param(required(pin("n1")), None, Narrow(frozenset({"n1"})), id="157 a DaemonSet pod's pin"),
    pytest.param(required(pin("n1"), pin("n2")), None, Narrow(frozenset({"n1", "n2"})), id="pins of terms unite"),
    pytest.param(required(pin("n1"), label("zone", "a")), None, None, id="one term without a pin"),
    pytest.param(required(pin("n1", "n2")), None,
        Rejection("NodeAffinity", Code.UNRESOLVABLE, ("pod affinity terms conflict",)),
        id="158 pins of one term exclude each other"),
    pytest.param(required(pin("n1", "n2"), pin("n3")), None, Narrow(frozenset({"n3"})), id="one term is left"),
])  # fmt: skip
def test_pre_filter(spec: dict[str, Any], args: NodeAffinityArgs | None, answer: object) -> None:
    """Skips, narrows, or refuses before any node is looked at."""
    seen = cluster(*NODES)

    assert answer == NodeAffinityPlugin(args, handle(seen)).pre_filter(CycleState(), info(**spec), seen.nodes.present)


@pytest.mark.parametrize(("spec", "args", "scores"), [
    pytest.param(preferred(a=(30, label("disk", "hdd")), b=(60, label("disk", "ssd"))), None,
        {"n1": 100, "n2": 0, "n3": 50, "n4": 0}, id="141 weights 30 and 60"),
    pytest.param(preferred(a=(10, label("disk", "ssd")), b=(10, label("zone", "a"))), None,
        {"n1": 100, "n2": 50, "n3": 0, "n4": 0}, id="weights add up"),
    pytest.param(preferred(a=(10, label("zone", "a"))),
        added({PREFERRED: [{"weight": 10, "preference": label("disk", "ssd")}]}),
        {"n1": 100, "n2": 50, "n3": 0, "n4": 0}, id="the added affinity has wishes as well"),
])  # fmt: skip
def test_score(spec: dict[str, Any], args: NodeAffinityArgs | None, scores: dict[str, int] | None) -> None:
    """The best of the candidates gets 100."""
    seen = cluster(*NODES)

    assert scores == scored(NodeAffinityPlugin(args, handle(seen)), seen, info(**spec))


def test_a_wish_that_cannot_be_parsed_ends_the_attempt() -> None:
    """As upstream: an error of PreScore, naming the place."""
    seen = cluster(*NODES)
    broken = info(**preferred(a=(1, label("zone", "a")), b=(1, label("zone"))))

    with pytest.raises(AttemptError, match=r'PreScore plugin "NodeAffinity": .*\[1\]\.matchExpressions\[0\]\.values'):
        scored(NodeAffinityPlugin(None, handle(seen)), seen, broken)


SSD = info("p", nodeSelector={"disk": "ssd"})


@pytest.mark.parametrize(("event", "args", "pod", "old", "new", "hint"), [
    pytest.param(RELABELLED, None, SSD, NODES[0], NODES[0], Hint.SKIP, id="a node matched before"),
    pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), None, SSD, NODES[1], NODES[0], None,
        id="taints"),
])  # fmt: skip
def test_hints(event: ClusterEvent, args: Any, pod: Any, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue exactly when a node matches that did not before."""
    assert hint is hinted(NodeAffinityPlugin(args, handle(cluster())), event, pod, old=old, new=new)
