"""Who writes: whose the fields are afterwards, and what the caller may not do besides the request itself."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scheduler.testing.apiserver.faults import Request
from scheduler.testing.apiserver.ownership import UNKNOWN
from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.routes import denied

__all__ = ["UNKNOWN", "Caller"]


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller with one request. In-process callers may do everything."""

    manager: str = UNKNOWN
    verb: str = "update"
    forbidden: AbstractSet[tuple[str, str]] = frozenset()
    """(verb, resource/subresource) pairs."""

    def denied(self, resource: Resource, subresource: str, *, verb: str, namespace: str = "", name: str = "") -> str:
        """Why a subresource without a path of its own may not be written; empty if it may."""
        if (verb, f"{resource.name}/{subresource}") not in self.forbidden:
            return ""
        return denied(Request(verb, resource.name, namespace, name, subresource), resource).message
