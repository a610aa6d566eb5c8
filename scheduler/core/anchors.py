"""Where to file a selector over pods so that a pod finds those which may select it without asking them all.

A selector that matches a pod shares at least one anchor with the pod's probes; most that do not match share none. A
thousand selectors of a thousand applications then cost a pod a dozen look-ups (docs/spec/core.md §10.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

from scheduler.core.interner import Interner
from scheduler.core.labels import LabelSelector

Anchor: TypeAlias = tuple[str | None, tuple[str, str] | None]
"""A namespace, or None for all, and a label that a pod must have, or None for any pod."""

_ANYWHERE: Final = None
"""Stands where a namespace would: the selector looks at all of them."""


def anchors(namespaces: frozenset[str] | None, selector: LabelSelector | None) -> tuple[Anchor, ...]:
    """What a selector is filed under, none twice, and a pod has one of them at the most in each place.

    `namespaces is None` means all; a nil selector selects nothing: no anchor. One label that the selector demands is enough: the first of `matchLabels`, else the values of an `In` expression.
    A selector that demands no particular value is filed under its namespaces alone.
    """
    if selector is None:
        return ()
    places: tuple[str | None, ...] = (_ANYWHERE,) if namespaces is None else tuple(namespaces)
    for pair in selector.match_labels.items():
        return tuple((place, pair) for place in places)
    for requirement in selector.match_expressions:
        if requirement.operator == "In":
            values = dict.fromkeys(requirement.values)  # the API server lets a value come twice
            return tuple((place, (requirement.key, value)) for place in places for value in values)
    return tuple((place, None) for place in places)


def probes(namespace: str, labels: Mapping[str, str]) -> tuple[Anchor, ...]:
    """What a pod looks under: 2 x (labels + 1) anchors, none twice. Remembered: a pod's replicas look alike."""
    key = (namespace, *labels.items())
    known = _probes.get(key)
    if known is None:
        wanted = (None, *labels.items())
        known = _probes.share(key, tuple((place, pair) for place in (namespace, _ANYWHERE) for pair in wanted))
    return known


_probes: Final[Interner[Hashable, tuple[Anchor, ...]]] = Interner(10_000)
