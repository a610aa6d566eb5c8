"""Kinds of resource names, told by their spelling (docs/spec/core.md §5.5)."""

from __future__ import annotations

from typing import Final

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
"""Always counted, in this order; every other resource must be a scalar."""

_NATIVE_DOMAIN: Final = "kubernetes.io/"
_SCALAR_PREFIXES: Final = ("hugepages-", "attachable-volumes-")
_QUOTA_PREFIX: Final = "requests."


def is_extended(name: str) -> bool:
    """`example.com/gpu`: has a domain that is not Kubernetes' own."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith(_QUOTA_PREFIX)


def is_scalar(name: str) -> bool:
    """Counted like an extended resource: those, huge pages, volume attachments and `kubernetes.io/…`."""
    return is_extended(name) or name.startswith(_SCALAR_PREFIXES) or _NATIVE_DOMAIN in name


def domain(name: str) -> str:
    """What stands before the slash; the name itself without one."""
    return name.split("/", 1)[0]
