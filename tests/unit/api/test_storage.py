"""Rules on one volume, claim or capacity object: docs/spec/volumes.md §0.3, §1.1, §2.1, §2.3, §3.3.2, §3.4."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.storage_v1 import (
    ClaimUse,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    claim_uses,
    not_owned,
)
from tests.support.volumebuilders import a_claim, a_csi_driver, a_csi_node
from tests.unit.objects import pod


def test_drivers() -> None:
    """Only reported limits count; migrated plugins are split and not trimmed (F29)."""
    told = a_csi_node("n").driver("a", 3).driver("b").driver("c", 0).migrated("x", " y").typed()

    assert {"a": 3, "c": 0} == told.limits
    assert {"x", " y"} == told.migrated_plugins
    assert frozenset() == a_csi_node("n").typed().migrated_plugins
    assert [False, False, True] == [
        each.typed().tracks_capacity
        for each in (a_csi_driver("d"), a_csi_driver("d").tracks_capacity(False), a_csi_driver("d").tracks_capacity())
    ]


@pytest.mark.parametrize(
    ("kind", "typ", "raw", "is_broken"),
    [
        pytest.param("PersistentVolume", PersistentVolume, '"spec": {"nodeAffinity": null}', False, id="nulls"),
        pytest.param(
            "PersistentVolume",
            PersistentVolume,
            '"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", '
            '"operator": "Never"}]}]}}}',
            False,
            id="a term that cannot be parsed is a matter of the term",
        ),
        pytest.param(
            "PersistentVolumeClaim",
            PersistentVolumeClaim,
            '"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "Never"}]}}',
            False,
            id="M19 a claim's wrong selector is reported by Filter",
        ),
        pytest.param(
            "CSIStorageCapacity",
            CSIStorageCapacity,
            '"nodeTopology": {"matchExpressions": [{"key": "k", "operator": "Never"}]}',
            True,
            id="K11 a capacity object's wrong selector",
        ),
    ],
)
def test_what_can_be_read(kind: str, typ: type[Any], raw: str, is_broken: bool) -> None:
    read = ObjectDecoder(kind, typ).decode(f'{{"metadata": {{"name": "o"}}, {raw}}}'.encode())

    assert is_broken is isinstance(read, Broken)


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
        pytest.param([{"name": "v", **claim("c")}, {"name": "w", **claim("c")}], ["c v", "c w"], id="one claim twice"),
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
        pytest.param(a_claim("p-v").owned_by("x", "x", controller=False).owned_by("p", "p"), "", id="two owners"),
        pytest.param(
            a_claim("p-v", ns="other").owned_by("p", "p"), TEXT.format(ns="other"), id="G16 in another namespace"
        ),
    ],
)
def test_ownership(owned: Any, problem: str) -> None:
    """By uid; the text is upstream's and shows both namespaces."""
    assert problem == not_owned(pod("p"), owned.typed())
