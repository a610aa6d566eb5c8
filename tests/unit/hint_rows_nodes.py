"""Rows of the table of hints for the plugins that look at nodes one by one (docs/spec/core.md §5.1–§5.5, §5.10, §5.11)."""

from __future__ import annotations

from typing import Any

from tests.unit.hint_rows import (
    CAME,
    FEATURED,
    IGNORES_GPUS,
    LABELLED,
    ONLY_IN_CELLAR,
    OWN_LABEL,
    OWN_OTHER,
    OWN_TOLERATION,
    RESIZED_NODE,
    TAINTED,
    asks,
    leaves,
    needs,
    node,
    pinned,
    pod,
    tolerates,
    wakes,
)

CORDONED = node("n1", cordoned=True)
TOLERATES_CORDON = tolerates("node.kubernetes.io/unschedulable")

NODE_UNSCHEDULABLE = [
    wakes("NodeUnschedulable", CAME, "an open node comes", given=CORDONED, then=node("n2")),
    leaves("NodeUnschedulable", CAME, "a cordoned node comes", given=CORDONED, then=node("n2", cordoned=True)),
    wakes("NodeUnschedulable", TAINTED, "the node is uncordoned", given=CORDONED, then=node("n1")),
    leaves(
        "NodeUnschedulable",
        TAINTED,
        "the cordoned node gets a taint",
        given=CORDONED,
        then=node("n1", cordoned=True, taints=["a:NoExecute"]),
    ),
    wakes(
        "NodeUnschedulable",
        OWN_TOLERATION,
        "it tolerates the cordon now",
        given=CORDONED,
        then=pod("p", tolerations=TOLERATES_CORDON),
    ),
    leaves(
        "NodeUnschedulable",
        OWN_TOLERATION,
        "it tolerates something else now",
        given=CORDONED,
        then=pod("p", tolerations=tolerates("a")),
    ),
    leaves(
        "NodeUnschedulable",
        OWN_TOLERATION,
        "another waiting pod tolerates the cordon now",
        given=(CORDONED, pod("q")),
        then=pod("q", tolerations=TOLERATES_CORDON),
    ),
]

NODE_NAME = [wakes("NodeName", CAME, "any node comes", given=node("n1"), then=node("n2"), by_hand=True)]

TAINTED_NODE = node("n1", taints=["a:NoSchedule"])
TWO_TAINTS = node("n1", taints=["b:NoExecute", "a:NoSchedule"])

TAINT_TOLERATION = [
    wakes("TaintToleration", CAME, "a node without taints comes", given=TAINTED_NODE, then=node("n2")),
    wakes(
        "TaintToleration",
        CAME,
        "a node with a soft taint comes",
        given=TAINTED_NODE,
        then=node("n2", taints=["a:PreferNoSchedule"]),
    ),
    wakes(
        "TaintToleration",
        CAME,
        "a node comes with the taint that it tolerates",
        given=TAINTED_NODE,
        waits={"tolerations": tolerates("b")},
        then=node("n2", taints=["b:NoSchedule"]),
    ),
    wakes(
        "TaintToleration",
        CAME,
        "a node comes with taints and it tolerates all of one effect",
        given=TAINTED_NODE,
        waits={"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        then=node("n2", taints=["b:NoExecute"]),
    ),
    leaves(
        "TaintToleration",
        CAME,
        "a node with a hard taint comes",
        given=TAINTED_NODE,
        then=node("n2", taints=["b:NoExecute"]),
    ),
    leaves(
        "TaintToleration",
        CAME,
        "a node comes with a taint besides the one that it tolerates",
        given=TAINTED_NODE,
        waits={"tolerations": tolerates("b")},
        then=node("n2", taints=["b:NoExecute", "c:NoExecute"]),
    ),
    wakes("TaintToleration", TAINTED, "the taint goes", given=TAINTED_NODE, then=node("n1")),
    wakes(
        "TaintToleration",
        TAINTED,
        "the hard taint becomes soft",
        given=TAINTED_NODE,
        then=node("n1", taints=["a:PreferNoSchedule"]),
    ),
    wakes(
        "TaintToleration",
        TAINTED,
        "of two taints the one goes that it does not tolerate",
        given=TWO_TAINTS,
        waits={"tolerations": tolerates("a")},
        then=TAINTED_NODE,
    ),
    leaves("TaintToleration", TAINTED, "one of two taints goes", given=TWO_TAINTS, then=TAINTED_NODE),
    leaves("TaintToleration", TAINTED, "one more taint comes", given=TAINTED_NODE, then=TWO_TAINTS),
    leaves(
        "TaintToleration",
        TAINTED,
        "a soft taint goes from the tainted node",
        given=node("n1", taints=["a:NoSchedule", "b:PreferNoSchedule"]),
        then=TAINTED_NODE,
    ),
    wakes(
        "TaintToleration",
        OWN_TOLERATION,
        "it gets a toleration",
        given=TAINTED_NODE,
        then=pod("p", tolerations=tolerates("a")),
    ),
    leaves(
        "TaintToleration",
        OWN_TOLERATION,
        "another waiting pod gets a toleration",
        given=(TAINTED_NODE, pod("q")),
        then=pod("q", tolerations=tolerates("a")),
    ),
]

ON_SSD: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}}
IN_A: dict[str, Any] = {"affinity": needs("zone", "In", "a", "b")}
NOT_IN_A: dict[str, Any] = {"affinity": needs("zone", "NotIn", "a")}
MANY_CORES: dict[str, Any] = {"affinity": needs("cores", "Gt", "8")}

