"""The short form, admission, and the generator: what the recordings rest on."""

import itertools

import pytest

from tests.parity.admission import admitted, labelled, priority_classes
from tests.parity.scenario import Scenario, scenario
from tests.parity.suite import crowds, device_ones, mixed_ones, random_device_ones, random_ones, recordable, scenarios
from tests.parity.words import Json


def of(**short: Json) -> Scenario:
    return scenario("g", {"id": "x", "asked": {}, **short})


@pytest.mark.parametrize(
    "short",
    [
        pytest.param({"node": {}}, id="of a scenario"),
        pytest.param({"asked": {"p": {"request": {}}}}, id="of a pod"),
        pytest.param({"nodes": {"a": {"label": {}}}}, id="of a node"),
        pytest.param({"workloads": {"a": {"kind": "Service", "on": 1}}}, id="of a workload"),
        pytest.param({"waiting": {"a": {"nominate": "b"}}}, id="of a waiting pod"),
        pytest.param({"budgets": {"a": {"allow": 1}}}, id="of a budget"),
        pytest.param({"pvs": {"v": {"on": {}}}}, id="of a PV"),
        pytest.param({"claims": {"c": {"for": "v"}}}, id="of a claim"),
        pytest.param({"classes": {"w": {"mode": "Immediate"}}}, id="of a class"),
        pytest.param({"csi_nodes": {"n": {"limits": {}}}}, id="of a CSINode"),
        pytest.param({"csi_drivers": {"d": {"storageCapacity": True}}}, id="of a CSIDriver"),
        pytest.param({"capacities": {"o": {"class": "w", "on": {}}}}, id="of a capacity"),
        pytest.param({"attachments": {"a": {"attacher": "d", "node": "n", "volume": "v"}}}, id="of an attachment"),
        pytest.param({"asked": {"p": {"volumes": [{"gce": "d", "lun": 1}]}}}, id="of a pod's volume"),
        pytest.param({"asked": {"p": {"volumes": [{"disk": "d"}]}}}, id="of the kind of a pod's volume"),
        pytest.param({"devices": {"nodes": {}}}, id="of devices"),
        pytest.param({"devices": {"slices": {"s": {"pool": "a/p", "on": "n1"}}}}, id="of a slice"),
        pytest.param({"devices": {"classes": {"c": {"selectors": []}}}}, id="of a device class"),
        pytest.param({"devices": {"claims": {"c": {"r0": {"of": "a"}}}}}, id="of a request"),
        pytest.param({"devices": {"rules": {"r": {"node": "n", "taint": "k:NoSchedule"}}}}, id="of a rule"),
    ],
)
def test_an_unknown_word_is_an_error(short: Json) -> None:
    """A slip of the pen must not make a scenario that tests nothing."""
    with pytest.raises(ValueError, match="no such word"):
        of(**short)


@pytest.mark.parametrize(
    "several",
    [
        pytest.param(
            [{}, {"pvs": {"v": {}}}, {"pvs": {"v": {"leaving": True}}}, {"claims": {"v": {}}}, {"classes": {"v": {}}}],
            id="each part of the storage",
        ),
        pytest.param(
            [
                {},
                {"devices": {}},
                {"devices": {"claims": {"c": None}}},
                {"devices": {"claims": {"c": {"r0": "a", "leaving": True}}}},
                {"devices": {"claims": {"c": None}, "drivers": {"c": {"a/p/d": {"ready": "True"}}}}},
                {"devices": {}, "asked": {"p": {}}},
                {"devices": {}, "asked": {"p": {"held": True}}},
                {"feature_gates": ["F"]},
            ],
            id="each part of the devices, which pods are held, and gates",
        ),
    ],
)
def test_it_counts_for_the_digest(several: list[Json]) -> None:
    """A recording is of this scenario."""
    assert len({of(**short).digest() for short in several}) == len(several)


def test_a_priority_without_a_class_is_an_error() -> None:
    """Classes are made once for all scenarios."""
    with pytest.raises(ValueError, match="no class of priority 7"):
        of(asked={"p": {"priority": 7}})


def test_every_class_has_a_separate_value_for_each_policy() -> None:
    """0 needs one for pods that never preempt only."""
    classes = [(one["value"], one.get("preemptionPolicy", "")) for one in priority_classes()]

    assert len(set(classes)) == len(classes)
    assert (0, "") not in classes


