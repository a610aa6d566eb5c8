"""The hourly part of the self-audit: compare the stores of the informers with lists of the API server.

A list is read page by page, with the metadata of the objects only. It is consistent, because no version is requested. Its
first page gives its version. The pages are compared once the watch has reached that version, so a watch that lags is no
difference. An object that changed or was removed after that version is none either. A wrong store is corrected by a relist.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from scheduler.api.decode import Broken
from scheduler.api.meta import Identity
from scheduler.audit.findings import Difference
from scheduler.audit.self_audit import SelfAudit
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError
from scheduler.kube.informers import Informers
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.reflector import Reflector
from scheduler.kube.wire import LIST_TIMEOUT_S, METADATA_LIST, Page, Transport, page_of

EVERY_S: Final = 3600.0
_SPREAD: Final = 0.1
"""Replicas that start together do not list together."""
_PAGE: Final = "500"
_TURN: Final = 200
"""Objects that are compared before the event loop runs."""
_REACHES_WITHIN_S: Final = 180.0
"""Bookmarks come about once a minute."""
_GLANCE_S: Final = 1.0


class _Listed(msgspec.Struct):
    metadata: Identity = Identity()


_LISTED: Final = msgspec.json.Decoder(_Listed)


class _Skipped(Exception):
    """The list cannot be compared. The text says why."""


@dataclass(slots=True)
class _Comparison:
    """A list that is being compared with a store."""

    reflector: Reflector[Any]
    removed_at: int
    """The position in the log of removals before the list was read."""
    relists: int
    version: str = ""
    keys: set[str] = field(default_factory=set)
    is_whole: bool = True
    """Whether the name of each listed object could be read."""
    differences: list[Difference] = field(default_factory=list)


class ListAudit:
    """Compare all kinds once an hour, one after the other. Runs on the leader and on standbys."""

    def __init__(
        self,
        informers: Informers,
        audit: SelfAudit,
        *,
        transport: Transport,
        throttle: Throttle,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._informers = informers
        self._audit = audit
        self._transport = transport
        self._throttle = throttle
        self._clock = clock
        self._rng = rng

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S * self._rng.uniform(1 - _SPREAD, 1 + _SPREAD))
            for reflector in list(self._informers.reflectors.values()):
                await self.compare(reflector)

    async def compare(self, reflector: Reflector[Any]) -> None:
        """Compare one kind. A difference is logged, counted, and followed by a relist."""
        index = index_of(reflector)
        self._audit.expect(index)
        comparison = _Comparison(reflector, reflector.store.removals.position, _relists(reflector))
        skipped = ""
        try:
            await self._compare(comparison)
        except _Skipped as why:
            skipped = str(why)
        except ApiError as error:
            skipped = f"the list failed: {error.message}"
        if comparison.differences and not skipped:
            self._audit.found(index, comparison.differences)
            reflector.relist("audit")
        self._audit.ended(index, compared=len(comparison.keys), skipped=skipped)

    async def _compare(self, comparison: _Comparison) -> None:
        reflector = comparison.reflector
        if not reflector.stats.synced or reflector.stats.absent or reflector.stats.denied:
            raise _Skipped("the informer is not synced")
        page = await self._page(reflector, "")
        comparison.version = page.metadata.resource_version
        await self._reached(reflector, comparison.version)
        while True:
            await self._compare_page(comparison, page.items or ())
            if not page.metadata.continue_:
                break
            page = await self._page(reflector, page.metadata.continue_)
            if page.metadata.resource_version != comparison.version:
                raise _Skipped("the pages of the list have different versions")
        if comparison.is_whole:
            await self._compare_rest(comparison)
        self._check(comparison)

    async def _page(self, reflector: Reflector[Any], token: str) -> Page:
        await self._throttle.take()
        query = {"limit": _PAGE}
        if reflector.spec.field_selector:
            query["fieldSelector"] = reflector.spec.field_selector
        if token:
            query["continue"] = token
        path, get = reflector.served.path, self._transport.get
        return page_of(await get(path, query=query, timeout_s=LIST_TIMEOUT_S, accept=METADATA_LIST))

    async def _reached(self, reflector: Reflector[Any], version: str) -> None:
        """Wait until the watch has reached the version."""
        if not version.isdecimal():
            raise _Skipped(f"the version {version!r} of the list is no number")
        until = self._clock.now() + _REACHES_WITHIN_S
        while not (reflector.version.isdecimal() and int(reflector.version) >= int(version)):
            if self._clock.now() >= until:
                raise _Skipped(f"the watch is at version {reflector.version!r} and did not reach {version}")
            await self._clock.sleep(_GLANCE_S)

    def _check(self, comparison: _Comparison) -> set[str]:
        """Return the keys that were removed since the list. Raises _Skipped if the store cannot be compared."""
        reflector = comparison.reflector
        if _relists(reflector) != comparison.relists:
            raise _Skipped("the informer has listed the kind since")
        removed = reflector.store.removals.changed_since(comparison.removed_at)
        if removed is None:
            raise _Skipped("too many objects were removed since")
        return set(removed)

    async def _compare_page(self, comparison: _Comparison, items: Iterable[msgspec.Raw]) -> None:
        removed = self._check(comparison)
        for n, raw in enumerate(items, start=1):
            try:
                listed = apijson.decode(_LISTED, raw).metadata
            except (msgspec.DecodeError, ValueError):
                comparison.is_whole = False
                continue
            comparison.keys.add(listed.key)
            _compare(comparison, listed, removed)
            if n % _TURN == 0:
                await asyncio.sleep(0)
                removed = self._check(comparison)

    async def _compare_rest(self, comparison: _Comparison) -> None:
        """Find stored objects that the list does not have, although they are as old as the list."""
        at = int(comparison.version)
        for n, stored in enumerate(tuple(comparison.reflector.store), start=1):
            is_old = 0 < stored.metadata.version <= at and comparison.reflector.store.get(stored.key) is stored
            if is_old and stored.key not in comparison.keys:
                comparison.differences.append(_difference(comparison, stored.key, stored, None))
            if n % _TURN == 0:
                await asyncio.sleep(0)


def _compare(comparison: _Comparison, listed: Identity, removed: set[str]) -> None:
    """Compare one listed object with the store."""
    stored = comparison.reflector.store.get(listed.key)
    if stored is None:
        if listed.key not in removed:
            comparison.differences.append(_difference(comparison, listed.key, None, listed))
        return
    metadata = stored.metadata
    if isinstance(stored, Broken) and not metadata.resource_version:
        return  # not even its version can be read
    is_same = (metadata.uid, metadata.resource_version) == (listed.uid, listed.resource_version)
    if not is_same and stored.metadata.version <= int(comparison.version):
        comparison.differences.append(_difference(comparison, listed.key, stored, listed))


def _difference(comparison: _Comparison, key: str, stored: Any, listed: Identity | None) -> Difference:
    metadata = stored.metadata if stored is not None else None
    return Difference(
        f"{comparison.reflector.spec.name} {key}",
        f"uid and version at version {comparison.version}",
        _text(metadata),
        _text(listed),
    )


def _text(metadata: Any) -> str:
    return "missing" if metadata is None else f"{metadata.uid} {metadata.resource_version}"


def _relists(reflector: Reflector[Any]) -> int:
    return sum(reflector.stats.relists.values())


def index_of(reflector: Reflector[Any]) -> str:
    """Return the name of the comparison in metrics and at /debug/audit."""
    plural = reflector.spec.plural
    return f"list-failed-{plural}" if reflector.spec.name.startswith("FailedPod") else f"list-{plural}"
