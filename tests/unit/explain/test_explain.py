"""`kubestow explain`: the state of a pod, why no node fits, and fixes that an attempt has verified."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.api.storage_v1 import CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation, as_text
from scheduler.explain.codes import BY_PLUGIN
from scheduler.explain.explainer import outside
from scheduler.plugins.volumebinding.pod_volumes import CAUSES as CAUSES_OF_VOLUMES
from tests.explained.edited import refused
from tests.unit.harness import SchedulerHarness, manifest, typed


async def explained(sched: SchedulerHarness, name: str = "p") -> Explanation:
    """Return the explanation of a pod, driven to its end."""
    found = finish(sched.parts.explainer.explain(f"default/{name}"))
    assert found is not None
    return found


def fixes(found: Explanation) -> list[list[str]]:
    """Return the texts of the verified fixes."""
    return [[change.text for change in fix.changes] for fix in found.fixes if fix.verified]


ROOT = Path(__file__).parents[3]


def documented_codes() -> set[str]:
    """Return the codes in the tables of docs/explain.md."""
    section = (ROOT / "docs/explain.md").read_text().partition("\n## Codes\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


OF_KUBERNETES = {
    "DoNotSchedule",
    "PersistentVolumeClaim",
    "ReadWriteOnce",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "ScheduleAnyway",
}
"""Words in the modules of changes that look like the code of a change."""


def codes_of_changes() -> set[str]:
    """Return the words in the modules of changes that look like codes."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "scheduler/explain").glob("*changes.py")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and re.fullmatch(r"([A-Z][a-z]+){2,}|Uncordon", text)}


GPU = "example.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
ZONE = "topology.kubernetes.io/zone"


