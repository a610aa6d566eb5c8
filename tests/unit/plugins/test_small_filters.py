"""Small plugins (docs/spec/core.md §5.1–§5.3, §5.10, §5.11), hints of these and NodeResourcesFit, and the registry."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE as GONE, NODE_ADD, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import defaults
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins import BUILT_IN, PluginClash, registry
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from scheduler.plugins.nodename import NodeName
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.nodeunschedulable import NodeUnschedulable
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.plugins.schedulinggates import SchedulingGates
from scheduler.plugins.tainttoleration import TaintToleration
from tests.support.ports import ScriptedWriter
from tests.unit.objects import cluster, handle, info, node, ports
from tests.unit.plugins.ask import hinted, refused, scored

TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
CORDON_ONLY = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}

UNSCHEDULABLE = (Code.UNRESOLVABLE, ("node(s) were unschedulable",))
TAINTED = (Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))
NAMED = (Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",))
PORTS = (Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",))


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        pytest.param({"on": "n1"}, {"n2": NAMED}, id="all other nodes are out"),
        pytest.param({"on": "n9"}, {"n1": NAMED, "n2": NAMED}, id="a name that no node has"),
    ],
)
def test_node_name(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """A pod that names a node takes no other."""
    seen = cluster(node("n1"), node("n2"))

    assert out == refused(NodeName(None, handle(seen)), seen, info(**spec))


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        pytest.param({}, {"closed": UNSCHEDULABLE}, id="cordoned nodes are out"),
        pytest.param(CORDON_ONLY, {}, id="148 unless the cordon is tolerated"),
    ],
)
def test_cordon(spec: dict[str, Any], out: dict[str, Any]) -> None:
    """`spec.unschedulable` is what counts, with or without the taint."""
    seen = cluster(node("open"), node("closed", cordoned=True))

    assert out == refused(NodeUnschedulable(None, handle(seen)), seen, info(**spec))


def test_taints() -> None:
    """PreferNoSchedule refuses no pod."""
    seen = cluster(
        node("free"),
        node("hard", taints=("a=b:NoSchedule",)),
        node("gone", taints=("x=y:PreferNoSchedule", "c=d:NoExecute")),
        node("soft", taints=("a=b:PreferNoSchedule",)),
    )
    pod = info(tolerations=[{"key": "a", "value": "b"}])

    assert {"gone": TAINTED} == refused(TaintToleration(None, handle(seen)), seen, pod)


@pytest.mark.parametrize(("spec", "scores"), [
    pytest.param({}, {"free": 100, "one": 50, "two": 0}, id="140 fewer untolerated soft taints are better"),
    pytest.param({"tolerations": [{"key": "c", "operator": "Exists", "effect": "PreferNoSchedule"}]},
        {"free": 100, "one": 0, "two": 0}, id="tolerated ones do not count"),
    pytest.param({"tolerations": [{"key": "c", "operator": "Exists", "effect": "NoSchedule"}]},
        {"free": 100, "one": 50, "two": 0}, id="a toleration of another effect does not help"),
])  # fmt: skip
def test_soft_taints(spec: dict[str, Any], scores: dict[str, int] | None) -> None:
    """Reversed normalisation over the candidates."""
    seen = cluster(
        node("free"),
        node("one", taints=("a=b:PreferNoSchedule",)),
        node("two", taints=("a=b:PreferNoSchedule", "c=d:PreferNoSchedule", "e=f:NoSchedule")),
    )

    assert scores == scored(TaintToleration(None, handle(seen)), seen, info(**spec))


def test_soft_taints_elsewhere_are_no_reason_to_score() -> None:
    """Only the candidates' taints count for Skip."""
    seen = cluster(node("free"), node("soft", taints=("a=b:PreferNoSchedule",)))
    plugin = TaintToleration(None, handle(seen))

    assert plugin.pre_score(CycleState(), info(), seen.nodes.by_name(["free"])) is SKIP
    assert plugin.pre_score(CycleState(), info(), seen.nodes.present) is None


