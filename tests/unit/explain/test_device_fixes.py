"""Fixes of pods with device claims: templates, device classes, and holders whose controllers create them again."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.decode import Delta
from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation, as_text
from simulator.builders.claims import a_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.harness import manifest, read_pod
from tests.unit.scenarios.device_harness import DeviceHarness

NO_SUCH = 'device.driver == "none"'
OF_DRIVER = 'device.driver == "drv"'
SMALL = 'device.attributes["drv"].at < 0'


def explained(sched: DeviceHarness) -> Explanation:
    sched.parts.inbox.apply()
    found = finish(sched.parts.explainer.explain("default/p"))
    assert found is not None
    return found


def texts(found: Explanation) -> list[str]:
    """Return the texts of the verified fixes."""
    return ["; ".join(change.text for change in fix.changes) for fix in found.fixes if fix.verified]


def comes(sched: DeviceHarness, *templates: str) -> None:
    """Show a pod whose claims `c-0`, `c-1` … were made from these templates."""
    raw = manifest("p", uid="uid-p")
    raw["spec"]["resourceClaims"] = [
        {"name": f"r{at}", "resourceClaimTemplateName": name} for at, name in enumerate(templates)
    ]
    raw["status"]["resourceClaimStatuses"] = [
        {"name": f"r{at}", "resourceClaimName": f"c-{at}"} for at, _ in enumerate(templates)
    ]
    sched.parts.event_handlers.apply("Pod", [Delta(None, read_pod(raw))])


@pytest.mark.parametrize("count", [1, 2])
def test_a_claim_of_a_template_is_changed_in_the_template(count: int) -> None:
    sched = DeviceHarness(devices=2)
    for at in range(count):
        sched.show(a_claim(f"c-{at}").uid(f"c-{at}").request("r", "gpu", cel=(NO_SUCH,)).owned_by("p", "uid-p"))
    comes(sched, *["t"] * count)

    found = explained(sched)

    text = f"create ResourceClaimTemplate default/t again without the selector {NO_SUCH} of request r, and then the pod"
    assert texts(found) == [text]
    (edit,) = found.fixes[0].edits
    assert (edit.verb, edit.kind, edit.key) == ("patch", "ResourceClaimTemplate", "default/t")
    assert [(step.op, step.path) for step in edit.patch] == [
        ("remove", "/spec/spec/devices/requests/0/exactly/selectors/0")
    ]


def test_the_count_of_a_template_is_lowered_to_the_most_that_fits() -> None:
    sched = DeviceHarness(devices=3)
    sched.show(a_claim("c-0").uid("c-0").request("r", "gpu", count=5).owned_by("p", "uid-p"))
    comes(sched, "t")

    found = explained(sched)

    again = "create ResourceClaimTemplate default/t again"
    assert texts(found) == [f"{again} with 3 instead of 5 devices in request r, and then the pod"]


@pytest.mark.parametrize(("classes", "named", "expected"), [
    pytest.param({"nic": 'device.driver == "nic"', "gpus": OF_DRIVER}, "gone", ["gpu", "gpus", "nic"], id="a class that does not exist"),
    pytest.param({"small": SMALL, "nic": 'device.driver == "nic"'}, "small", [], id="a class that selects no device"),
    pytest.param({"d0": 'device.attributes["drv"].at == 0', "all": OF_DRIVER, "nic": 'device.driver == "nic"'}, "d0", ["all", "gpu"], id="a class of the same driver"),
])  # fmt: skip
def test_other_device_classes_have_the_same_driver(classes: dict[str, str], named: str, expected: list[str]) -> None:
    """The device `d0` is taken, and devices of another driver are free."""
    sched = DeviceHarness(devices=2)
    sched.holds("c-held", "d0")
    for name, expression in classes.items():
        sched.show(a_device_class(name, expression))
    sched.show(a_slice("n1", "nic", a_device("x0")))
    sched.show(a_claim("c-p").uid("c-p").request("r", named))
    sched.uses("p", "c-p")

    found = explained(sched)

    offered = {text for text in texts(found) if "device class" in text}
    assert offered <= {
        f"create claim default/c-p again with device class {other} instead of {named} in r" for other in expected
    }
    assert bool(offered) == bool(expected)


@pytest.mark.parametrize(("owner", "is_offered"), [
    pytest.param(None, True, id="without a controller"),
    pytest.param("ReplicaSet", False, id="of a ReplicaSet, which takes the device again"),
    pytest.param("DaemonSet", False, id="of a DaemonSet"),
])  # fmt: skip
def test_the_holder_of_a_device(owner: str | None, is_offered: bool) -> None:
    sched = DeviceHarness()
    sched.holds("c-h", "d0", users=("h",))
    raw: dict[str, Any] = manifest("h", on="n1")
    raw["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": "c-h"}]
    if owner is not None:
        raw["metadata"]["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    sched.parts.event_handlers.apply("Pod", [Delta(None, read_pod(raw))])
    sched.comes("p")

    found = explained(sched)

    assert ("delete pod default/h on node n1" in texts(found)) == is_offered


def test_the_taint_of_a_device_that_all_nodes_share_is_tolerated() -> None:
    sched = DeviceHarness(devices=0)
    sched.show(a_slice("shared", "drv", a_device("x0").taint("broken", "x", "NoSchedule")).everywhere())
    sched.comes("p")

    assert "create claim default/c-p again with a toleration of broken:NoSchedule in request r" in texts(
        explained(sched)
    )


UNHEALTHY = "gpu.example.com/unhealthy"
SHARE: dict[str, Any] = {"capacity": {"memory": "10Gi"}}
AGAIN = "create claim default/c-p again"
OF_R = "devices for request r of claim default/c-p"


def shared_device(sched: DeviceHarness) -> None:
    sched.show(a_slice("n1", "drv", a_device("d0").cap("memory", "40Gi").shared()))


CAUSES = [
    pytest.param(
        [a_slice("n1", "drv", a_device("d0").cap("memory", "40Gi").shared())],
        {"capacity": {"memroy": "10Gi"}},
        [f"{AGAIN} with capacity memory instead of memroy, which no device of the node has, in request r"],
        [
            f"{OF_R} (1 of class gpu on one node): 1 in the cluster, 0 in use, 1 excluded by capacity, 0 free, at most 0 on one node",
            "  no device of the class has a capacity memroy; the nearest name is memory",
        ],
        id="a mistyped capacity",
    ),
    pytest.param(
        [a_slice("n1", "drv", a_device("d0").cap("memory", "40Gi").shared())],
        {"capacity": {"zzz": "10Gi"}},
        [],
        [
            f"{OF_R} (1 of class gpu on one node): 1 in the cluster, 0 in use, 1 excluded by capacity, 0 free, at most 0 on one node",
            "  no device of the class has a capacity zzz",
        ],
        id="an unknown capacity",
    ),
    pytest.param(
        [a_slice("n1", "drv", a_device("d0").cap("memory", "40Gi").shared())],
        SHARE | {"count": 2},
        [f"{AGAIN} with 2 requests of one device instead of request r of 2: each can have a share of one device"],
        [
            f"{OF_R} (2 of class gpu on one node): 1 in the cluster, 0 in use, 1 free, at most 1 on one node",
            "  a request takes each shared device at most once; several requests of one device can share it",
        ],
        id="two shares of one device",
    ),
    pytest.param(
        [a_slice("n1", "drv", a_device("d0")).of(2)],
        {},
        [],
        [
            f"{OF_R} (1 of class gpu on one node): 0 in the cluster, 0 in use, 0 free, at most 0 on one node",
            "pool n1 of driver drv is incomplete: 1 of 2 ResourceSlices are published",
        ],
        id="a pool with a missing slice",
    ),
    pytest.param(
        [a_slice("n1", "drv", a_device("d0").taint(UNHEALTHY))],
        {},
        [],
        [
            f"{OF_R} (1 of class gpu on one node): 1 in the cluster, 0 in use, 1 excluded by taint, 0 free, at most 0 on one node",
            f"  taint that is not tolerated: {UNHEALTHY}:NoSchedule",
        ],
        id="the taint of a driver",
    ),
]


@pytest.mark.parametrize(("objects", "asked", "fixes", "lines"), CAUSES)
def test_the_cause_of_missing_devices(
    objects: list[Any], asked: dict[str, Any], fixes: list[str], lines: list[str]
) -> None:
    sched = DeviceHarness(devices=0)
    sched.show(*objects, a_claim("c-p").uid("c-p").request("r", "gpu", **asked))
    sched.uses("p", "c-p")

    found = explained(sched)

    assert texts(found) == fixes
    shown = as_text(found).splitlines()
    assert [line for line in shown if line in lines] == lines, shown


def test_devices_in_use_are_counted_in_the_text() -> None:
    sched = DeviceHarness(devices=3)
    sched.holds("c-held", "d0", "d1")
    sched.comes("p", count=2)

    counts = "3 in the cluster, 2 in use, 1 free, at most 1 on one node"
    assert f"{OF_R} (2 of class gpu on one node): {counts}\n" in as_text(explained(sched))


@pytest.mark.parametrize(("constrained", "count", "names"), [
    pytest.param(True, 2, ("r",), id="a constraint that names the request"),
    pytest.param(False, 9, ("r",), id="too many devices"),
    pytest.param(False, 2, ("r", "r-2"), id="a request that has the name already"),
])  # fmt: skip
def test_requests_that_are_not_split(constrained: bool, count: int, names: tuple[str, ...]) -> None:
    sched = DeviceHarness(devices=0)
    shared_device(sched)
    claim = a_claim("c-p").uid("c-p")
    for name in names:
        claim = claim.request(name, "gpu", count=count if name == "r" else 1, **SHARE)
    sched.show(claim.match("drv/at", "r") if constrained else claim)
    sched.uses("p", "c-p")

    assert "SplitDeviceRequest" not in {change.code for fix in explained(sched).fixes for change in fix.changes}


def test_the_error_that_ends_an_attempt_is_named() -> None:
    """One node has a device on which the selector fails, and the other one would fit."""
    sched = DeviceHarness(devices=0, nodes=("n1", "n2"))
    sched.show(a_slice("n1", "drv", a_device("d0")))
    sched.show(a_slice("n2", "drv", a_device("d0").attr("drv/at", 1)))
    sched.comes("p", 'device.attributes["drv"].at > 0')

    found = explained(sched)

    assert (found.verdict, found.code) == ("doesNotFit", "Error")
    assert found.cause.startswith("an attempt ends in an error of DynamicResources: claim default/c-p: selector #0: ")
    assert found.cause.endswith("; without it no plugin rejects 1 of 2 nodes")
    assert "claim default/c-p: selector #0 of request r breaks on device drv/n1/d0: " in as_text(found)


def test_an_error_on_a_node_that_another_plugin_rejects_ends_no_attempt() -> None:
    sched = DeviceHarness(devices=0, nodes=("n1", "n2"))
    sched.node("n1", unschedulable=True)
    sched.show(a_slice("n1", "drv", a_device("d0")))
    sched.show(a_slice("n2", "drv", a_device("d0").attr("drv/at", 1)))
    sched.comes("p", 'device.attributes["drv"].at > 1')

    found = explained(sched)

    assert found.cause.startswith("none of 2 nodes fits: ")
