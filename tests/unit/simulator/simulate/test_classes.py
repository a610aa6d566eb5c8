"""Priority classes that give pods the priorities and policies of the manifests."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.simulate.input.admission import Classes
from simulator.simulate.input.manifests import Found, InputError

MEEK = {"value": 7, "preemptionPolicy": "Never"}
USUAL = {"value": 5, "globalDefault": True}


def priority_class(name: str, **rest: Any) -> Found:
    return Found({"apiVersion": "v1", "kind": "PriorityClass", "metadata": {"name": name}, **rest}, name)


def settled(spec: dict[str, Any], **classes: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The pod's spec, and the classes made up for it: name, value, policy."""
    known = Classes(priority_class(name, **rest) for name, rest in classes.items())
    spec = dict(spec)
    known.settle(Found({"kind": "Pod", "metadata": {"name": "p"}}, "p"), spec)
    made_up = [found.value for found in known.made_up()]
    return spec, [(made["metadata"]["name"], made["value"], made["preemptionPolicy"]) for made in made_up]


@pytest.mark.parametrize(
    ("spec", "classes", "name", "made_up"),
    [
        pytest.param({"priorityClassName": "meek"}, {"meek": MEEK}, "meek", [], id="the class has Never"),
        pytest.param(
            {"priorityClassName": "meek", "priority": 7, "preemptionPolicy": "Never"},
            {"meek": MEEK},
            "meek",
            [],
            id="the pod of a dump repeats it",
        ),
        pytest.param(
            {"priority": 7, "preemptionPolicy": "Never"},
            {},
            "priority-7-never",
            [("priority-7-never", 7, "Never")],
            id="a dump without classes",
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            {"usual": USUAL},
            "priority-5-never",
            [("priority-5-never", 5, "Never")],
            id="another policy than the default class",
        ),
        pytest.param(
            {"priority": 5, "preemptionPolicy": "PreemptLowerPriority"},
            {"usual": USUAL},
            None,
            [],
            id="the default class",
        ),
        pytest.param({"priority": 7}, {"seven": {"value": 7}}, "seven", [], id="a class of this value"),
        pytest.param({"priority": 2_000_001_000}, {}, "system-node-critical", [], id="a system class"),
    ],
)
def test_policies_have_classes(
    spec: dict[str, Any], classes: dict[str, dict[str, Any]], name: str | None, made_up: list[tuple[Any, ...]]
) -> None:
    assert settled(spec, **classes) == ({"priorityClassName": name} if name else {}, made_up)


def test_one_class_is_made_up_for_many_pods() -> None:
    known = Classes([])
    specs: list[dict[str, Any]] = [{"priority": 3}, {"priority": 3}, {"priority": -3}]
    for spec in specs:
        known.settle(Found({"kind": "Pod", "metadata": {"name": "p"}}, "p"), spec)

    assert [spec["priorityClassName"] for spec in specs] == ["priority-3", "priority-3", "priority-minus-3"]
    assert [found.name for found in known.made_up()] == ["priority-3", "priority-minus-3"]


@pytest.mark.parametrize(
    ("spec", "classes", "said"),
    [
        pytest.param(
            {"preemptionPolicy": "Maybe"}, {}, "p: spec.preemptionPolicy: must be Never or ", id="the pod's policy"
        ),
        pytest.param(
            {}, {"c": {"value": 1, "preemptionPolicy": 7}}, "c: preemptionPolicy: must be Never or ", id="the class's"
        ),
        pytest.param({}, {"c": {"value": True}}, "c: value: must be a number, got True", id="the class's value"),
        pytest.param({}, {"c": {}}, "c: value: must be a number, got None", id="no value"),
    ],
)
def test_mistakes(spec: dict[str, Any], classes: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError) as wrong:
        settled(spec, **classes)

    assert str(wrong.value).startswith(said)
