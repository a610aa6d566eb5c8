"""`--feature-gates` → the gates that are on, refused as kube-scheduler v1.36 refuses it (docs/spec/dra.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.config.types import FEATURE_GATES
from scheduler.core.devicegates import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CLAIM_DEVICE_STATUS,
    DYNAMIC_RESOURCE_ALLOCATION,
    TAINT_RULES,
    TAINTS,
)

_LOCKED: Final = frozenset({DYNAMIC_RESOURCE_ALLOCATION, ADMIN_ACCESS})
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    BINDING_CONDITIONS: (CLAIM_DEVICE_STATUS,),
    TAINT_RULES: (TAINTS,),
}
"""What else has to be on; what is locked cannot be missing."""


def gates_on(asked: Mapping[str, bool]) -> frozenset[str]:
    """The gates that are on after these have been set; those that nobody knows change nothing.

    Raises ValueError, with upstream's text, for one that is locked and for one that needs another which is off.
    """
    for name, wanted in asked.items():
        if name in _LOCKED and wanted is not FEATURE_GATES[name]:
            told = f"cannot set feature gate {name} to {_go(wanted)}"
            raise ValueError(f"{told}, feature is locked to {_go(FEATURE_GATES[name])}")
    on = frozenset(name for name, usually in FEATURE_GATES.items() if asked.get(name, usually))
    for name, needed in _NEEDS.items():
        missing = [other for other in needed if other not in on]
        if name in on and missing:
            raise ValueError(f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]")
    return on


def _go(value: bool) -> str:
    return "true" if value else "false"
