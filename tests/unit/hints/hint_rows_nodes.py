"""Rows of the table of hints for the plugins that look at nodes one by one (docs/spec/core.md §5.1–§5.5, §5.10, §5.11)."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.hints.hint_rows import (
    ANY,
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
    leaves,
    needs,
    node,
    pinned,
    pod,
    requesting,
    tolerates,
    wakes,
)

CORDON: Final = "NodeUnschedulable"
TAINTS: Final = "TaintToleration"
LABELS: Final = "NodeAffinity"
FIT: Final = "NodeResourcesFit"
FEATURES: Final = "NodeDeclaredFeatures"

CORDONED = node("n1", cordoned=True)
TOLERATES_CORDON = tolerates("node.kubernetes.io/unschedulable")

NODE_UNSCHEDULABLE = [
    wakes(CORDON, CAME, "an open node comes", CORDONED, ANY, node("n2")),
    leaves(CORDON, CAME, "a cordoned node comes", CORDONED, ANY, node("n2", cordoned=True)),
    wakes(CORDON, TAINTED, "the node is uncordoned (row 149)", CORDONED, ANY, node("n1")),
    leaves(CORDON, TAINTED, "the cordoned node gets a taint",
        CORDONED, ANY, node("n1", cordoned=True, taints=["a:NoExecute"])),
    wakes(CORDON, OWN_TOLERATION, "it tolerates the cordon now", CORDONED, ANY, pod("p", tolerations=TOLERATES_CORDON)),
    leaves(CORDON, OWN_TOLERATION, "it tolerates something else now",
        CORDONED, ANY, pod("p", tolerations=tolerates("a"))),
    leaves(CORDON, OWN_TOLERATION, "another waiting pod tolerates the cordon now",
        (CORDONED, pod("q")), ANY, pod("q", tolerations=TOLERATES_CORDON)),
]  # fmt: skip

NODE_NAME = [wakes("NodeName", CAME, "any node comes", node("n1"), ANY, node("n2"), by_hand=True)]

TAINTED_NODE = node("n1", taints=["a:NoSchedule"])
TWO_TAINTS = node("n1", taints=["b:NoExecute", "a:NoSchedule"])

TAINT_TOLERATION = [
    wakes(TAINTS, CAME, "a node without taints comes", TAINTED_NODE, ANY, node("n2")),
    wakes(TAINTS, CAME, "a node with a soft taint comes", TAINTED_NODE, ANY, node("n2", taints=["a:PreferNoSchedule"])),
    wakes(TAINTS, CAME, "a node comes with the taint that it tolerates",
        TAINTED_NODE, {"tolerations": tolerates("b")}, node("n2", taints=["b:NoSchedule"])),
    wakes(TAINTS, CAME, "a node comes with taints and it tolerates all of one effect",
        TAINTED_NODE, {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        node("n2", taints=["b:NoExecute"])),
    leaves(TAINTS, CAME, "a node with a hard taint comes", TAINTED_NODE, ANY, node("n2", taints=["b:NoExecute"])),
    leaves(TAINTS, CAME, "a node comes with a taint besides the one that it tolerates",
        TAINTED_NODE, {"tolerations": tolerates("b")}, node("n2", taints=["b:NoExecute", "c:NoExecute"])),
    wakes(TAINTS, TAINTED, "the taint goes (row 153)", TAINTED_NODE, ANY, node("n1")),
    wakes(TAINTS, TAINTED, "the hard taint becomes soft", TAINTED_NODE, ANY, node("n1", taints=["a:PreferNoSchedule"])),
    wakes(TAINTS, TAINTED, "of two taints the one goes that it does not tolerate",
        TWO_TAINTS, {"tolerations": tolerates("a")}, TAINTED_NODE),
    leaves(TAINTS, TAINTED, "one of two taints goes", TWO_TAINTS, ANY, TAINTED_NODE),
    wakes(TAINTS, OWN_TOLERATION, "it gets a toleration", TAINTED_NODE, ANY, pod("p", tolerations=tolerates("a"))),
    leaves(TAINTS, OWN_TOLERATION, "another waiting pod gets a toleration",
        (TAINTED_NODE, pod("q")), ANY, pod("q", tolerations=tolerates("a"))),
]  # fmt: skip

ON_SSD: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}}
IN_A: dict[str, Any] = {"affinity": needs("zone", "In", "a", "b")}

NODE_AFFINITY = [
    wakes(LABELS, CAME, "a node with the labels of its nodeSelector comes",
        node("n1"), ON_SSD, node("n2", labels={"disk": "ssd"})),
    wakes(LABELS, CAME, "a node comes that its affinity admits", node("n1"), IN_A, node("n2", zone="b")),
    wakes(LABELS, CAME, "the node that it is pinned to comes", node("n1"), {"affinity": pinned("n2")}, node("n2")),
    wakes(LABELS, CAME, "a node comes that the profile's added affinity admits",
        node("n1"), ANY, node("n2", labels={"cellar": ""}), profile=ONLY_IN_CELLAR),
    leaves(LABELS, CAME, "a node with other labels comes", node("n1"), ON_SSD, node("n2", labels={"disk": "hdd"})),
    leaves(LABELS, CAME, "another node than its own comes", node("n1"), {"affinity": pinned("n2")}, node("n3")),
    leaves(LABELS, CAME, "a node comes that it matches and the profile's added affinity does not",
        node("n1"), ON_SSD, node("n2", labels={"disk": "ssd"}), profile=ONLY_IN_CELLAR),
    wakes(LABELS, LABELLED, "the node gets the wanted label", node("n1"), ON_SSD, node("n1", labels={"disk": "ssd"})),
    wakes(LABELS, LABELLED, "the node gets the label that the profile's added affinity wants",
        node("n1", labels={"disk": "ssd"}), ON_SSD, node("n1", labels={"disk": "ssd", "cellar": ""}),
        profile=ONLY_IN_CELLAR),
    leaves(LABELS, LABELLED, "the node gets another label", node("n1"), ON_SSD, node("n1", labels={"color": "red"})),
    leaves(LABELS, LABELLED, "one of two wanted labels comes",
        node("n1"), {"nodeSelector": {"disk": "ssd", "color": "red"}}, node("n1", labels={"disk": "ssd"})),
]  # fmt: skip

SMALL = node("n1", cpu="1")
WANTS_2: dict[str, Any] = {"cpu": "2"}
WANTS_GPU: dict[str, Any] = {"containers": requesting(**{"example.com/gpu": "1"})}

NODE_RESOURCES_FIT = [
    wakes(FIT, CAME, "a node comes that is large enough", SMALL, WANTS_2, node("n2")),
    wakes(FIT, CAME, "a node comes that has the device", SMALL, WANTS_GPU, node("n2", **{"example.com/gpu": "2"})),
    wakes(FIT, CAME, "a node comes that lacks only a resource which the profile ignores",
        SMALL, {"containers": requesting(cpu="2", **{"example.com/gpu": "1"})}, node("n2"), profile=IGNORES_GPUS),
    leaves(FIT, CAME, "a node comes that is too small, too (row 166)", SMALL, WANTS_2, node("n2", cpu="1900m")),
    leaves(FIT, CAME, "a node comes that takes no pods", SMALL, WANTS_2, node("n2", pods="0")),
    wakes(FIT, RESIZED_NODE, "the node grows in what it wants", SMALL, WANTS_2, node("n1", cpu="2")),
    wakes(FIT, RESIZED_NODE, "the node takes more pods", node("n1", pods="0"), ANY, node("n1", pods="1")),
    leaves(FIT, RESIZED_NODE, "the node grows, yet not enough", SMALL, WANTS_2, node("n1", cpu="1500m")),
    leaves(FIT, RESIZED_NODE, "the full node grows in something else",
        (node("n1"), pod("r", on="n1", cpu="4")), WANTS_2, node("n1", memory="64Gi")),
    leaves(FIT, RESIZED_NODE, "the full node grows in a resource that the profile ignores",
        (node("n1"), pod("r", on="n1", cpu="4")), {"containers": requesting(cpu="2", **{"example.com/gpu": "1"})},
        node("n1", **{"example.com/gpu": "1"}), profile=IGNORES_GPUS),
    leaves(FIT, RESIZED_NODE, "the node shrinks", node("n1", cpu="1500m"), WANTS_2, SMALL),
]  # fmt: skip

RESTARTS: dict[str, Any] = {
    "containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {}}]}]
}

NODE_DECLARED_FEATURES = [
    wakes(FEATURES, CAME, "any node comes", node("n1"), RESTARTS, node("n2")),
    wakes(FEATURES, FEATURED, "a node declares other features",
        node("n1"), RESTARTS, node("n1", features=("RestartAllContainersOnContainerExits",))),
    wakes(FEATURES, OWN_OTHER, "it no longer needs the feature", node("n1"), RESTARTS, pod("p")),
    leaves(FEATURES, OWN_LABEL, "its labels change and it needs the same",
        node("n1"), RESTARTS, pod("p", **RESTARTS, labels={"app": "web"})),
]  # fmt: skip

ROWS = [
    *NODE_UNSCHEDULABLE,
    *NODE_NAME,
    *TAINT_TOLERATION,
    *NODE_AFFINITY,
    *NODE_RESOURCES_FIT,
    *NODE_DECLARED_FEATURES,
]