def test_160_ports() -> None:
    """Nodes where a wanted port is taken are out, and could be freed."""
    held = [info("a", on="n1", containers=ports("TCP/80/127.0.0.1")), info("b", on="n2", containers=ports("UDP/80"))]
    seen = cluster(node("n1"), node("n2"), *held)
    plugin = NodePorts(None, handle(seen))

    assert refused(plugin, seen, info(containers=ports("TCP/80"))) == {"n1": PORTS}
    assert refused(plugin, seen, info(containers=ports("TCP/80/127.0.0.2"))) == {}
    assert plugin.pre_filter(CycleState(), info(), seen.nodes.present) is SKIP
    assert plugin.pre_filter(CycleState(), info(containers=ports("TCP/1")), seen.nodes.present) is None

    seen.remove_pod("a")

    assert refused(plugin, seen, info(containers=ports("TCP/80"))) == {}


@pytest.mark.parametrize(
    ("held", "leave", "is_free"),
    [
        pytest.param(["TCP/80"], [0], True, id="the pod that held it leaves"),
        pytest.param(["TCP/80", "TCP/80"], [0], False, id="one of two pods that hold it leaves"),
        pytest.param(["TCP/80", "TCP/80"], [0, 1], True, id="both leave"),
        pytest.param(["TCP/80/10.0.0.1"], [], False, id="it is held on one address, and wanted on all"),
        pytest.param(["TCP/80", "TCP/81"], [1], False, id="a pod with another port leaves, and it is held"),
        pytest.param(["TCP/81"], [0], True, id="a pod with another port leaves, and it is free"),
        pytest.param(["UDP/80"], [], True, id="the port of another protocol is held"),
    ],
)
def test_ports_that_preemption_frees(held: list[str], leave: list[int], is_free: bool) -> None:
    """Counted in a tally: a port is free when no pod is left that holds it."""
    pods = [info(f"h{at}", on="n1", containers=ports(each)) for at, each in enumerate(held)]
    seen = cluster(node("n1"), *pods)
    slot = seen.nodes.slot("n1")
    assert slot is not None
    tally = NodePorts(None, handle(seen)).tally(CycleState(), info(containers=ports("TCP/80")), slot)
    for at in leave:
        tally.remove(pods[at])

    assert is_free is (tally.verdict() is None)


def test_a_node_comes_to_a_pod_without_ports() -> None:
    assert hinted(NodePorts(None, handle(cluster())), NODE_ADD, info(), new=node()) is Hint.QUEUE


WANTS: dict[str, Any] = {"containers": ports("TCP/80")}
NOMINATED = {"nominatedNodeName": "n1"}


@pytest.mark.parametrize(("plugin", "event", "old", "new", "hint"), [
    pytest.param(NodeUnschedulable, TAINTS, node(), node(), Hint.SKIP, id="a node was open before"),
    pytest.param(NodeUnschedulable, TAINTS, node(), node(cordoned=True), Hint.SKIP, id="150 a cordon"),
    pytest.param(TaintToleration, TAINTS, node(), node(), Hint.SKIP, id="153 a node was never tainted"),
    pytest.param(NodePorts, GONE, info("q", **WANTS), None, Hint.SKIP, id="a pod with its port held no place"),
    pytest.param(NodePorts, GONE, info("q", **WANTS, status=NOMINATED), None, Hint.QUEUE,
        id="a nominated pod with its port"),
    pytest.param(NodeResourcesFit, GONE, info("q"), None, Hint.SKIP, id="a pod held no place"),
    pytest.param(NodeResourcesFit, GONE, info("q", status=NOMINATED), None, Hint.QUEUE, id="a nominated pod"),
])  # fmt: skip
def test_hints(plugin: Any, event: ClusterEvent, old: Any, new: Any, hint: Hint) -> None:
    """Queue exactly when this event can have opened the way; more rows are in the table of hints."""
    assert hint is hinted(plugin(None, handle(cluster(node()))), event, info("p", **WANTS), old=old, new=new)


def test_gates() -> None:
    """Refused while any is there; the text lists them in order."""
    plugin = SchedulingGates(None, handle(cluster()))
    gated = info(schedulingGates=[{"name": "b"}, {"name": "a"}])

    assert plugin.pre_enqueue(info()) is None
    assert plugin.pre_enqueue(gated) == Rejection(
        "SchedulingGates", Code.UNRESOLVABLE, ("waiting for scheduling gates: [b a]",)
    )


def test_sorting() -> None:
    """Higher priority first, then the longer wait."""
    plugin = PrioritySort(None, handle(cluster()))
    waiting = {"low": (info(), 1.0), "old": (info(priority=5), 2.0), "new": (info(priority=5), 3.0)}

    assert sorted(waiting, key=lambda name: plugin.sort_key(*waiting[name])) == ["old", "new", "low"]


