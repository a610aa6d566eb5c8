"""The informers of one run: a reflector for each kind that the server has, and the wait for their sync.

The caller says which kinds there are, and what a change causes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from scheduler.core.clock import Clock, done_within
from scheduler.core.retry import Backoff
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import (
    CAPACITY,
    DEVICES,
    KINDS,
    NO_VERSION,
    TAINT_RULE,
    Discovery,
    DiscoveryFailed,
    KindSpec,
    ServedKind,
)

_log = structlog.get_logger(__name__)

_GLANCE_S: Final = 0.05
_LATE_S: Final = 60.0


class InformerLag(NamedTuple):
    """Why a kind is not synced. `matters`: no pod is scheduled until it is."""

    why: str
    matters: bool


class Informers:
    """All informers; one per daemon."""

    def __init__(self, kinds: Sequence[KindSpec], discovery: Discovery, clock: Clock) -> None:
        """Create the informers. `kinds` are those that decisions need; more may be added."""
        self.kinds = tuple(kinds)
        self.reflectors: dict[str, Reflector[Any]] = {}
        self._discovery = discovery
        self._clock = clock
        self._found = asyncio.Event()

    def add(self, reflector: Reflector[Any]) -> None:
        """Add the reflector of a kind that the server has."""
        self.reflectors[reflector.spec.name] = reflector
        if self.reflectors.keys() >= {spec.name for spec in KINDS.values() if spec.is_needed}:
            self._found.set()

    def late(self, kinds: Sequence[KindSpec]) -> tuple[KindSpec, ...]:
        """Return those kinds that are not synced yet."""
        watched = {spec.name for spec in self.kinds}
        return tuple(spec for spec in kinds if spec.name not in watched)

    def why_late(self, spec: KindSpec) -> str:
        """Return the name of the kind, and its problem if known."""
        lag = self.lag(spec.name) if spec.name in self.reflectors else None
        return f"{spec.name} ({lag.why})" if lag is not None else spec.name

    async def more(self, spec: KindSpec, reflect: Callable[[KindSpec, ServedKind], None]) -> AsyncIterator[bool]:
        """Start the informer of another kind. Yields True when it is synced or not served, False each minute before.

        Then looks for missing kinds and starts their informers, unless another call does that.
        """
        backoff = Backoff(self._clock, first_s=1.0, longest_s=_LATE_S)
        while True:
            try:
                served = await self._discovery.locate(spec)
                break
            except DiscoveryFailed:
                yield False
                await backoff.next()
        if served is None:
            self._discovery.want(spec)
        else:
            reflect(spec, served)
            while not await done_within(self._clock, self._pictured(self.reflectors[spec.name]), _LATE_S):
                yield False
        self.kinds = (*self.kinds, spec)
        yield True
        await self._discovery.run(reflect)

    async def complete(self) -> None:
        """Wait until each kind is synced that decisions need and the server has."""
        await self._discovery.answered.wait()
        await self._found.wait()
        for reflector in list(self.reflectors.values()):
            if reflector.spec in self.kinds:  # the informer of failed pods need not be synced
                await self._pictured(reflector)

    def capacity_version(self) -> str | None:
        """Return the version of watched capacity objects; `none` if there are none, None if unknown."""
        return self._version(CAPACITY)

    def device_kinds(self) -> Mapping[str, int]:
        """Return the kinds that device decisions need, and whether the server has them; without unknown ones."""
        versions = {spec.name: self._version(spec) for spec in (*DEVICES, TAINT_RULE) if spec in self.kinds}
        return {name: int(version != NO_VERSION) for name, version in versions.items() if version is not None}

    def synced(self) -> Mapping[str, int]:
        """Return the kinds that decisions need: 1 if synced, otherwise 0; without kinds that the server lacks."""
        answered = self._discovery.answered.is_set()
        synced_kinds: dict[str, int] = {}
        for spec in self.kinds:
            reflector = self.reflectors.get(spec.name)
            if reflector is not None and not reflector.stats.absent:
                synced_kinds[spec.name] = int(reflector.synced.is_set() and not reflector.stats.denied)
            elif spec.is_needed or not answered:
                synced_kinds[spec.name] = 0
        return synced_kinds

    def _version(self, spec: KindSpec) -> str | None:
        reflector = self.reflectors.get(spec.name)
        if reflector is not None:
            return NO_VERSION if reflector.stats.absent else reflector.served.version
        return NO_VERSION if self._discovery.answered.is_set() else None

    def lag(self, kind: str) -> InformerLag | None:
        """Return the problem of one kind."""
        reflector = self.reflectors.get(kind)
        if reflector is None:
            spec = KINDS[kind]
            if self._discovery.answered.is_set() and not spec.is_needed:
                return InformerLag(spec.effect, False) if spec.effect else None  # nothing to watch
            unknown = f"discovery has not found {kind}"
            return InformerLag(self._discovery.last_error or unknown, True)
        spec, stats, is_synced = reflector.spec, reflector.stats, reflector.synced.is_set()
        if stats.absent and not spec.is_needed:
            return InformerLag(f"{spec.effect or 'not served'}: {stats.last_error}", False)
        if is_synced and not stats.denied:
            return InformerLag(stats.why_down, not spec.is_optional) if stats.is_down else None
        wrong = stats.denied or stats.last_error or "not synced"
        if spec.is_optional and (is_synced or stats.denied):
            return InformerLag(wrong if is_synced else f"{spec.effect}: {wrong}", False)
        return InformerLag(wrong, True)

    async def _pictured(self, reflector: Reflector[Any]) -> None:
        """Wait until the kind is first synced, or cannot be, if decisions can do without it."""
        spec, stats = reflector.spec, reflector.stats
        if spec.is_needed:
            await reflector.synced.wait()
            return
        while not (reflector.synced.is_set() or stats.absent or (stats.denied and spec.is_optional)):
            await self._clock.sleep(_GLANCE_S)
        if not reflector.synced.is_set():
            _log.warning(spec.effect or "not mirrored", kind=spec.name, error=stats.last_error)