def requiring(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return an affinity with one required node selector term."""
    term = {"matchExpressions": list(expressions)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def near(*apps: str, field: str, key: str = HOSTNAME) -> dict[str, Any]:
    """Return an affinity with a required pod affinity or anti-affinity term for each app."""
    terms = [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key} for app in apps]
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def on_port(port: int) -> list[dict[str, Any]]:
    return [{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}]


HARD: dict[str, Any] = {
    "maxSkew": 1,
    "topologyKey": "rack",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "p"}},
}
SOFT = HARD | {"whenUnsatisfiable": "ScheduleAnyway"}
SOFTENED = "make the spread constraint at rack soft (whenUnsatisfiable: ScheduleAnyway)"
SPREAD: list[tuple[str, dict[str, Any], list[dict[str, Any]], str]] = [
    ("alone", {}, [], SOFTENED),
    ("next to a soft one of another key", {}, [SOFT | {"topologyKey": ZONE}], SOFTENED),
    ("with minDomains", {"minDomains": 2}, [], f"{SOFTENED}, without minDomains"),
    (
        "next to a soft one",
        {"minDomains": 2},
        [SOFT],
        "remove the hard spread constraint at rack, next to the soft one",
    ),
]

CAUSES = [
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1"}},
        {"cpu": "1"},
        "InsufficientResources",
        [["request 500m of cpu instead of 1"], ["delete pod default/a on node n1"], ["add a node like n1"]],
        id="too little cpu",
    ),
    pytest.param(
        {"n1": {"pods": "1"}},
        {"a": {"on": "n1"}},
        {},
        "InsufficientResources",
        [["delete pod default/a on node n1"], ["add a node like n1"]],
        id="no slot for another pod",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}},
        {},
        {},
        "UntoleratedTaint",
        [["tolerate the taint team=a:NoSchedule"], ["remove the taint team=a:NoSchedule from node n1"]],
        id="a taint",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "team", "effect": "NoExecute"}]}},
        {},
        {},
        "UntoleratedTaint",
        [["tolerate the taint team:NoExecute"], ["remove the taint team:NoExecute from node n1"]],
        id="a taint without a value",
    ),
    pytest.param(
        {"n1": {"unschedulable": True}},
        {},
        {},
        "NodeCordoned",
        [["uncordon node n1"], ["tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"]],
        id="a cordon",
    ),
    pytest.param(
        {"n1": {"labels": {"disk": "hdd"}}},
        {},
        {"nodeSelector": {"disk": "ssd"}},
        "NodeAffinityMismatch",
        [["remove disk=ssd from the nodeSelector"], ["label node n1 disk=ssd"]],
        id="a node selector",
    ),
    pytest.param(
        {"n1": {"labels": {"disk": "hdd", "gen": "2"}}},
        {},
        {
            "affinity": requiring(
                {"key": "gen", "operator": "Gt", "values": ["1"]},
                {"key": "disk", "operator": "In", "values": ["ssd"]},
            )
        },
        "NodeAffinityMismatch",
        [["remove disk In ssd from the required node affinity"], ["label node n1 disk=ssd"]],
        id="one expression of the required node affinity",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {},
        {"affinity": near("db", field="podAffinity")},
        "PodAffinityUnsatisfied",
        [[f"remove the required pod affinity at {HOSTNAME}"]],
        id="no pod to be near",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {"db": {"labels": {"app": "db"}, "on": "n1"}},
        {"affinity": near("db", field="podAntiAffinity")},
        "PodAntiAffinityViolated",
        [
            [f"remove the required pod anti-affinity at {HOSTNAME}"],
            ["delete pod default/db on node n1"],
            ["add a node like n1"],
        ],
        id="its own anti-affinity",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {"db": {"affinity": near("p", field="podAntiAffinity"), "on": "n1"}},
        {"labels": {"app": "p"}},
        "KeptAwayByAntiAffinity",
        [["delete pod default/db on node n1"], ["add a node like n1"]],
        id="the anti-affinity of a pod on the node",
    ),
    pytest.param(
        {"n1": {"labels": {ZONE: "a"}}, "n2": {"labels": {ZONE: "b"}, "unschedulable": True}},
        {name: {"labels": {"app": "p"}, "on": "n1"} for name in ("a", "b")},
        {
            "labels": {"app": "p"},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "p"}},
                }
            ],
        },
        "NodeCordoned",
        [
            ["uncordon node n2"],
            [f"allow a maxSkew of 3 instead of 1 at {ZONE}"],
            ["tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"],
        ],
        id="a spread constraint; the domain with the fewest pods is cordoned",
    ),
    *(
        pytest.param(
            {"n1": {}},
            {},
            {"labels": {"app": "p"}, "topologySpreadConstraints": [HARD | more, *others]},
            "SpreadLabelMissing",
            [[expected]],
            id=f"a spread constraint whose label no node has: {name}",
        )
        for name, more, others, expected in SPREAD
    ),
    pytest.param(
        {"n1": {"labels": {"gen": "1"}}},
        {},
        {"affinity": requiring({"key": "gen", "operator": "Lt", "values": ["0"]})},
        "NodeAffinityMismatch",
        [["remove the required node affinity"]],
        id="no label has the value that the required node affinity accepts",
    ),
    pytest.param(
        {"n1": {}},
        {"a": {"containers": on_port(80), "on": "n1"}},
        {"containers": on_port(80)},
        "HostPortInUse",
        [
            ["give up host port 80/TCP of container c"],
            ["delete pod default/a on node n1"],
            ["add a node like n1"],
        ],
        id="a host port",
    ),
    pytest.param(
        {"n1": {}},
        {},
        {"containers": [{"name": "c", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}]},
        "InsufficientResources",
        [[f"request no {GPU} instead of 1"]],
        id="an extended resource that no node has",
    ),
    pytest.param(
        {"n1": {GPU: "1"}},
        {},
        {
            "initContainers": [
                {
                    "name": "sidecar",
                    "restartPolicy": "Always",
                    "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}},
                },
                {"name": "init", "resources": {"requests": {"cpu": "1"}}},
            ]
        },
        "InsufficientResources",
        [[f"request 1 of {GPU} instead of 2"]],
        id="an extended resource of a sidecar, next to an init container without it",
    ),
    pytest.param(
        {"n1": {"labels": {HOSTNAME: "n1"}}},
        {},
        {"affinity": near("db", "cache", field="podAffinity")},
        "PodAffinityUnsatisfied",
        [[f"remove the required pod affinity at {HOSTNAME} (term {number})" for number in (1, 2)]],
        id="two terms of the pod affinity at one topology key",
    ),
    pytest.param(
        {"n1": {"cpu": "2", "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}},
        {"a": {"cpu": "1500m", "on": "n1"}},
        {"cpu": "1", "nodeSelector": {"disk": "ssd"}},
        "InsufficientResources",
        [
            [
                "request 500m of cpu instead of 1",
                "tolerate the taint team=a:NoSchedule",
                "remove disk=ssd from the nodeSelector",
            ],
            [
                "delete pod default/a on node n1",
                "remove the taint team=a:NoSchedule from node n1",
                "label node n1 disk=ssd",
            ],
        ],
        id="three causes at once",
    ),
]


@pytest.mark.parametrize(("nodes", "bound", "pod", "code", "expected"), CAUSES)
async def test_a_cause_and_its_fixes(
    nodes: dict[str, dict[str, Any]],
    bound: dict[str, dict[str, Any]],
    pod: dict[str, Any],
    code: str,
    expected: list[list[str]],
) -> None:
    sched = SchedulerHarness()
    for name, spec in nodes.items():
        sched.node(name, **spec)
    for name, spec in bound.items():
        sched.pod(name, **spec)
    sched.pod("p", **pod)
    await sched.settle()
    before = sched.parts.cluster.sizes()

    found = await explained(sched)

    assert (found.verdict, found.exit_code) == ("doesNotFit", 2)
    assert code in {reason.code for group in found.groups for reason in group.reasons}
    assert [sorted(each) for each in fixes(found)] == [sorted(each) for each in expected]
    assert refused(manifest("p", **pod), found.fixes) == []
    assert sched.parts.cluster.sizes() == before
    assert as_text(found).startswith("default/p: none of ")


# -- states ----------------------------------------------------------------------------------------------------------

BLOCKED = {"cpu": "2", "on": "n1"}

STATES = [
    pytest.param({}, {"cpu": "1"}, ("pending", "fits", 0, "Fits", "n1"), id="a pod that fits and has not been tried"),
    pytest.param({}, {"gates": ("quota",)}, ("gated", "fitsAfter", 1, "Gated", "n1"), id="a gated pod that would fit"),
    pytest.param(
        {"a": BLOCKED},
        {"cpu": "1", "gates": ("quota",)},
        ("gated", "doesNotFit", 2, "Gated", ""),
        id="a gated pod that would not fit either",
    ),
    pytest.param(
        {"a": {**BLOCKED, "deleting": True}},
        {"cpu": "1"},
        ("pending", "fitsAfter", 1, "Terminating", "n1"),
        id="a pod that fits once another has gone",
    ),
    pytest.param(
        {"a": {**BLOCKED, "deleting": True}},
        {"cpu": "1", "nominated": "n1"},
        ("nominated", "fitsAfter", 1, "Preempting", "n1"),
        id="a nominated pod whose victim is leaving",
    ),
    pytest.param({}, {"cpu": "1", "on": "n1"}, ("bound", "fits", 0, "Bound", "n1"), id="a pod on a node"),
    pytest.param({}, {"deleting": True}, ("deleting", "doesNotFit", 2, "Deleting", ""), id="a pod that is deleted"),
]


@pytest.mark.parametrize(("others", "pod", "expected"), STATES)
async def test_the_state_of_a_pod(
    others: dict[str, dict[str, Any]], pod: dict[str, Any], expected: tuple[str, str, int, str, str]
) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    for name, spec in others.items():
        sched.pod(name, **spec)
    sched.pod("p", **pod)
    sched.parts.inbox.apply()

    found = await explained(sched)

    assert (found.state, found.verdict, found.exit_code, found.code, found.node) == expected


@pytest.mark.parametrize(
    ("blocked", "nominated", "expected"),
    [
        pytest.param(
            {},
            "",
            ("doesNotFit", "", "none of 1 node fits: 1 Insufficient cpu"),
            id="the node is full",
        ),
        pytest.param(
            {"deleting": True},
            "",
            (
                "fitsAfter",
                "n1",
                "none of 1 node fits: 1 Insufficient cpu; it fits on node n1 once terminating pods have gone",
            ),
            id="the pod on the node terminates",
        ),
        pytest.param(
            {"deleting": True},
            "n1",
            ("fitsAfter", "n1", "pods are leaving node n1 for it; it fits once they have gone"),
            id="its victim terminates",
        ),
    ],
)
async def test_the_cause_of_a_gated_pod_says_the_verdict_without_its_gates(
    blocked: dict[str, Any], nominated: str, expected: tuple[str, str, str]
) -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("a", **BLOCKED, **blocked)
    sched.pod("p", cpu="1", gates=("quota",), nominated=nominated)
    sched.parts.inbox.apply()

    found = await explained(sched)

    verdict, node, without = expected
    assert (found.state, found.verdict, found.node) == ("gated", verdict, node)
    assert found.cause == f"waiting for scheduling gates: [quota]; without them: {without}"


async def test_a_cluster_without_nodes() -> None:
    sched = SchedulerHarness()
    sched.pod("p")
    sched.parts.inbox.apply()

    assert (await explained(sched)).code == "NoNodes"


async def test_a_pod_on_a_node_is_compared_with_the_second_best_node() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="4")
    sched.node("n2", cpu="4")
    sched.pod("a", cpu="3", on="n2")
    sched.pod("p", cpu="1", on="n1")
    sched.parts.inbox.apply()

    bound = (await explained(sched)).bound

    assert bound is not None
    assert (bound.node, bound.runner_up, bound.fits_now) == ("n1", "n2", True)
    assert bound.margin is not None
    assert bound.margin > 0


@pytest.mark.parametrize(
    ("pod", "code", "state"),
    [
        pytest.param({"scheduler": "other"}, "Foreign", "foreign", id="another scheduler's"),
        pytest.param({"phase": "Succeeded"}, "Finished", "finished", id="a finished one"),
    ],
)
def test_pods_that_this_scheduler_does_not_place(pod: dict[str, Any], code: str, state: str) -> None:
    found = outside(typed(manifest("p", **pod)))

    assert (found.code, found.state) == (code, state)


async def test_every_code_is_documented() -> None:
    """Of all rejections that plugins name, and of all changes that the search knows."""
    causes = {*BY_PLUGIN.values(), *CAUSES_OF_VOLUMES.values()}

    assert causes | codes_of_changes() - OF_KUBERNETES <= documented_codes()


@pytest.mark.parametrize(("promised", "capacity", "code"), [
    pytest.param("6Gi", "10Gi", "StorageInFlight", id="another claim was promised the capacity"),
    pytest.param("1Gi", "4Gi", "NotEnoughStorage", id="the published capacity is too small"),
])  # fmt: skip
async def test_capacity_in_flight_has_its_own_code(promised: str, capacity: str, code: str) -> None:
    """An autoscaler that reads the published capacity adds no node for it (docs/autoscalers.md)."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOSTNAME: "n1"})
    selected = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
    for kind, name, more in (
        ("StorageClass", "fast", {"provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"}),
        ("CSIDriver", "d", {"spec": {"storageCapacity": True}}),
        ("CSIStorageCapacity", "c", {"storageClassName": "fast", "nodeTopology": {}, "capacity": capacity}),
        ("PersistentVolumeClaim", "other", {"spec": claim(promised), "metadata": selected}),
        ("PersistentVolumeClaim", "own", {"spec": claim("5Gi")}),
    ):
        put(sched, kind, name, more)
    sched.pod("q", schedulerName="other", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}])
    sched.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "own"}}])
    sched.parts.inbox.apply()

    found = await explained(sched)

    assert [reason.code for group in found.groups for reason in group.reasons] == [code]
    assert code in documented_codes()


