"""Build /debug/cache: nodes with their pods, and the state of volumes and devices that the watch does not show.

The page is written as JSON in pieces, because five thousand nodes must not block the event loop. A page is a mapping
of sections. Each section is built when it is written: an iterator row by row, `DumpSections` part by part. Rows may
come from different moments.

Upstream: pkg/scheduler/backend/cache/debugger/dumper.go CacheDumper
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from scheduler.api.decode import Broken, PartlyReadPod
from scheduler.api.resource_v1 import DeviceId, ResourceClaim
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.claim_tracker import ClaimTracker
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.pools import PoolState
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.volumes import Volumes
from scheduler.core import nodeset

Page: TypeAlias = Mapping[str, Callable[[], object]]


class DumpSections(dict[str, Callable[[], object]]):
    """A section that consists of sections."""


PAUSE: Final = object()
"""A pause in place of a row, so that the event loop can run."""

ROWS: Final = 25
"""Rows in one piece: 2 ms of the event loop for nodes with twenty pods each."""


def indented(value: object) -> bytes:
    """Return one value as indented JSON. A value that JSON lacks becomes its text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)


def pieces(page: Page) -> Iterator[bytes]:
    """Yield the bytes of `indented(page)` and a line end, in pieces. A piece may be empty."""
    yield from _members(page, b"")
    yield b"\n"


def _members(page: Page, margin: bytes) -> Iterator[bytes]:
    inner = margin + b"  "
    head = b"{\n"
    for name, section in page.items():
        yield head + inner + msgspec.json.encode(name) + b": "
        value = section()
        if isinstance(value, DumpSections):
            yield from _members(value, inner)
        elif isinstance(value, Iterator):
            yield from _rows(value, inner)
        else:
            yield _deeper(indented(value), inner)
        head = b",\n"
    yield b"\n" + margin + b"}"


def _rows(rows: Iterator[object], margin: bytes) -> Iterator[bytes]:
    inner = margin + b"  "
    head = b"[\n"
    for some in _batches(rows):
        yield head + b",\n".join(inner + _deeper(indented(row), inner) for row in some) if some else b""
        head = b",\n" if some else head
    yield b"[]" if head == b"[\n" else b"\n" + margin + b"]"


def _batches(rows: Iterator[object]) -> Iterator[list[object]]:
    """Yield the rows of one piece each; after a pause there may be none."""
    some: list[object] = []
    for row in rows:
        if row is not PAUSE:
            some.append(row)
        if row is PAUSE or len(some) == ROWS:
            yield some
            some = []
    if some:
        yield some


def _deeper(text: bytes, margin: bytes) -> bytes:
    """Indent all lines but the first; texts contain no line ends."""
    return text.replace(b"\n", b"\n" + margin)


_LOOKED_AT: Final = 1000
"""Objects per piece where few of many are shown: a millisecond or two of the event loop."""

T = TypeVar("T")


def cache_page(cluster: Cluster) -> Page:
    """Return the sections with plain values. Nodes that are deleted while the page is written are omitted."""
    return {
        "sizes": cluster.sizes,
        "healed": lambda: cluster.healed,
        "assumed": lambda: sorted(info.key for info in cluster.assumed()),
        "unreadable": lambda: _unread_pods(cluster),
        "volumes": lambda: _volumes(cluster.volumes),
        "devices": lambda: _devices(cluster.devices, cluster.nodes),
        "nodes": lambda: _nodes(cluster.nodes),
    }


def _unread_pods(cluster: Cluster) -> Iterator[object]:
    """Yield bound pods that cannot be read, or only in part."""
    for broken in cluster.broken():
        yield {"pod": broken.key, "node": broken.node_name, "why": broken.why}
    for some in _in_turns(cluster.pods()):
        for info in some:
            if isinstance(info.pod, PartlyReadPod):
                yield {"pod": info.key, "node": info.node_name, "why": info.pod.why}
        yield PAUSE


def _nodes(nodes: Nodes) -> Iterator[dict[str, Any]]:
    for name in sorted(nodes.known_names()):
        slot = nodes.slot(name)
        if slot is None:  # deleted since the first row was written
            continue
        yield {
            "node": name,
            "present": bool(nodes.present >> slot & 1),
            "pods": sorted(info.key for info in nodes.pods(slot).values()),
            "requested": {resource: nodes.requested_at(slot, resource) for resource in _named(nodes, slot)},
            "allocatable": {r: int(nodes.allocatable[row, slot]) for r, row in nodes.resources().items()},
        }