async def test_binding() -> None:
    """One write through the port."""
    writer = ScriptedWriter()
    await DefaultBinder(None, handle(cluster(), writer=writer)).bind(CycleState(), info("p"), "n1")

    assert writer.binds == [("default/p", "n1")]


class Entry:
    """An entry point, as far as the registry looks."""

    def __init__(self, name: str, made: object = None, dist: str | None = "a-package") -> None:
        self.name = name
        self.value = f"a_module:{name}"
        self.dist = None if dist is None else type("Dist", (), {"name": dist})
        self._made = made

    def load(self) -> object:
        return self._made


def offered(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: entries if group == "kubestow.plugins" else ())


def test_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-ins under their own names, and installed plugins."""
    made = object()
    offered(monkeypatch, Entry("Mine", made))
    found = registry()

    assert found["Mine"] is made
    assert set(BUILT_IN) | {"Mine"} == set(found)
    assert all(BUILT_IN[name](None, handle(cluster())).name == name for name in BUILT_IN)


@pytest.mark.parametrize(("entries", "words"), [
    pytest.param([Entry("NodeName")], ["NodeName", "scheduler.plugins.nodename", "a-package"], id="a built-in's name"),
    pytest.param([Entry("Mine", dist="one"), Entry("Mine", dist="two")], ["Mine", "one", "two"],
        id="a name offered twice"),
    pytest.param([Entry("NodeName", dist=None)], ["a_module:NodeName"], id="from nowhere"),
])  # fmt: skip
def test_clashes(entries: list[Entry], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for one name is an error that names both."""
    offered(monkeypatch, *entries)
    with pytest.raises(PluginClash) as clash:
        registry()

    assert [word for word in words if word not in str(clash.value)] == []


UPDATED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER)

RESTART_ALL = "RestartAllContainersOnContainerExits"
USERS = "UserNamespacesHostNetworkSupport"
NO = (Code.UNRESOLVABLE, ("node(s) didn't match Pod's required features",))


def declaring(name: str, *features: str) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"declaredFeatures": features}})


