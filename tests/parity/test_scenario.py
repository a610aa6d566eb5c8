"""The short form, admission, and the generator: what the recordings rest on."""

import pytest

from tests.parity.generate import SEEDS, Dice, generate
from tests.parity.scenario import Json, admitted, scenario
from tests.parity.suite import random_ones


@pytest.mark.parametrize(
    "short",
    [
        pytest.param({"id": "x", "asked": {}, "node": {}}, id="of a scenario"),
        pytest.param({"id": "x", "asked": {"p": {"request": {}}}}, id="of a pod"),
        pytest.param({"id": "x", "asked": {}, "nodes": {"a": {"label": {}}}}, id="of a node"),
        pytest.param({"id": "x", "asked": {}, "workloads": {"a": {"kind": "Service", "on": 1}}}, id="of a workload"),
    ],
)
def test_an_unknown_word_is_an_error(short: Json) -> None:
    """A slip of the pen must not make a scenario that tests nothing."""
    with pytest.raises(ValueError, match="no such word"):
        scenario("g", short)


def test_the_short_form_of_a_node() -> None:
    """Short keys, defaults, and a label that is taken away."""
    (node,) = scenario(
        "g",
        {"id": "x", "asked": {}, "nodes": {"a": {"labels": {"zone": "z", "host": None}, "taints": ["k=v:NoExecute"]}}},
    ).nodes

    assert node["metadata"] == {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}}
    assert node["spec"] == {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}
    assert node["status"]["allocatable"]["cpu"] == "4"


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


def test_a_seed_makes_one_scenario() -> None:
    """The same twice, and another for each seed."""
    assert generate(3) == generate(3)
    assert len({one.digest() for one in random_ones()}) == len(SEEDS)


def test_dice_cover_their_range() -> None:
    """Both ends, and no choice twice."""
    dice = Dice(1)

    assert {dice.number(1, 3) for _ in range(100)} == {1, 2, 3}
    assert all(len(set(some)) == len(some) <= 2 for some in (dice.some("abc", 2) for _ in range(100)))


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
