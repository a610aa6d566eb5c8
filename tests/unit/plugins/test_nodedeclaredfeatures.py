"""NodeDeclaredFeatures: docs/spec/core.md §5.1, §5.11."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.feature_gates import defaults
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from tests.unit.objects import cluster, handle, info
from tests.unit.plugins.ask import hinted, refused

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


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        pytest.param({"containers": [restarting("Restart")]}, None, id="restarting one container is old"),
        pytest.param(
            {"initContainers": [restarting("RestartAllContainers")]}, {"restarts", "both"}, id="an init container"
        ),
        pytest.param({"hostUsers": False}, None, id="own users on an own network"),
        pytest.param({"hostNetwork": True, "hostUsers": True}, None, id="the node's users, said in words"),
        pytest.param(
            {"hostNetwork": True, "hostUsers": False, "containers": [restarting("RestartAllContainers")]},
            {"both"},
            id="all that is needed must be declared",
        ),
    ],
)
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


NEEDY = info("p", containers=[restarting("RestartAllContainers")])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, NEEDY, Hint.QUEUE, id="the pod can be read again"),
        pytest.param(info("q"), info("q", hostNetwork=True, hostUsers=False), Hint.SKIP, id="another pod"),
    ],
)
def test_hints(old: Any, new: Any, hint: Hint) -> None:
    """More rows are in the table of hints."""
    assert hint is hinted(NodeDeclaredFeatures(None, handle(cluster())), UPDATED, NEEDY, old=old, new=new)
