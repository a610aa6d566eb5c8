"""Which of a pod's requests a device class serves where the node itself has nothing of them (docs/spec/dra.md §3.12).

Three plugins must agree on that: whoever checks room on nodes leaves such a request to whoever allocates devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.cache.deviceclasses import DeviceClasses
from scheduler.core.devicegates import DYNAMIC_RESOURCE_ALLOCATION, EXTENDED_RESOURCE
from scheduler.core.resourceclaims import IMPLICIT_EXTENDED_RESOURCE
from scheduler.core.resources import is_extended

NONE_SERVED: Final[frozenset[str]] = frozenset()
_GATES: Final = frozenset({DYNAMIC_RESOURCE_ALLOCATION, EXTENDED_RESOURCE})


def may_be_devices(name: str) -> bool:
    """Whether a class may serve a resource of this name at all."""
    return is_extended(name) or name.startswith(IMPLICIT_EXTENDED_RESOURCE)


class ServedResources:
    """By the classes as they are when asked. `gates` are kube-scheduler's feature gates that are on."""

    def __init__(self, classes: DeviceClasses, gates: frozenset[str]) -> None:
        self.is_on = gates >= _GATES
        self._classes = classes

    def among(self, requests: Mapping[str, int]) -> frozenset[str]:
        """The requested resources that classes serve. Most pods have none, and cost a look at the names."""
        if not self.is_on:
            return NONE_SERVED
        found = [
            name
            for name, amount in requests.items()
            if "/" in name and amount > 0 and may_be_devices(name) and self._classes.for_resource(name) is not None
        ]
        return frozenset(found) if found else NONE_SERVED