NODE_AFFINITY = [
    wakes(
        "NodeAffinity",
        CAME,
        "a node with the labels of its nodeSelector comes",
        given=node("n1"),
        waits=ON_SSD,
        then=node("n2", labels={"disk": "ssd"}),
    ),
    wakes(
        "NodeAffinity",
        CAME,
        "a node comes that its affinity admits",
        given=node("n1"),
        waits=IN_A,
        then=node("n2", zone="b"),
    ),
    wakes(
        "NodeAffinity",
        CAME,
        "a node comes that lacks what its affinity excludes",
        given=node("n1", zone="a"),
        waits=NOT_IN_A,
        then=node("n2"),
    ),
    wakes(
        "NodeAffinity",
        CAME,
        "the node that it is pinned to comes",
        given=node("n1"),
        waits={"affinity": pinned("n2")},
        then=node("n2"),
    ),
    wakes(
        "NodeAffinity",
        CAME,
        "a node comes that the profile's added affinity admits",
        given=node("n1"),
        then=node("n2", labels={"cellar": ""}),
        profile=ONLY_IN_CELLAR,
    ),
    leaves(
        "NodeAffinity",
        CAME,
        "a node with other labels comes",
        given=node("n1"),
        waits=ON_SSD,
        then=node("n2", labels={"disk": "hdd"}),
    ),
    leaves(
        "NodeAffinity",
        CAME,
        "a node comes that its affinity excludes",
        given=node("n1", zone="a"),
        waits=NOT_IN_A,
        then=node("n2", zone="a"),
    ),
    leaves(
        "NodeAffinity",
        CAME,
        "another node than its own comes",
        given=node("n1"),
        waits={"affinity": pinned("n2")},
        then=node("n3"),
    ),
    leaves(
        "NodeAffinity",
        CAME,
        "a node comes that it matches and the profile's added affinity does not",
        given=node("n1"),
        waits=ON_SSD,
        then=node("n2", labels={"disk": "ssd"}),
        profile=ONLY_IN_CELLAR,
    ),
    wakes(
        "NodeAffinity",
        LABELLED,
        "the node gets the wanted label",
        given=node("n1"),
        waits=ON_SSD,
        then=node("n1", labels={"disk": "ssd"}),
    ),
    wakes(
        "NodeAffinity",
        LABELLED,
        "the label gets a wanted value",
        given=node("n1", labels={"cores": "4"}),
        waits=MANY_CORES,
        then=node("n1", labels={"cores": "16"}),
    ),
    wakes(
        "NodeAffinity", LABELLED, "the unwanted label goes", given=node("n1", zone="a"), waits=NOT_IN_A, then=node("n1")
    ),
    wakes(
        "NodeAffinity",
        LABELLED,
        "the node gets the label that the profile's added affinity wants",
        given=node("n1", labels={"disk": "ssd"}),
        waits=ON_SSD,
        then=node("n1", labels={"disk": "ssd", "cellar": ""}),
        profile=ONLY_IN_CELLAR,
    ),
    leaves(
        "NodeAffinity",
        LABELLED,
        "the node gets another label",
        given=node("n1"),
        waits=ON_SSD,
        then=node("n1", labels={"color": "red"}),
    ),
    leaves(
        "NodeAffinity",
        LABELLED,
        "the label gets a value that is too low as well",
        given=node("n1", labels={"cores": "4"}),
        waits=MANY_CORES,
        then=node("n1", labels={"cores": "8"}),
    ),
    leaves(
        "NodeAffinity",
        LABELLED,
        "one of two wanted labels comes",
        given=node("n1"),
        waits={"nodeSelector": {"disk": "ssd", "color": "red"}},
        then=node("n1", labels={"disk": "ssd"}),
    ),
]

SMALL = node("n1", cpu="1")
WANTS_2: dict[str, Any] = {"cpu": "2"}
WANTS_GPU: dict[str, Any] = {"containers": asks(**{"example.com/gpu": "1"})}