def restarting(*actions: str) -> dict[str, Any]:
    """A container with these rules."""
    codes = {"operator": "In", "values": [42]}
    rules = [{"action": action, "exitCodes": codes} for action in actions]
    return {"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}


@pytest.mark.parametrize(("spec", "admitted"), [
    pytest.param({"containers": [restarting("Restart")]}, None, id="restarting one container is old"),
    pytest.param({"initContainers": [restarting("RestartAllContainers")]}, {"restarts", "both"},
        id="an init container"),
    pytest.param({"hostUsers": False}, None, id="own users on an own network"),
    pytest.param({"hostNetwork": True, "hostUsers": True}, None, id="the node's users, said in words"),
    pytest.param({"hostNetwork": True, "hostUsers": False, "containers": [restarting("RestartAllContainers")]},
        {"both"}, id="all that is needed must be declared"),
])  # fmt: skip
def test_needs(spec: dict[str, Any], admitted: set[str] | None) -> None:
    """Which nodes pass; None where PreFilter skips."""
    nodes = {
        "none": (),
        "other": ("Other",),
        "restarts": (RESTART_ALL,),
        "users": (USERS,),
        "both": (RESTART_ALL, USERS),
    }
    seen = cluster(*(declaring(name, *features) for name, features in nodes.items()))
    plugin = NodeDeclaredFeatures(None, handle(seen))
    pod = info(**spec)
    skipped = plugin.pre_filter(CycleState(), pod, seen.nodes.present) is SKIP

    assert skipped == (admitted is None)
    assert dict.fromkeys(nodes.keys() - (nodes if admitted is None else admitted), NO) == refused(plugin, seen, pod)


def test_declarations_are_followed() -> None:
    """As kubelets are upgraded and taken back."""
    seen = cluster(declaring("n1", RESTART_ALL), declaring("n2"))
    plugin = NodeDeclaredFeatures(None, handle(seen))
    pod = info(containers=[restarting("RestartAllContainers")])
    before = refused(plugin, seen, pod)
    seen.set_node(declaring("n1", "Other"))
    seen.set_node(declaring("n2", RESTART_ALL))

    assert (before, refused(plugin, seen, pod)) == ({"n2": NO}, {"n1": NO})


def mounting(*options: str) -> dict[str, Any]:
    """A container whose volume mount has these options."""
    return {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": options}]}


@pytest.mark.parametrize(
    ("spec", "version", "admitted"),
    [
        pytest.param({"containers": [mounting("nosuid")]}, "1.36", True, id="1.36 does not know the feature"),
        pytest.param({"containers": [mounting()]}, "1.37", True, id="a mount without options"),
        pytest.param({"containers": [{"name": "c"}, mounting("nosuid")]}, "1.37", False, id="a container"),
        pytest.param({"initContainers": [mounting("nosuid")]}, "1.37", False, id="an init container"),
        pytest.param({"ephemeralContainers": [mounting("nosuid")]}, "1.37", False, id="an ephemeral container"),
        pytest.param({"containers": [restarting("RestartAllContainers")]}, "1.37", False, id="the features of 1.36"),
    ],
)
def test_bind_mount_options_are_a_feature_from_1_37_on(spec: dict[str, Any], version: str, *, admitted: bool) -> None:
    """A node that declares VolumeBindMountOptions passes, and a node that declares nothing passes without need."""
    seen = cluster(declaring("plain"), declaring("able", "VolumeBindMountOptions", RESTART_ALL))
    plugin = NodeDeclaredFeatures(None, handle(seen, feature_gates=defaults(version)))

    assert refused(plugin, seen, info(**spec)) == ({} if admitted else {"plain": NO})


def certified(*key_types: str) -> dict[str, Any]:
    """A pod whose projected volume has certificates with keys of these types, next to a token."""
    sources = [{"serviceAccountToken": {"path": "t"}}]
    sources += [{"podCertificate": {"signerName": "s", "keyType": each}} for each in key_types]
    return {"volumes": [{"name": "v", "projected": {"sources": sources}}]}


@pytest.mark.parametrize(("spec", "version", "admitted"), [
    pytest.param(certified("MLDSA65"), "1.37", True, id="1.37 does not know the feature"),
    pytest.param(certified("MLDSA44"), "1.38", False, id="MLDSA44"),
    pytest.param(certified("MLDSA65"), "1.38", False, id="MLDSA65"),
    pytest.param(certified("ED25519", "MLDSA87"), "1.38", False, id="MLDSA87, next to another certificate"),
    pytest.param(certified("ED25519"), "1.38", True, id="keys of another type"),
    pytest.param(certified(), "1.38", True, id="no certificate"),
    pytest.param({"volumes": [{"name": "v", "projected": {"sources": None}}]}, "1.38", True, id="no source"),
    pytest.param({"volumes": [{"name": "v", "emptyDir": {}}]}, "1.38", True, id="another volume"),
    pytest.param({"containers": [mounting("nosuid")]}, "1.38", False, id="the features of 1.37"),
])  # fmt: skip
def test_certificates_with_mldsa_keys_are_a_feature_from_1_38_on(
    spec: dict[str, Any], version: str, *, admitted: bool
) -> None:
    seen = cluster(declaring("plain"), declaring("able", "PodCertificateMLDSA", "VolumeBindMountOptions"))
    plugin = NodeDeclaredFeatures(None, handle(seen, feature_gates=defaults(version)))

    assert refused(plugin, seen, info(**spec)) == ({} if admitted else {"plain": NO})


def test_sources_without_a_certificate_are_not_kept() -> None:
    """Each pod has a projected volume with a token, so their sources would take memory for nothing."""
    token, certificate = (info(**certified(*types)).pod.spec.volumes[0].projected for types in ((), ("MLDSA65",)))

    assert token is not None
    assert token.sources == ()
    assert certificate is not None
    assert len(certificate.sources) == 1


NEEDY = info("p", containers=[restarting("RestartAllContainers")])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, NEEDY, Hint.QUEUE, id="the pod can be read again"),
        pytest.param(info("q"), info("q", hostNetwork=True, hostUsers=False), Hint.SKIP, id="another pod"),
    ],
)
def test_hints_of_declared_features(old: Any, new: Any, hint: Hint) -> None:
    """More rows are in the table of hints."""
    assert hint is hinted(NodeDeclaredFeatures(None, handle(cluster())), UPDATED, NEEDY, old=old, new=new)
