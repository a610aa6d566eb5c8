"""The few words that every part of the short form shares."""

import re
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

TOPOLOGY: Final = {
    "host": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "old-zone": "failure-domain.beta.kubernetes.io/zone",
    "old-region": "failure-domain.beta.kubernetes.io/region",
}


def long_key(short: str) -> str:
    """The label key that a short word stands for, or the word."""
    return TOPOLOGY.get(short, short)


def labels(short: Mapping[str, str | None]) -> dict[str, str]:
    """With long keys; a label that is null is not there."""
    return {long_key(key): value for key, value in short.items() if value is not None}


def slug(sentence: str) -> str:
    """A sentence as the name of an object."""
    return re.sub(r"[^a-z0-9]+", "-", sentence.lower()).strip("-")


def nothing_left(what: str, short: Mapping[str, object]) -> None:
    """Raises ValueError for unread words."""
    if short:
        raise ValueError(f"{what}: no such word in the short form: {', '.join(sorted(short))}")