NODE_RESOURCES_FIT = [
    wakes("NodeResourcesFit", CAME, "a node comes that is large enough", given=SMALL, waits=WANTS_2, then=node("n2")),
    wakes(
        "NodeResourcesFit",
        CAME,
        "a node comes that has the device",
        given=SMALL,
        waits=WANTS_GPU,
        then=node("n2", **{"example.com/gpu": "2"}),
    ),
    wakes(
        "NodeResourcesFit",
        CAME,
        "a node comes that lacks only a resource which the profile ignores",
        given=SMALL,
        waits={"containers": asks(cpu="2", **{"example.com/gpu": "1"})},
        then=node("n2"),
        profile=IGNORES_GPUS,
    ),
    leaves(
        "NodeResourcesFit",
        CAME,
        "a node comes that is too small, too",
        given=SMALL,
        waits=WANTS_2,
        then=node("n2", cpu="1900m"),
    ),
    leaves("NodeResourcesFit", CAME, "a node comes without the device", given=SMALL, waits=WANTS_GPU, then=node("n2")),
    leaves(
        "NodeResourcesFit",
        CAME,
        "a node comes that is too small for its pod-level request",
        given=SMALL,
        waits={"resources": {"requests": {"cpu": "6"}}, "containers": asks(cpu="1")},
        then=node("n2"),
    ),
    wakes(
        "NodeResourcesFit",
        CAME,
        "a node comes that is large enough for its pod-level request",
        given=SMALL,
        waits={"resources": {"requests": {"cpu": "6"}}, "containers": asks(cpu="1")},
        then=node("n2", cpu="6"),
    ),
    leaves(
        "NodeResourcesFit",
        CAME,
        "a node comes that is too small for its containers and sidecar together",
        given=SMALL,
        waits={"containers": asks(cpu="3"), "initContainers": [{**asks("s", cpu="2")[0], "restartPolicy": "Always"}]},
        then=node("n2"),
    ),
    wakes(
        "NodeResourcesFit",
        CAME,
        "a node comes that is large enough for its containers, and for its init container after another",
        given=SMALL,
        waits={"containers": asks(cpu="3"), "initContainers": asks("i", cpu="2")},
        then=node("n2"),
    ),
    leaves(
        "NodeResourcesFit",
        CAME,
        "a node comes that takes no pods",
        given=SMALL,
        waits=WANTS_2,
        then=node("n2", pods="0"),
    ),
    wakes(
        "NodeResourcesFit",
        RESIZED_NODE,
        "the node grows in what it wants",
        given=SMALL,
        waits=WANTS_2,
        then=node("n1", cpu="2"),
    ),
    wakes(
        "NodeResourcesFit",
        RESIZED_NODE,
        "the node takes more pods",
        given=node("n1", pods="0"),
        then=node("n1", pods="1"),
    ),
    leaves(
        "NodeResourcesFit",
        RESIZED_NODE,
        "the node grows, yet not enough",
        given=SMALL,
        waits=WANTS_2,
        then=node("n1", cpu="1500m"),
    ),
    leaves(
        "NodeResourcesFit",
        RESIZED_NODE,
        "the full node grows in something else",
        given=(node("n1"), pod("r", on="n1", cpu="4")),
        waits=WANTS_2,
        then=node("n1", memory="64Gi"),
    ),
    leaves(
        "NodeResourcesFit",
        RESIZED_NODE,
        "the full node grows in a resource that the profile ignores",
        given=(node("n1"), pod("r", on="n1", cpu="4")),
        waits={"containers": asks(cpu="2", **{"example.com/gpu": "1"})},
        then=node("n1", **{"example.com/gpu": "1"}),
        profile=IGNORES_GPUS,
    ),
    leaves(
        "NodeResourcesFit", RESIZED_NODE, "the node shrinks", given=node("n1", cpu="1500m"), waits=WANTS_2, then=SMALL
    ),
]

RESTARTS: dict[str, Any] = {
    "containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {}}]}]
}

NODE_DECLARED_FEATURES = [
    wakes("NodeDeclaredFeatures", CAME, "any node comes", given=node("n1"), waits=RESTARTS, then=node("n2")),
    wakes(
        "NodeDeclaredFeatures",
        FEATURED,
        "a node declares other features",
        given=node("n1"),
        waits=RESTARTS,
        then=node("n1", features=["RestartAllContainersOnContainerExits"]),
    ),
    wakes(
        "NodeDeclaredFeatures",
        OWN_OTHER,
        "it no longer needs the feature",
        given=node("n1"),
        waits=RESTARTS,
        then=pod("p"),
    ),
    leaves(
        "NodeDeclaredFeatures",
        OWN_LABEL,
        "its labels change and it needs the same",
        given=node("n1"),
        waits=RESTARTS,
        then=pod("p", **RESTARTS, labels={"app": "web"}),
    ),
]

ROWS = [
    *NODE_UNSCHEDULABLE,
    *NODE_NAME,
    *TAINT_TOLERATION,
    *NODE_AFFINITY,
    *NODE_RESOURCES_FIT,
    *NODE_DECLARED_FEATURES,
]