@pytest.mark.parametrize(("classes", "expected"), [
    pytest.param(
        {"archive": {"provisioner": "d"}, "standard": {"provisioner": "d", "metadata": DEFAULT}},
        ["create PersistentVolumeClaim gone, for example of class standard with 1Gi"],
        id="the default class comes first",
    ),
    pytest.param(
        {"local": {"provisioner": "kubernetes.io/no-provisioner"}, "standard": {"provisioner": "d"}},
        ["create PersistentVolumeClaim gone, for example of class standard with 1Gi"],
        id="a class without a provisioner makes no volume",
    ),
    pytest.param(
        {**{f"local-{at}": {"provisioner": "kubernetes.io/no-provisioner"} for at in range(4)}, "z": {"provisioner": "d"}},
        ["create PersistentVolumeClaim gone, for example of class z with 1Gi"],
        id="four classes without a provisioner before another one",
    ),
])  # fmt: skip
async def test_the_class_of_a_missing_claim(classes: dict[str, dict[str, Any]], expected: list[str]) -> None:
    sched = SchedulerHarness()
    sched.node("n1", labels={HOSTNAME: "n1"})
    for name, more in classes.items():
        put(sched, "StorageClass", name, {"volumeBindingMode": "WaitForFirstConsumer"} | more)
    sched.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}])
    sched.parts.inbox.apply()

    assert fixes(await explained(sched)) == [[text] for text in expected]


