"""The stable codes of reasons and of changes (docs/explain.md). Texts of conditions and events stay upstream's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.framework.status import Code, Rejection

CLAIM_UNUSABLE: Final = "ClaimUnusable"
NOT_BOUND: Final = "ClaimNotBound"
"""The code of a claim that the PV controller binds."""

BY_PLUGIN: Final[Mapping[str, str]] = {
    "NodeResourcesFit": "InsufficientResources",
    "TaintToleration": "UntoleratedTaint",
    "NodeUnschedulable": "NodeCordoned",
    "NodeName": "OtherNodeNamed",
    "NodeAffinity": "NodeAffinityMismatch",
    "NodePorts": "HostPortInUse",
    "InterPodAffinity": "PodAffinityUnsatisfied",
    "PodTopologySpread": "SpreadConstraintViolated",
    "VolumeBinding": "VolumeUnavailable",
    "VolumeZone": "VolumeZoneMismatch",
    "VolumeRestrictions": "VolumeInUse",
    "NodeVolumeLimits": "AttachLimitReached",
    "DynamicResources": "DevicesUnavailable",
    "NodeDeclaredFeatures": "NodeLacksFeature",
    "SchedulingGates": "Gated",
    "GangScheduling": "GroupUnschedulable",
    "NominatedPods": "CapacityNominated",
}
"""The code of a plugin's rejection without a cause."""


def code_of(rejection: Rejection) -> str:
    if rejection.code is Code.ERROR:
        return "Error"
    return rejection.cause or BY_PLUGIN.get(rejection.plugin, rejection.plugin)