def test_label_keys_become_requirements() -> None:
    """As a real API server makes them: In for what must match, NotIn for what must not, none without the label."""
    near = {
        "topologyKey": "zone",
        "match": {"app": "web"},
        "matchLabelKeys": ["rev"],
        "mismatchLabelKeys": ["tier", "none"],
    }
    asked = {
        "p": {"labels": {"rev": "1", "tier": "front"}, "needs_near": [near], "likes_apart": [{"weight": 3, **near}]}
    }

    affinity = admitted(of(asked=asked).asked["p"])["spec"]["affinity"]

    added = [
        {"key": "rev", "operator": "In", "values": ["1"]},
        {"key": "tier", "operator": "NotIn", "values": ["front"]},
    ]
    (required,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (preferred,) = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert required["labelSelector"] == {"matchLabels": {"app": "web"}, "matchExpressions": added}
    assert preferred["podAffinityTerm"]["labelSelector"] == required["labelSelector"]
    assert preferred["weight"] == 3


def test_a_bound_pod_bears_its_nodes_place() -> None:
    """Zone and region over what it says itself, and nothing else of the node."""
    one = of(
        nodes={"a": {"labels": {"zone": "z", "rack": "r"}}, "b": {}},
        pods={"on a": {"at": "a", "labels": {"app": "web"}}, "on b": {"at": "b"}, "lost": {"at": "c"}},
    )

    on_a, on_b, lost = (labelled(pod, one.nodes)["metadata"].get("labels") for pod in one.pods)

    assert on_a == {"app": "web", "topology.kubernetes.io/zone": "z"}
    assert on_b is lost is None


def test_random_scenarios_are_rich() -> None:
    """Everything that the plugins look at occurs, most of it often."""
    drawn = random_ones()
    bound = [pod for one in drawn for pod in one.pods]
    asked = [pod for one in drawn for pod in one.asked.values()]
    text = str([one.asked for one in drawn])

    assert (min(len(one.nodes) for one in drawn), max(len(one.nodes) for one in drawn)) == (3, 14)
    assert len({pod["metadata"]["namespace"] for pod in bound}) == 5
    assert sum(len(one.leaving) for one in drawn) > 50
    assert sum("affinity" in pod["spec"] for pod in bound) > 100
    assert sum("topologySpreadConstraints" in pod["spec"] for pod in asked) > 100
    assert sum("ownerReferences" in pod["metadata"] for pod in asked) > 20
    assert len({one.profile for one in drawn}) >= 8
    seldom = "minDomains nodeTaintsPolicy nodeAffinityPolicy matchLabelKeys mismatchLabelKeys namespaces"
    for word in seldom.split():
        assert text.count(word) > 10, word
    for word in ("namespaceSelector", "hostPort", "DoNotSchedule", "ScheduleAnyway", "tolerations", "example.com/gpu"):
        assert text.count(word) > 30, word


def test_mixed_scenarios_are_rich() -> None:
    """What the rest lacks occurs in them."""
    drawn = mixed_ones()
    text = str([(one.nodes, one.pods, one.waiting, one.budgets, one.workloads, one.asked) for one in drawn])
    profiles = {one.profile for one in drawn}
    words = {
        "'restartPolicy': 'Always'": 300, "PodResizePending": 100, "allocatedResources": 300, "overhead": 100, "hugepages-2Mi": 200,
        "vendor.example.com/nic": 100, "Succeeded": 10, "'nodeName': 'gone'": 10, "'nominatedNodeName': 'gone'": 5, "metadata.name": 50,
        "'minDomains'": 20, "'matchLabelKeys'": 100, "'mismatchLabelKeys'": 50, "'nodeTaintsPolicy'": 50, "'nodeAffinityPolicy'": 50,
        "'hostIP'": 50, "sha256": 50, "restartPolicyRules": 20, "'disruptedPods'": 5, "ownerReferences": 20,
    }  # fmt: skip

    assert {word: text.count(word) for word, least in words.items() if text.count(word) < least} == {}
    assert len(profiles) >= 14


def test_no_two_pods_of_a_crowd_are_of_one_age() -> None:
    """Else chance would choose among victims and nodes."""
    ages = [[pod["status"]["startTime"] for pod in one.pods] for one in (*crowds(), *mixed_ones())]

    assert [len(set(some)) for some in ages] == [len(some) for some in ages]


def test_crowds_are_rich() -> None:
    """Everything that preemption looks at occurs, most of it often."""
    drawn = crowds()
    bound = [pod for one in drawn for pod in one.pods]
    asked = [pod for one in drawn for pod in one.asked.values()]
    waiting = [pod for one in drawn for pod in one.waiting]
    budgets = [budget for one in drawn for budget in one.budgets]

    assert len({pod["spec"].get("priorityClassName") for pod in bound}) >= 6
    assert len({pod["spec"].get("priorityClassName") for pod in asked}) >= 8
    assert {budget["status"]["disruptionsAllowed"] for budget in budgets} == {0, 1, 2}
    assert sum("disruptedPods" in budget["status"] for budget in budgets) > 10
    assert sum("selector" not in budget["spec"] for budget in budgets) > 3
    assert sum("status" in pod for pod in asked) > 10
    assert len(waiting) > 30
    assert sum(len(one.leaving) for one in drawn) > 30
    assert sum("conditions" in pod["status"] for pod in bound) > 10
    for field, pods in (("affinity", bound), ("affinity", asked), ("topologySpreadConstraints", asked)):
        assert sum(field in pod["spec"] for pod in pods) > 30, field


@pytest.mark.parametrize(
    ("version", "resources", "requests"),
    [
        pytest.param("1.36", {"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}, id="1.36 keeps the requests"),
        pytest.param(
            "1.37", {"requests": {"memory": "1Gi"}}, {"cpu": "300m", "memory": "1Gi"}, id="1.37 completes them"
        ),
        pytest.param("1.37", {}, None, id="without pod-level resources there is nothing to complete"),
    ],
)
def test_pod_level_requests_of_a_version(version: str, resources: Json, requests: Json | None) -> None:
    """PodLevelResourcesFixDefaulting is on in API servers of 1.37 (docs/spec/changes-1.37.md §4.2)."""
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m", "memory": "1"}}}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, "resources": resources}}

    assert (admitted(pod, version)["spec"]["resources"] or {}).get("requests") == requests


# -- scenarios with devices --------------------------------------------------------------------------------------------


def test_there_are_enough_with_devices() -> None:
    """Of every rule some."""
    assert len(device_ones()) >= 160


_OFTEN_WITH_DEVICES = {
    40: "perDeviceNodeSelection allNodes sharedCounters consumesCounters allowMultipleAllocations tolerations taints version",
    30: "firstAvailable matchAttribute 'All' opaque nodeSelectorTerms",
    10: "distinctAttribute validRange validValues adminAccess shareID reservedFor initContainers bindsToNode",
    5: "DeviceTaintRule bindingConditions resourceClaimStatuses ownerReferences 'strings' unschedulable",
}
"""More often than so often."""


def test_random_scenarios_with_devices_are_rich() -> None:
    """Everything that the plugin looks at occurs, most of it often."""
    drawn = random_device_ones()
    text = str([(one.devices, one.nodes, one.asked, one.feature_gates) for one in drawn])

    assert sum(len(one.nodes) > 1 for one in drawn) > 50
    assert sum(bool(one.feature_gates) for one in drawn) == 20
    for least, words in _OFTEN_WITH_DEVICES.items():
        for word in words.split():
            assert text.count(word) > least, word


def test_at_most_one_claim_of_a_random_pod_can_be_given_back() -> None:
    """Else chance would choose."""
    for one in random_device_ones():
        idle = {
            claim["metadata"]["name"]
            for claim in one.devices.claims
            if "allocation" in claim.get("status", {}) and not _is_held(claim)
        }
        for pod in one.asked.values():
            named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims", ())}
            assert len(idle & named) <= 1, one.key


def _is_held(claim: Json) -> bool:
    return any("stranger" in consumer["name"] for consumer in claim["status"].get("reservedFor", ()))


def test_scenarios_for_one_scheduler_come_one_after_the_other() -> None:
    """The recorder starts another scheduler for each change."""
    kinds = [(bool(one.devices), one.feature_gates) for one in recordable()]

    starts = [kind for kind, _ in itertools.groupby(kinds)]
    assert (starts[0], len(starts)) == ((False, ()), len(set(kinds)))
    assert {one.key for one in scenarios()} <= {one.key for one in recordable()}
