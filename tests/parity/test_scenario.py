"""The short form, admission, and the generator: what the recordings rest on."""

import pytest

from tests.parity.admission import admitted, labelled, priority_classes
from tests.parity.scenario import scenario
from tests.parity.suite import crowds, mixed_ones, random_ones
from tests.parity.words import Json


@pytest.mark.parametrize(
    "short",
    [
        pytest.param({"id": "x", "asked": {}, "node": {}}, id="of a scenario"),
        pytest.param({"id": "x", "asked": {"p": {"request": {}}}}, id="of a pod"),
        pytest.param({"id": "x", "asked": {}, "nodes": {"a": {"label": {}}}}, id="of a node"),
        pytest.param({"id": "x", "asked": {}, "workloads": {"a": {"kind": "Service", "on": 1}}}, id="of a workload"),
        pytest.param({"id": "x", "asked": {}, "waiting": {"a": {"nominate": "b"}}}, id="of a waiting pod"),
        pytest.param({"id": "x", "asked": {}, "budgets": {"a": {"allow": 1}}}, id="of a budget"),
    ],
)
def test_an_unknown_word_is_an_error(short: Json) -> None:
    """A slip of the pen must not make a scenario that tests nothing."""
    with pytest.raises(ValueError, match="no such word"):
        scenario("g", short)


def test_a_priority_without_a_class_is_an_error() -> None:
    """Classes are made once for all scenarios."""
    with pytest.raises(ValueError, match="no class of priority 7"):
        scenario("g", {"id": "x", "asked": {"p": {"priority": 7}}})


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

    affinity = admitted(scenario("g", {"id": "x", "asked": asked}).asked["p"])["spec"]["affinity"]

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
    one = scenario(
        "g",
        {
            "id": "x",
            "nodes": {"a": {"labels": {"zone": "z", "rack": "r"}}, "b": {}},
            "pods": {"on a": {"at": "a", "labels": {"app": "web"}}, "on b": {"at": "b"}, "lost": {"at": "c"}},
            "asked": {},
        },
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
    for word in (
        "minDomains",
        "nodeTaintsPolicy",
        "nodeAffinityPolicy",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "namespaces",
    ):
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
