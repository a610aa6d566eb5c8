"""Compatibility groups of devices that draw from one counter set at the same time (docs/spec/changes-1.37-devices.md §4.3).

All of them must have a group in common. A device without groups goes only with devices without groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import Device


class Members(NamedTuple):
    """The devices that draw from one counter set: whether none of them has groups, and the groups of all of them."""

    have_none: bool
    groups: frozenset[str]

    def admits(self, groups: Iterable[str]) -> bool:
        """Return whether a device with these groups may be added."""
        wanted = frozenset(groups)
        return not self.have_none and bool(self.groups & wanted) if wanted else self.have_none


MembersOf: TypeAlias = Mapping[str, Members]
"""Counter set → the devices that draw from it; a set without such devices is left out."""
NO_MEMBERS: Final[MembersOf] = {}


def admits(members: MembersOf, device: Device) -> bool:
    """Return whether the device may be allocated next to the members of its counter sets."""
    return all(
        each.counter_set not in members or members[each.counter_set].admits(each.compatibility_groups)
        for each in device.consumes_counters
    )


def with_device(members: MembersOf, device: Device) -> MembersOf:
    """Return the members with one more device."""
    out = dict(members)
    for each in device.consumes_counters:
        groups, before = frozenset(each.compatibility_groups), out.get(each.counter_set)
        if before is None:
            out[each.counter_set] = Members(not groups, groups)
        elif groups and not before.have_none:
            out[each.counter_set] = Members(have_none=False, groups=before.groups & groups)
    return out
