"""Fixes of pods with device claims: templates, device classes, and holders whose controllers create them again."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.decode import Delta
from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation
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
    sched.parts.intake.apply("Pod", [Delta(None, read_pod(raw))])


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
    sched.parts.intake.apply("Pod", [Delta(None, read_pod(raw))])
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
