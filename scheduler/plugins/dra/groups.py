"""What is wanted, in groups of which each has devices of its own (docs/spec/dra.md §4.14).

An administrator may have devices that claims before have, too, but not those of its own claim, and claims behind may not have
the administrator's. So of those that both may have, some may be had a second time: no more than claims before still want.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.plugins.dra.seats import Mask


class Wanted(NamedTuple):
    """So many different devices of these, for a claim."""

    mask: Mask
    needed: int
    unlike: frozenset[int] = frozenset()
    """Numbers of the sets of which it may have one device only, together with all others of whom that holds."""
    claim: int = 0
    is_admin: bool = False


class Group(NamedTuple):
    """So many of these devices. `for_admin`, which only an administrator may have, and `twice`, a second time, are limited."""

    mask: Mask
    needed: int
    unlike: frozenset[int]
    for_admin: Mask = 0
    twice: Mask = 0
    limited: int = 0
    """So many of both may be chosen, and so many twice:"""
    doubled: int = 0


def apart(wanted: Sequence[Wanted]) -> list[Group]:
    """Sets that have no device in common, but for administrators whom others leave no choice: those that have are taken together."""
    own = [each for each in wanted if not each.is_admin and each.needed]
    groups = _together(own)
    admins = [each for each in wanted if each.is_admin and each.needed]
    for claim in dict.fromkeys(each.claim for each in admins):
        theirs = _together([each for each in admins if each.claim == claim])
        near = [group for group in groups if any(group.mask & each.mask for each in theirs)]
        if len(theirs) > 1 or len(near) != 1 or len({each.claim for each in admins}) > 1:
            groups += theirs
            continue
        groups.remove(near[0])
        before = sum(each.needed for each in own if each.claim < claim and each.mask & near[0].mask)
        groups.append(_beside(theirs[0], near[0], before))
    return sorted(groups, key=lambda each: each.mask.bit_length())


def _together(wanted: Sequence[Wanted]) -> list[Group]:
    out: list[Group] = []
    for each in wanted:
        group = Group(each.mask, each.needed, each.unlike)
        rest = []
        for other in out:
            if other.mask & group.mask:
                group = Group(other.mask | group.mask, other.needed + group.needed, other.unlike & group.unlike)
            else:
                rest.append(other)
        out = [*rest, group]
    return out


def _beside(admin: Group, others: Group, before: int) -> Group:
    return Group(
        admin.mask | others.mask,
        admin.needed + others.needed,
        admin.unlike & others.unlike,
        for_admin=admin.mask & ~others.mask,
        twice=admin.mask & others.mask if before else 0,
        limited=admin.needed,
        doubled=min(before, admin.needed),
    )
