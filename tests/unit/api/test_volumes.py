"""What can be said of one volume, claim or capacity object alone: docs/spec/volumes.md §0.3, §1.1, §2.3, §3.3.2, §3.4."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    is_for,
)
from tests.support.volumebuilders import a_capacity, a_claim, a_csi_driver, a_csi_node, a_pv


@pytest.mark.parametrize(
    ("claim", "is_bound"),
    [
        pytest.param(a_claim("c").bound_to("v").phase("Pending"), True, id="G17 whatever the phase"),
        pytest.param(a_claim("c").wants("v").phase("Bound"), False, id="G18 without the annotation"),
        pytest.param(a_claim("c").wants("v").annotation(BIND_COMPLETED, ""), True, id="G19 an empty annotation"),
        pytest.param(a_claim("c").annotation(BIND_COMPLETED, "yes"), False, id="without a volume"),
    ],
)
def test_fully_bound(claim: Any, is_bound: bool) -> None:
    assert is_bound is claim.typed().is_fully_bound


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        pytest.param(a_claim("c", "1Gi", "fast").legacy_class("slow"), "slow", id="G25 a claim's annotation"),
        pytest.param(a_claim("c", "1Gi", "fast").legacy_class(""), "", id="a claim's empty annotation"),
        pytest.param(a_pv("v"), "", id="a volume without a class"),
        pytest.param(a_pv("v", "1Gi", "fast").legacy_class("slow"), "slow", id="C20 a volume's annotation"),
    ],
)
def test_class(obj: Any, name: str) -> None:
    """The legacy annotation beats the field, even if it is empty."""
    assert name == obj.typed().storage_class


@pytest.mark.parametrize(
    ("claim", "node_name"),
    [
        pytest.param(a_claim("c").selected("n1"), "n1", id="selected"),
        pytest.param(a_claim("c").annotation(SELECTED_NODE, ""), "", id="F17 selected, but nothing"),
        pytest.param(a_claim("c"), None, id="not selected"),
    ],
)
def test_selected_node(claim: Any, node_name: str | None) -> None:
    """Absent and empty differ."""
    assert node_name == claim.typed().selected_node


@pytest.mark.parametrize(
    ("volume", "is_meant"),
    [
        pytest.param(a_pv("v").claimed_by("c"), True, id="M8 its name, no uid"),
        pytest.param(a_pv("v").claimed_by("c", uid="other"), False, id="M10 an earlier claim of that name"),
        pytest.param(a_pv("v").claimed_by("d", uid="u"), False, id="M11 another claim"),
        pytest.param(a_pv("v").claimed_by("c", "other", uid="u"), False, id="another namespace"),
    ],
)
def test_meant_for_this_very_claim(volume: Any, is_meant: bool) -> None:
    """Gate 2."""
    assert is_meant is is_for(volume.typed(), a_claim("c").uid("u").typed())


@pytest.mark.parametrize(
    ("obj", "limit"),
    [
        pytest.param(a_capacity("o", "D", "1Gi"), 2**30, id="K1 all its room"),
        pytest.param(a_capacity("o", "D", "1Gi").maximum("1Mi"), 2**20, id="K7 the maximum"),
        pytest.param(a_capacity("o", "D", "1Mi").maximum("1Gi"), 2**30, id="K8 the maximum, even if it is larger"),
        pytest.param(a_capacity("o", "D").maximum("0"), 0, id="K9 a maximum of nothing"),
        pytest.param(a_capacity("o", "D", "0"), 0, id="K9 no room"),
        pytest.param(a_capacity("o", "D"), None, id="K9 tells nothing"),
    ],
)
def test_limit(obj: Any, limit: int | None) -> None:
    told = obj.typed().limit

    assert limit == (None if told is None else told.value)


@pytest.mark.parametrize(
    ("request_", "nano"),
    [
        pytest.param("1Gi", 2**30 * 10**9, id="some"),
        pytest.param("0", 0, id="none at all"),
        pytest.param(None, None, id="K13 says nothing"),
    ],
)
def test_request(request_: str | None, nano: int | None) -> None:
    asked = a_claim("c").request(request_).typed().request

    assert nano == (None if asked is None else asked.nano)


def test_a_volume_that_tells_no_size_is_empty() -> None:
    volume = a_pv("v").set({"spec": {"capacity": None}}).typed()

    assert 0 == volume.capacity.nano == volume.capacity.value


def test_drivers() -> None:
    """Limits are only those that are told; migrated plugins are split and not trimmed (F29)."""
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
            id="M19 a claim's wrong selector is told where it matters",
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
    """One broken object is left out; what concerns only one decision is kept until then."""
    read = ObjectDecoder(kind, typ).decode(f'{{"metadata": {{"name": "o"}}, {raw}}}'.encode())

    assert is_broken is isinstance(read, Broken)
