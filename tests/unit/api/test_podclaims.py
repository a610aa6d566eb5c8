"""Which claims a pod uses, and whether an ephemeral one is its own: docs/spec/volumes.md §2.1, rows G13 to G16."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import ClaimUse, claim_uses, not_owned
from tests.support.volumebuilders import a_claim
from tests.unit.objects import pod


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.mark.parametrize(
    ("volumes", "used"),
    [
        pytest.param([{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}], [], id="G1 other sources"),
        pytest.param(
            [{"name": "b", **claim("y")}, {"name": "s", "emptyDir": {}}, {"name": "a", **claim("x")}],
            ["y b", "x a"],
            id="in the order of the volumes",
        ),
        pytest.param(
            [{"name": "v", **claim("c")}, {"name": "w", **claim("c")}], ["c v", "c w"], id="the same claim twice"
        ),
        pytest.param([{"name": "v", **claim("")}], [" v"], id="a claim without a name"),
    ],
)
def test_claims_of_a_pod(volumes: list[dict[str, Any]], used: list[str]) -> None:
    """Claims and ephemeral volumes, nothing else; an ephemeral claim is named after pod and volume."""
    expected = []
    for text in used:
        name, volume, *ephemeral = text.split(" ")
        expected.append(ClaimUse(f"default/{name}", name, bool(ephemeral), volume))

    assert tuple(expected) == claim_uses(pod("p", volumes=volumes))


TEXT = "PVC {ns}/p-v was not created for pod default/p (pod is not owner)"


@pytest.mark.parametrize(
    ("owned", "problem"),
    [
        pytest.param(a_claim("p-v").owned_by("p", "p"), "", id="G14 its controller is the pod"),
        pytest.param(a_claim("p-v").owned_by("p", "other"), TEXT.format(ns="default"), id="G15 of an earlier pod"),
        pytest.param(
            a_claim("p-v").owned_by("p", "p", controller=False), TEXT.format(ns="default"), id="G15 not as controller"
        ),
        pytest.param(
            a_claim("p-v").owned_by("x", "x", controller=False).owned_by("p", "p"), "", id="another owner beside it"
        ),
        pytest.param(
            a_claim("p-v", ns="other").owned_by("p", "p"), TEXT.format(ns="other"), id="G16 in another namespace"
        ),
    ],
)
def test_ownership(owned: Any, problem: str) -> None:
    """By uid; the text is upstream's and shows both namespaces."""
    assert problem == not_owned(pod("p"), owned.typed())