async def test_the_manifest_of_a_new_object_can_be_applied_as_it_is() -> None:
    sched = SchedulerHarness()
    sched.node("n1", labels={HOSTNAME: "n1"})
    put(sched, "StorageClass", "standard", {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "d"})
    sched.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}])
    sched.parts.inbox.apply()

    found = await explained(sched)

    (edit,) = found.fixes[0].edits
    assert edit == found.fixes[0].changes[0].edits[0]
    assert not found.fixes[0].changes[0].is_description
    assert (edit.manifest["apiVersion"], edit.manifest["kind"]) == ("v1", "PersistentVolumeClaim")
    assert edit.manifest["metadata"] == {"name": "gone", "namespace": "default"}


async def test_the_text_names_taints_and_counts_volumes() -> None:
    sched = SchedulerHarness()
    sched.node("n1", labels={HOSTNAME: "n1"}, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    put(
        sched,
        "StorageClass",
        "fast",
        {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
    )
    put(sched, "PersistentVolumeClaim", "own", {"spec": claim("5Gi")})
    sched.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "own"}}])
    sched.parts.inbox.apply()

    found = await explained(sched)

    assert "node(s) had untolerated taint(s) (team=a:NoSchedule)" in found.cause
    assert "UntoleratedTaint: node(s) had untolerated taint(s) (team=a:NoSchedule)\n" in as_text(found)
    assert "volumes for claim default/own (5Gi of class fast): none exist\n" in as_text(found)