def _named(nodes: Nodes, slot: int) -> Iterable[str]:
    """Yield the resources that the nodes offer, then other resources that pods on this node request."""
    return dict.fromkeys((*nodes.resources(), *(name for info in nodes.pods(slot).values() for name in info.requests)))


def _volumes(volumes: Volumes) -> dict[str, Any]:
    """Return pending writes, claims in flight with their pools, and unreadable objects."""
    return {
        "assumedVolumes": sorted(key for key in volumes.volumes.assumed_keys() if volumes.volumes.is_assumed(key)),
        "assumedClaims": [
            {"claim": key, "node": claim.selected_node}
            for key in sorted(volumes.claims.assumed_keys())
            if volumes.claims.is_assumed(key) and (claim := volumes.claims.get(key)) is not None
        ],
        "inFlight": [
            {
                "claim": entry.claim.key,
                "class": entry.claim.storage_class,
                "node": entry.node_name,
                "bytes": entry.size,
                "state": entry.state,
                "pool": entry.pool.key if entry.pool is not None else None,
            }
            for entry in sorted(volumes.reservations, key=lambda entry: entry.claim.key)
        ],
        "unreadable": _unreadable(volumes.broken),
    }


def _devices(devices: SharedDRAManager, nodes: Nodes) -> DumpSections:
    """Return pending and unconfirmed allocations, and mistakes in published slices.

    Pools are those of the last device search.
    """
    return DumpSections(
        assumedClaims=lambda: _assumed(devices.claims),
        inFlight=lambda: _in_flight(devices.claims),
        heldTwice=lambda: _held_twice(devices),
        pools=lambda: _pools(devices, nodes),
        nodeSelection=lambda: devices.on_nodes.shared.problem,
        unreadable=lambda: _unreadable(devices.broken),
    )


def _assumed(claims: ClaimTracker) -> Iterator[object]:
    keys: list[str] = []
    for some in _in_turns(claims):
        keys += (claim.key for claim in some if _is_newer(claim, claims.get_api(claim.key)))
        yield PAUSE
    yield from sorted(keys)


def _in_flight(claims: ClaimTracker) -> Iterator[object]:
    for claim in sorted(claims.in_flight(), key=lambda claim: claim.key):
        if claim.status.allocation is not None:
            devices = [str(result.id) for result in claim.status.allocation.devices.results]
            yield {"claim": claim.key, "devices": devices}


def _held_twice(devices: SharedDRAManager) -> Iterator[object]:
    use, twice = devices.use, list[DeviceId]()
    for some in _in_turns(use.devices()):
        twice += (device for device in some if len(use.holders(device)) > 1)
        yield PAUSE
    for device in sorted(twice):
        found = ((uid, devices.claims.by_uid(uid)) for uid in use.holders(device))
        yield {"device": str(device), "claims": sorted(uid if claim is None else claim.key for uid, claim in found)}


def _pools(devices: SharedDRAManager, nodes: Nodes) -> Iterator[object]:
    wrong: set[tuple[str, str, str, str]] = set()
    for some in _in_turns(nodeset.each(nodes.present)):
        views = (view for slot in some for view in devices.on_nodes.pools(slot) if view.state is not PoolState.GOOD)
        wrong.update((view.key.driver, view.key.name, view.state.value, view.problem) for view in views)
        yield PAUSE
    for driver, name, state, why in sorted(wrong):
        yield {"driver": driver, "pool": name, "state": state, "why": why}


def _in_turns(things: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield all present objects, some at a time; the caller pauses after each part."""
    now = tuple(things)
    return (now[at : at + _LOOKED_AT] for at in range(0, len(now), _LOOKED_AT))


def _is_newer(claim: ResourceClaim, watched: ResourceClaim | None) -> bool:
    return watched is None or watched.metadata.resource_version != claim.metadata.resource_version


def _unreadable(broken: Mapping[tuple[str, str], Broken]) -> list[dict[str, Any]]:
    return [{"kind": kind, "object": key, "why": each.why} for (kind, key), each in sorted(broken.items())]
