"""The mirrors of one run: a reflector for each kind that the server has, and what they are waited for.

Which kinds there are is told by whoever makes this; what to do with a change too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from scheduler.core.clock import Clock, done_within
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import (
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
    ServedKind,
    Unanswered,
)

_log = structlog.get_logger(__name__)

_GLANCE_S: Final = 0.05
_LATE_S: Final = 60.0


class MirrorLag(NamedTuple):
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

    def late(self, kinds: Sequence[KindSpec]) -> tuple[KindSpec, ...]:
        """Those of them that are not mirrored, or not yet as a whole."""
        known = {spec.name for spec in self.kinds}
        return tuple(spec for spec in kinds if spec.name not in known)

    def why_late(self, spec: KindSpec) -> str:
        """The name, and what is wrong if that is known."""
        lag = self.lag(spec.name) if spec.name in self.reflectors else None
        return f"{spec.name} ({lag.why})" if lag is not None else spec.name

    async def more(self, spec: KindSpec, reflect: Callable[[KindSpec, ServedKind], None]) -> AsyncIterator[bool]:
        """Mirror this kind, too: True when it is shown, or the server has it not; False each minute before that."""
        pause_s = 1.0
        while True:
            try:
                served = await self._discovery.locate(spec)
                break
            except Unanswered:
                yield False
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LATE_S)
        if served is None:
            self._discovery.want(spec)
        else:
            reflect(spec, served)
            while not await done_within(self._clock, self._pictured(self.reflectors[spec.name]), _LATE_S):
                yield False
        self.kinds = (*self.kinds, spec)
        yield True

    async def find(self, reflect: Callable[[KindSpec, ServedKind], None]) -> None:
        """Mirror what could not be found, once it can be; nothing if somebody sees to that."""
        await self._discovery.run(reflect)

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

    def pods_disconnected_s(self) -> float:
        """For how long the watch of pods has been disconnected; 0 while it is connected."""
        pods = self.reflectors.get(POD.name)
        return pods.stats.down_s if pods is not None else 0.0

    def capacity_version(self) -> str | None:
        """Of the capacity objects that are mirrored, `none` where there are none; None while that is not known."""
        return self._version(CAPACITY)

    def device_kinds(self) -> Mapping[str, int]:
        """Those that decisions go by, and whether the server has them; none of which that is not known."""
        versions = {spec.name: self._version(spec) for spec in (*DEVICES, TAINT_RULE) if spec in self.kinds}
        return {name: int(version != NO_VERSION) for name, version in versions.items() if version is not None}

    def synced(self) -> Mapping[str, int]:
        """Kinds that decisions go by: 1 where the picture is complete and followed, else 0; none that the server has not."""
        answered = self._discovery.answered.is_set()
        told: dict[str, int] = {}
        for spec in self.kinds:
            reflector = self.reflectors.get(spec.name)
            if reflector is not None and not reflector.stats.absent:
                told[spec.name] = int(reflector.synced.is_set() and not reflector.stats.denied)
            elif spec.name in NEEDED or not answered:
                told[spec.name] = 0
        return told

    def _version(self, spec: KindSpec) -> str | None:
        reflector = self.reflectors.get(spec.name)
        if reflector is not None:
            return NO_VERSION if reflector.stats.absent else reflector.served.version
        return NO_VERSION if self._discovery.answered.is_set() else None

    def lag(self, kind: str) -> MirrorLag | None:
        """What is wrong with the picture of one kind."""
        reflector = self.reflectors.get(kind)
        if reflector is None:
            if self._discovery.answered.is_set() and kind not in NEEDED:
                return MirrorLag(LACKING[kind], False) if kind in LACKING else None  # nothing to mirror
            unknown = f"discovery has not found {kind}"
            return MirrorLag(self._discovery.last_error or unknown, True)
        stats, is_synced = reflector.stats, reflector.synced.is_set()
        if stats.absent and kind not in NEEDED:
            return MirrorLag(f"{LACKING.get(kind, 'not served')}: {stats.last_error}", False)
        if is_synced and not stats.denied:
            return MirrorLag(stats.why_down, kind not in SPARED) if stats.is_down else None
        wrong = stats.denied or stats.last_error or "not synced"
        if kind in SPARED and (is_synced or stats.denied):
            return MirrorLag(wrong if is_synced else f"{SPARED[kind]}: {wrong}", False)
        return MirrorLag(wrong, True)

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
