"""Volumes of a simulation, and the admission of new pods: LimitRanges, RuntimeClasses and PriorityClasses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, node, pod
from simulator.controllers import ExternalProvisioner
from simulator.controllers.persistent_volume import PROVISIONED_BY
from simulator.simulate.input.admission import Classes
from simulator.simulate.input.complete import complete, controllers, retie
from simulator.simulate.input.manifests import Found, InputError, load
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import CapacityBuilder, a_capacity, a_claim, a_class, a_csi_node, a_pv
from tests.unit.simulator.stage import server_with

DRIVER = "d.example"
RACK = "example.com/rack"
GI = 1 << 30
PROVISIONER = "volume.kubernetes.io/storage-provisioner"


def loaded(*objects: Builder[object]) -> ApiServer:
    server = server_with(*objects)
    retie(server)
    return server


def run(server: ApiServer) -> list[ExternalProvisioner]:
    return [made for made in controllers(server, VirtualClock()) if isinstance(made, ExternalProvisioner)]


def phases(server: ApiServer) -> dict[str, str]:
    kinds = ("persistentvolumes", "persistentvolumeclaims")
    return {each["metadata"]["name"]: each["status"]["phase"] for kind in kinds for each in server.objects(kind)}


@pytest.mark.parametrize(("objects", "expected"), [
    pytest.param([a_pv("v").claimed_by("c", uid="old").phase("Bound"), a_claim("c").bound_to("v")],
        {"v": "Bound", "c": "Bound"}, id="bound to each other"),
    pytest.param([a_pv("v").claimed_by("c", uid="old"), a_claim("c")], {"v": "Bound", "c": "Bound"},
        id="chosen by a scheduler, and not bound yet"),
    pytest.param([a_pv("v").claimed_by("c", uid="old").phase("Released"), a_claim("c")],
        {"v": "Released", "c": "Pending"}, id="a claim of that name came after the volume's"),
    pytest.param([a_pv("v").claimed_by("gone", uid="old").phase("Bound")], {"v": "Released"},
        id="the claim is not in the dump"),
    pytest.param([a_claim("c").bound_to("gone")], {"c": "Lost"}, id="the volume is not in the dump"),
])  # fmt: skip
def test_claims_and_volumes_of_a_dump(objects: list[Builder[object]], expected: dict[str, str]) -> None:
    server = loaded(*objects)
    run(server)
    assert phases(server) == expected


def test_an_ephemeral_claim_of_a_dump_is_its_pods() -> None:
    user = pod("p").ephemeral("a", storage_class="w").ephemeral("b", storage_class="w")
    server = loaded(a_class("w"), a_claim("p-a", "7Gi", "w").owned_by("p", "old"), user)
    run(server)
    uid = server.get("pods", "p")["metadata"]["uid"]
    owners = {
        each["metadata"]["name"]: each["metadata"]["ownerReferences"]
        for each in server.objects("persistentvolumeclaims")
    }
    assert {name: [owner["uid"] for owner in given] for name, given in owners.items()} == {"p-a": [uid], "p-b": [uid]}


def here(name: str, rack: str, amount: str, class_name: str = "w") -> CapacityBuilder:
    return a_capacity(name, class_name, amount).where(RACK, rack)


async def test_the_capacity_object_follows_new_volumes() -> None:
    """The object of the dump is updated, and no second one is created."""
    room = here("a", "r1", "5Gi").maximum("4Gi")
    server = loaded(node("n").label(RACK, "r1"), a_class("w", DRIVER), room)
    clock = VirtualClock()
    made = controllers(server, clock)
    server.apply(a_claim("c", "2Gi", "w").selected("n").obj())
    server.patch("persistentvolumeclaims", "c", {"metadata": {"annotations": {PROVISIONER: DRIVER}}})
    for _ in range(3):
        await clock.advance(0.1)
        for actor in made:
            actor.step()
    (capacity,) = server.objects("csistoragecapacities")
    assert (capacity["metadata"]["name"], capacity["capacity"]) == ("a", str(3 * GI))
    assert capacity["maximumVolumeSize"] == str(3 * GI), "no volume can be larger than what is left"
    assert len(server.objects("persistentvolumes")) == 1


ZONE = "topology.example.com/zone"
HOSTNAME = "kubernetes.io/hostname"
LOCAL_PATH = "rancher.io/local-path"


@pytest.mark.parametrize(("driver", "further", "expected"), [
    pytest.param(DRIVER, [a_csi_node("n").driver(DRIVER, topology_keys=(RACK,))], {RACK: "r1"}, id="by a label"),
    pytest.param(DRIVER, [a_csi_node("n").driver(DRIVER, topology_keys=("kubernetes.io/os", RACK, ZONE))],
        {"kubernetes.io/os": "linux", RACK: "r1", ZONE: "z1"}, id="by all labels of the driver, as those of AWS EBS"),
    pytest.param(DRIVER, [a_csi_node("n").driver(DRIVER, topology_keys=())], {}, id="from every node"),
    pytest.param(DRIVER, [], {}, id="from every node where no CSINode lists the driver"),
    pytest.param(LOCAL_PATH, [], {HOSTNAME: "host-n"}, id="on the node itself: local-path-provisioner"),
    pytest.param(DRIVER,
        [a_pv("other", "1Gi", "w").set({"metadata": {"annotations": {PROVISIONED_BY: DRIVER}}}).where(ZONE, "z2")],
        {ZONE: "z1"}, id="like a volume that the provisioner made before"),
])  # fmt: skip
def test_the_node_affinity_of_a_new_volume(
    driver: str, further: list[Builder[object]], expected: dict[str, str]
) -> None:
    """Without capacity objects the topology keys of the driver count. Without those every node is allowed."""
    labels = {RACK: "r1", ZONE: "z1", "kubernetes.io/os": "linux", HOSTNAME: "host-n"}
    host = node("n")
    for key, value in labels.items():
        host = host.label(key, value)
    server = loaded(host, a_class("w", driver), *further, a_claim("c", "1Gi", "w").selected("n"))
    run(server)
    (volume,) = (each for each in server.objects("persistentvolumes") if each["metadata"]["name"] != "other")
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    found = {one["key"]: one["values"] for term in terms for one in term["matchExpressions"]}
    assert found == {key: [value] for key, value in expected.items()}
    assert phases(server)["c"] == "Bound"


def test_an_in_tree_class_has_its_csi_driver() -> None:
    server = loaded(node("n"), a_class("gp2", "kubernetes.io/aws-ebs"), a_claim("c", "1Gi", "gp2").selected("n"))
    (provisioner,) = run(server)
    assert provisioner.driver == "ebs.csi.aws.com"
    assert phases(server)["c"] == "Bound"


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


def of_pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
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


@pytest.mark.parametrize(("items", "given", "requests"), [
    pytest.param([container(defaultRequest={"cpu": "1"})], {}, {"cpu": "1"}, id="a default"),
    pytest.param([container(default={"cpu": "2"})], {}, {"cpu": "2"}, id="the default limit"),
    pytest.param([container(max={"cpu": "4"})], {}, {"cpu": "4"}, id="the maximum, without a limit"),
    pytest.param([container(min={"cpu": "50m"})], {}, {"cpu": "50m"}, id="the minimum, without anything else"),
    pytest.param([container(max={"cpu": "4"}, min={"cpu": "50m"}, default={"cpu": "2"}, defaultRequest={"cpu": "1"})],
        {}, {"cpu": "1"}, id="default request before default limit, maximum and minimum"),
    pytest.param([container(defaultRequest={"cpu": "1", "memory": "1Gi"})], {"requests": {"cpu": "3"}},
        {"cpu": "3", "memory": "1Gi"}, id="the request of the container counts"),
    pytest.param([container(defaultRequest={"cpu": "1"})], {"limits": {"cpu": "5"}}, {"cpu": "5"},
        id="the limit of the container counts"),
    pytest.param([{"type": "Pod", "max": {"cpu": "1"}}], {}, {}, id="limits of pods default nothing"),
    pytest.param([container(defaultRequest={"cpu": "1"}), container(defaultRequest={"cpu": "2"})], {}, {"cpu": "2"},
        id="the last item of an object counts"),
])  # fmt: skip
def test_limit_ranges(
    tmp_path: Path, items: list[dict[str, Any]], given: dict[str, Any], requests: dict[str, str]
) -> None:
    first = [{"name": "first", "resources": given}]
    spec = admitted(tmp_path, limits(*items), of_pod(given, initContainers=first))

    for each in (*spec["containers"], *spec["initContainers"]):
        assert each["resources"].get("requests", {}) == requests


def test_a_limit_range_of_another_namespace(tmp_path: Path) -> None:
    spec = admitted(tmp_path, limits(container(defaultRequest={"cpu": "1"}), namespace="other"), of_pod())

    assert spec["containers"][0]["resources"] == {}


def test_pod_level_requests_are_completed_first(tmp_path: Path) -> None:
    """Defaulting comes before admission."""
    asked = {"limits": {"cpu": "4"}}
    spec = admitted(tmp_path, limits(container(defaultRequest={"cpu": "1"})), of_pod(resources=asked))

    assert spec["resources"]["requests"] == {"cpu": "4"}


def test_a_runtime_class(tmp_path: Path) -> None:
    own = {"key": "own", "operator": "Exists"}
    spec = admitted(tmp_path, KATA, of_pod(runtimeClassName="kata", nodeSelector={"disk": "ssd"}, tolerations=[own]))

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
    spec = admitted(tmp_path, KATA, PLAIN, limits(), of_pod(**fields))

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
        admitted(tmp_path, KATA, of_pod(**fields))

    assert str(refused.value).endswith(said)


def test_an_equal_overhead_in_another_unit(tmp_path: Path) -> None:
    spec = admitted(tmp_path, KATA, of_pod(runtimeClassName="kata", overhead={"cpu": "0.25", "memory": "120Mi"}))

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
        admitted(tmp_path, broken, of_pod())

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


@pytest.mark.parametrize(("spec", "classes", "name", "made_up"), [
    pytest.param({"priorityClassName": "meek"}, {"meek": MEEK}, "meek", [], id="the class has Never"),
    pytest.param({"priorityClassName": "meek", "priority": 7, "preemptionPolicy": "Never"}, {"meek": MEEK}, "meek", [],
        id="the pod of a dump repeats it"),
    pytest.param({"priority": 7, "preemptionPolicy": "Never"}, {}, "priority-7-never",
        [("priority-7-never", 7, "Never")], id="a dump without classes"),
    pytest.param({"preemptionPolicy": "Never"}, {"usual": USUAL}, "priority-5-never",
        [("priority-5-never", 5, "Never")], id="another policy than the default class"),
    pytest.param({"priority": 5, "preemptionPolicy": "PreemptLowerPriority"}, {"usual": USUAL}, None, [],
        id="the default class"),
    pytest.param({"priority": 7}, {"seven": {"value": 7}}, "seven", [], id="a class of this value"),
    pytest.param({"priority": 2_000_001_000}, {}, "system-node-critical", [], id="a system class"),
])  # fmt: skip
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


@pytest.mark.parametrize(("spec", "classes", "said"), [
    pytest.param({"preemptionPolicy": "Maybe"}, {}, "p: spec.preemptionPolicy: must be Never or ",
        id="the pod's policy"),
    pytest.param({}, {"c": {"value": 1, "preemptionPolicy": 7}}, "c: preemptionPolicy: must be Never or ",
        id="the class's"),
    pytest.param({}, {"c": {"value": True}}, "c: value: must be a number, got True", id="the class's value"),
    pytest.param({}, {"c": {}}, "c: value: must be a number, got None", id="no value"),
])  # fmt: skip
def test_mistakes(spec: dict[str, Any], classes: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError) as wrong:
        settled(spec, **classes)

    assert str(wrong.value).startswith(said)
