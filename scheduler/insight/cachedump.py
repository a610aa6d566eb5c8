"""What /debug/cache shows: nodes with what is on them, and what is known of volumes besides what the watch brings."""

from __future__ import annotations

from typing import Any

from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes import Nodes
from scheduler.cache.volumes import Volumes


def cache_dump(cluster: Cluster) -> dict[str, Any]:
    """Plain values. Takes time by the number of nodes and pods; on the event loop."""
    return {
        "sizes": cluster.sizes(),
        "healed": cluster.healed,
        "assumed": sorted(info.key for info in cluster.assumed()),
        "unreadable": [{"pod": b.key, "node": b.node_name, "why": b.why} for b in cluster.broken()],
        "volumes": _volumes(cluster.volumes),
        "nodes": _nodes(cluster.nodes),
    }


def _nodes(nodes: Nodes) -> list[dict[str, Any]]:
    rows = []
    for name in sorted(nodes.known_names()):
        slot = nodes.slot(name)
        assert slot is not None
        rows.append(
            {
                "node": name,
                "present": bool(nodes.present >> slot & 1),
                "unreadable": bool(nodes.unreadable >> slot & 1),
                "pods": sorted(info.key for info in nodes.pods(slot).values()),
                "requested": {r: int(nodes.requested[row, slot]) for r, row in nodes.resources().items()},
                "allocatable": {r: int(nodes.allocatable[row, slot]) for r, row in nodes.resources().items()},
            }
        )
    return rows


def _volumes(volumes: Volumes) -> dict[str, Any]:
    """What of them is ours alone: what we are about to write, what is in flight from which pool, what nobody can read."""
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
            for entry in sorted(volumes.ledger, key=lambda entry: entry.claim.key)
        ],
        "unreadable": [
            {"kind": kind, "object": key, "why": broken.why} for (kind, key), broken in sorted(volumes.broken.items())
        ],
    }