async def test_a_claim_of_class_immediate_waits_for_the_controller() -> None:
    sched = SchedulerHarness()
    sched.node("n1", labels={HOSTNAME: "n1"})
    put(sched, "StorageClass", "fast", {"provisioner": "d", "volumeBindingMode": "Immediate"})
    put(sched, "PersistentVolumeClaim", "own", {"spec": claim("1Gi")})
    sched.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "own"}}])
    sched.parts.inbox.apply()

    found = await explained(sched)

    assert (found.code, found.move, found.fixes) == ("ClaimNotBound", "wait", ())


def claim(size: str) -> dict[str, Any]:
    return {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }


def put(sched: SchedulerHarness, kind: str, name: str, more: dict[str, Any]) -> None:
    """Deliver an object as a watch does."""
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "namespace": "default", **more.get("metadata", {})}
    made = ObjectDecoder(kind, KINDS[kind]).decode(msgspec.json.encode({**more, "metadata": metadata}))
    sched.parts.event_handlers.apply(kind, [Delta(None, made)])


KINDS: dict[str, Any] = {
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSIStorageCapacity": CSIStorageCapacity,
    "PersistentVolumeClaim": PersistentVolumeClaim,
}


async def test_a_missing_claim_is_one_reason_though_four_plugins_reject_it() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}])
    sched.parts.inbox.apply()

    found = await explained(sched)

    assert [(reason.code, reason.text) for group in found.groups for reason in group.reasons] == [
        ("ClaimUnusable", 'persistentvolumeclaim "gone" not found'),
        ("InsufficientResources", "Insufficient cpu"),
    ]


async def test_the_edits_of_a_fix_are_one_strict_patch_per_object() -> None:
    sched = SchedulerHarness()
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("a", "b")]
    sched.node("n1", taints=taints)
    sched.pod("p", cpu="1")
    sched.parts.inbox.apply()

    found = await explained(sched)

    (edit,) = next(fix for fix in found.fixes if fix.changes[0].code == "AddToleration").edits
    assert [(step.op, step.path) for step in edit.patch] == [
        ("add", "/spec/tolerations"),
        ("add", "/spec/tolerations/-"),
        ("add", "/spec/tolerations/-"),
    ]
