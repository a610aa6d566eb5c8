"""The past of the claims for devices that `ports.ScriptedWriter` has, as a server remembers it."""

from __future__ import annotations

from operator import itemgetter

from scheduler.api.decode import Broken
from scheduler.api.resource_v1 import ResourceClaim


class ClaimHistory(dict[str, "ResourceClaim | Broken"]):
    """Claims by namespace/name, and what they were before."""

    def __init__(self) -> None:
        super().__init__()
        self._past: dict[str, list[tuple[int, ResourceClaim | Broken | None]]] = {}
        self._newest = 0

    def __setitem__(self, key: str, claim: ResourceClaim | Broken) -> None:
        super().__setitem__(key, claim)
        if isinstance(claim, ResourceClaim):
            self._newest = max(self._newest, claim.version)
        self._past.setdefault(key, []).append((self._newest, claim))

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._newest += 1
        self._past.setdefault(key, []).append((self._newest, None))

    def events(self) -> list[tuple[int, str, ResourceClaim | Broken | None]]:
        """Everything that was written, in order, each with its version and what it was written to."""
        return sorted(
            ((then, key, claim) for key, past in self._past.items() for then, claim in past), key=itemgetter(0)
        )

    def at(self, key: str, version: int) -> ResourceClaim | Broken | None:
        """As it was at this version; None if it was not there."""
        return next((claim for then, claim in reversed(self._past.get(key, [])) if then <= version), None)
