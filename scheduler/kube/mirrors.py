"""The mirrors of one run: a reflector for each kind that the server has, and what they are waited for.

Which kinds there are is told by whoever makes this; what to do with a change too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from scheduler.core.clock import Clock
from scheduler.kube.kinds import (
    CAPACITY,
    DEVICES,
    LACKING,
    NEEDED,
    NO_VERSION,
    POD,
    SPARED,
    TAINT_RULE,
    Discovery,
    KindSpec,
)
from scheduler.kube.reflector import Reflector

_log = structlog.get_logger(__name__)

_GLANCE_S: Final = 0.05


class Lag(NamedTuple):
    """Why a kind is not, or no longer, shown as it is. `matters`: nothing is decided before that is over."""

    why: str
    matters: bool


class Mirrors:
    """One per daemon."""

    def __init__(self, kinds: Sequence[KindSpec], discovery: Discovery, clock: Clock) -> None:
        """`kinds` are those that decisions go by; there may be others."""
        self.kinds = tuple(kinds)
        self.reflectors: dict[str, Reflector[Any]] = {}
        self._discovery = discovery
        self._clock = clock
        self._found = asyncio.Event()

    def add(self, reflector: Reflector[Any]) -> None:
        """Its kind was found on the server."""
        self.reflectors[reflector.spec.name] = reflector
        if self.reflectors.keys() >= NEEDED:
            self._found.set()

    async def complete(self) -> None:
        """Until each kind is shown that decisions go by and the server has."""
        await self._discovery.answered.wait()
        await self._found.wait()
        for reflector in list(self.reflectors.values()):
            if reflector.spec in self.kinds:  # pods that failed long ago are not waited for
                await self._pictured(reflector)

    def pods_version(self) -> str:
        """How far the watch of pods is."""
        pods = self.reflectors.get(POD.name)
        return pods.version if pods is not None else ""

    def capacity_version(self) -> str | None:
        """Of the capacity objects that are mirrored, `none` where there are none; None while that is not known."""
        return self._version(CAPACITY)

    def device_kinds(self) -> Mapping[str, int]:
        """Those that decisions go by, and whether the server has them; none of which that is not known."""
        versions = {spec.name: self._version(spec) for spec in (*DEVICES, TAINT_RULE) if spec in self.kinds}
        return {name: int(version != NO_VERSION) for name, version in versions.items() if version is not None}

    def _version(self, spec: KindSpec) -> str | None:
        reflector = self.reflectors.get(spec.name)
        if reflector is not None:
            return NO_VERSION if reflector.stats.absent else reflector.served.version
        return NO_VERSION if self._discovery.answered.is_set() else None

    def lag(self, kind: str) -> Lag | None:
        """What is wrong with the picture of one kind."""
        reflector = self.reflectors.get(kind)
        if reflector is None:
            if self._discovery.answered.is_set() and kind not in NEEDED:
                return Lag(LACKING[kind], False) if kind in LACKING else None  # nothing to mirror
            unknown = f"the server does not serve {kind}, as far as is known"
            return Lag(self._discovery.last_error or unknown, True)
        stats, is_synced = reflector.stats, reflector.synced.is_set()
        if stats.absent and kind not in NEEDED:
            return Lag(f"{LACKING.get(kind, 'not served')}: {stats.last_error}", False)
        if is_synced and not stats.denied:
            return None
        wrong = stats.denied or stats.last_error or "not synced"
        if kind in SPARED and (is_synced or stats.denied):
            return Lag(wrong if is_synced else f"{SPARED[kind]}: {wrong}", False)
        return Lag(wrong, True)

    async def _pictured(self, reflector: Reflector[Any]) -> None:
        """Until its first picture is complete; or cannot be had, of a kind without which decisions go on."""
        name, stats = reflector.spec.name, reflector.stats
        if name in NEEDED:
            await reflector.synced.wait()
            return
        while not (reflector.synced.is_set() or stats.absent or (stats.denied and name in SPARED)):
            await self._clock.sleep(_GLANCE_S)
        if not reflector.synced.is_set():
            _log.warning(LACKING.get(name, "not mirrored"), kind=name, error=stats.last_error)
