"""kube-scheduler's feature gates: what is on without a flag, and what cannot be set (docs/spec/dra.md §6)."""

from __future__ import annotations

import contextlib

import pytest

from scheduler.config.load import gates_on
from scheduler.config.types import FEATURE_GATES, GATES_ON, Configuration
from scheduler.core.feature_gates import CHANGES, DEVICE_GATES_ON, GATES, VERSIONS, defaults

DEPENDS = "is enabled, but depends on features that are disabled:"


def test_what_is_on_without_a_flag() -> None:
    """v1.36's defaults, in a configuration that is made in code too."""
    assert GATES_ON == DEVICE_GATES_ON == Configuration().feature_gates == gates_on({})
    assert frozenset(FEATURE_GATES) > DEVICE_GATES_ON


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        pytest.param({"DRAExtendedResource": False}, {"DRAExtendedResource"}, id="off"),
        pytest.param({"DRADeviceTaintRules": True}, {"DRADeviceTaintRules"}, id="on"),
        pytest.param({"DRAPrioritizedList": False}, {"DRAPrioritizedList"}, id="general availability is no lock"),
        pytest.param({"DynamicResourceAllocation": True, "DRAListTypeAttributes": False}, set(), id="as it is already"),
        pytest.param(
            {"DRAResourceClaimDeviceStatus": False, "DRADeviceBindingConditions": False},
            {"DRAResourceClaimDeviceStatus", "DRADeviceBindingConditions"},
            id="off, together with what needs it",
        ),
        pytest.param({"Foo": True, "Bar": False}, set(), id="unknown gates"),
    ],
)
def test_what_flags_change(flags: dict[str, bool], changed: set[str]) -> None:
    assert gates_on(flags) ^ GATES_ON == changed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"DRAAdminAccess": False}, "cannot set feature gate DRAAdminAccess to false, feature is locked to true"),
        (
            {"DRAResourceClaimDeviceStatus": False},
            f"DRADeviceBindingConditions {DEPENDS} [DRAResourceClaimDeviceStatus]",
        ),
        ({"DRADeviceTaintRules": True, "DRADeviceTaints": False}, f"DRADeviceTaintRules {DEPENDS} [DRADeviceTaints]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_is_refused(flags: dict[str, bool], said: str) -> None:
    """In upstream's words."""
    with pytest.raises(ValueError) as refused:
        gates_on(flags)

    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        pytest.param("SchedulerQueueingHints", ["1.36"], id="locked in 1.36, gone in 1.37"),
        pytest.param("SidecarContainers", ["1.36"], id="sidecars: locked in 1.36, gone in 1.37"),
        pytest.param("NodeDeclaredFeatures", ["1.37"], id="locked in 1.37"),
        pytest.param("DRAExtendedResource", ["1.37"], id="extended resources: locked in 1.37"),
        pytest.param("InPlacePodVerticalScaling", ["1.36", "1.37"], id="locked in both"),
        pytest.param("SchedulerAsyncAPICalls", [], id="locked in neither"),
    ],
)
def test_a_locked_gate_is_refused_in_its_versions(name: str, versions: list[str]) -> None:
    """Also a gate that has no effect here; and a gate that is on may be named."""
    refused = []
    for version in VERSIONS:
        gates_on({name: name != "SchedulerAsyncAPICalls"}, version)
        with contextlib.suppress(ValueError):
            gates_on({name: False}, version)
            continue
        refused.append(version)

    assert refused == versions


@pytest.mark.parametrize("version", VERSIONS)
def test_gates_and_changes_of_a_version(version: str) -> None:
    """What is on without a flag; 1.36 has no changes."""
    assert gates_on({}, version) == defaults(version)
    assert (CHANGES[version] == frozenset()) == (version == "1.36")
    assert not CHANGES[version] & GATES.keys()
