"""LimitRanges, RuntimeClasses and PriorityClasses: admission of a new pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.simulate.input.admission import Classes
from simulator.simulate.input.complete import complete
from simulator.simulate.input.manifests import Found, InputError, load

KATA: dict[str, Any] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    "scheduling": {
        "nodeSelector": {"runtime": "kata"},
        "tolerations": [{"key": "kata", "operator": "Exists", "effect": "NoSchedule"}],
    },
}
PLAIN = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "plain"}, "handler": "runc"}


def limits(*items: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": "limits", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": list(items)}}


def container(**fields: Any) -> dict[str, Any]:
    return {"type": "Container"} | fields


def pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    named = [{"name": f"c{at}", "resources": resources} for at, resources in enumerate(containers or ({},))]
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": named} | spec}
    return manifest if status is None else manifest | {"status": status}


def admitted(tmp_path: Path, *objects: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the only object that is left."""
    file = tmp_path / "in.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    (found,) = complete(load([str(file)]).objects).objects
    spec: dict[str, Any] = found.value["spec"]
    return spec


@pytest.mark.parametrize(
    ("items", "given", "requests"),
    [
        pytest.param([container(defaultRequest={"cpu": "1"})], {}, {"cpu": "1"}, id="a default"),
        pytest.param([container(default={"cpu": "2"})], {}, {"cpu": "2"}, id="the default limit"),
        pytest.param([container(max={"cpu": "4"})], {}, {"cpu": "4"}, id="the maximum, without a limit"),
        pytest.param([container(min={"cpu": "50m"})], {}, {"cpu": "50m"}, id="the minimum, without anything else"),
        pytest.param(
            [container(max={"cpu": "4"}, min={"cpu": "50m"}, default={"cpu": "2"}, defaultRequest={"cpu": "1"})],
            {},
            {"cpu": "1"},
            id="default request before default limit, maximum and minimum",
        ),
        pytest.param(
            [container(defaultRequest={"cpu": "1", "memory": "1Gi"})],
            {"requests": {"cpu": "3"}},
            {"cpu": "3", "memory": "1Gi"},
            id="the request of the container counts",
        ),
        pytest.param(
            [container(defaultRequest={"cpu": "1"})],
            {"limits": {"cpu": "5"}},
            {"cpu": "5"},
            id="the limit of the container counts",
        ),
        pytest.param([{"type": "Pod", "max": {"cpu": "1"}}], {}, {}, id="limits of pods default nothing"),
        pytest.param(
            [container(defaultRequest={"cpu": "1"}), container(defaultRequest={"cpu": "2"})],
            {},
            {"cpu": "2"},
            id="the last item of an object counts",
        ),
    ],
)
def test_limit_ranges(
    tmp_path: Path, items: list[dict[str, Any]], given: dict[str, Any], requests: dict[str, str]
) -> None:
    first = [{"name": "first", "resources": given}]
    spec = admitted(tmp_path, limits(*items), pod(given, initContainers=first))

    for each in (*spec["containers"], *spec["initContainers"]):
        assert each["resources"].get("requests", {}) == requests


def test_a_limit_range_of_another_namespace(tmp_path: Path) -> None:
    spec = admitted(tmp_path, limits(container(defaultRequest={"cpu": "1"}), namespace="other"), pod())

    assert spec["containers"][0]["resources"] == {}


def test_pod_level_requests_are_completed_first(tmp_path: Path) -> None:
    """Defaulting comes before admission."""
    asked = {"limits": {"cpu": "4"}}
    spec = admitted(tmp_path, limits(container(defaultRequest={"cpu": "1"})), pod(resources=asked))

    assert spec["resources"]["requests"] == {"cpu": "4"}


def test_a_runtime_class(tmp_path: Path) -> None:
    own = {"key": "own", "operator": "Exists"}
    spec = admitted(tmp_path, KATA, pod(runtimeClassName="kata", nodeSelector={"disk": "ssd"}, tolerations=[own]))

    assert spec["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "kata"}
    assert spec["tolerations"] == [own, *KATA["scheduling"]["tolerations"]]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        pytest.param({}, {}, id="without a class"),
        pytest.param({"runtimeClassName": "plain"}, {}, id="a class that adds nothing"),
        pytest.param(
            {"runtimeClassName": "kata", "status": {"phase": "Pending"}}, {}, id="a pod that a server has admitted"
        ),
        pytest.param(
            {"runtimeClassName": "gone", "status": {"phase": "Running"}, "overhead": {"cpu": "1"}, "nodeName": "n"},
            {"overhead": {"cpu": "1"}},
            id="also where its class is gone",
        ),
    ],
)
def test_pods_that_are_not_changed(tmp_path: Path, fields: dict[str, Any], kept: dict[str, Any]) -> None:
    spec = admitted(tmp_path, KATA, PLAIN, limits(), pod(**fields))

    assert {key: spec[key] for key in ("overhead", "nodeSelector", "tolerations") if key in spec} == kept


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(
            {"runtimeClassName": "gvisor"},
            "spec.runtimeClassName: no RuntimeClass 'gvisor' among the objects",
            id="an unknown class",
        ),
        pytest.param(
            {"runtimeClassName": "kat"},
            "spec.runtimeClassName: no RuntimeClass 'kat' among the objects; did you mean kata?",
            id="a class with a similar name",
        ),
        pytest.param(
            {"priorityClassName": "system-critical"},
            "spec.priorityClassName: no PriorityClass 'system-critical' among the objects; did you mean"
            " system-node-critical?",
            id="a priority class with a similar name",
        ),
        pytest.param(
            {"runtimeClassName": "kata", "nodeSelector": {"runtime": "runc"}},
            "spec.nodeSelector: conflict: runtimeClass.scheduling.nodeSelector[runtime] = kata; "
            "pod.spec.nodeSelector[runtime] = runc",
            id="another label",
        ),
        pytest.param(
            {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
            "spec.overhead: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            id="another overhead",
        ),
    ],
)
def test_pods_that_admission_refuses(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r"document 1") as refused:
        admitted(tmp_path, KATA, pod(**fields))

    assert str(refused.value).endswith(said)


def test_an_equal_overhead_in_another_unit(tmp_path: Path) -> None:
    spec = admitted(tmp_path, KATA, pod(runtimeClassName="kata", overhead={"cpu": "0.25", "memory": "120Mi"}))

    assert spec["overhead"] == KATA["overhead"]["podFixed"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(limits(container(min={"cpu": "much"})), "spec.limits[0].min", id="a LimitRange"),
        pytest.param(KATA | {"overhead": {"podFixed": {"cpu": "much"}}}, "overhead.podFixed", id="a RuntimeClass"),
    ],
)
def test_unreadable_classes_and_limits(tmp_path: Path, broken: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        admitted(tmp_path, broken, pod())

    assert said in str(refused.value)


# -- priority classes -----------------------------------------------------------------------------------------------------


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
