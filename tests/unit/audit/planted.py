"""Ways to plant a corruption: short functions that change one value of a cache, and where the values are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.pools import PoolKey
from scheduler.cache.nodes.node_groups import where_affinity
from scheduler.queueing.types import Place
from tests.unit.audit.world import AuditWorld

Harm = Callable[[AuditWorld], object]
D0: Final = DeviceId("drv", "n1", "d0")
D2: Final = DeviceId("drv", "n1", "d2")
CAP: Final = "default/cap-a"


class Corruption(NamedTuple):
    of: str
    sentence: str
    harm: Harm


def _set(column: Callable[[AuditWorld], Any], at: Any, value: Any) -> Harm:
    def harm(here: AuditWorld) -> None:
        column(here)[at] = value

    return harm


def _pop(owner: Callable[[AuditWorld], Any], key: Any) -> Harm:
    return lambda here: owner(here).pop(key)


def nodes(here: AuditWorld) -> Any:
    return here.cluster.nodes


def volumes(here: AuditWorld) -> Any:
    return here.cluster.volumes


def devices(here: AuditWorld) -> Any:
    return here.cluster.devices


def queue(here: AuditWorld) -> Any:
    return here.parts.queue


def _only(items: Any) -> Any:
    (item,) = items
    return item


def _tally(here: AuditWorld) -> Any:
    return _only(nodes(here).population.tallies.values())


def _group(here: AuditWorld) -> Any:
    return _only(nodes(here).pod_terms.groups.values())


def _sums(here: AuditWorld) -> Any:
    return _only(_tally(here).domains.values())


def _flying(here: AuditWorld) -> Any:
    return volumes(here).reservations.entries["uid-flying"]


def _pool(here: AuditWorld) -> Any:
    return volumes(here).capacities.pool(CAP)


def _rows(here: AuditWorld) -> Any:
    return volumes(here).volumes._classes["fast"]


def _where_b(here: AuditWorld) -> Any:
    groups = volumes(here).groups
    volume = volumes(here).volumes.get("pv-free")
    return groups._groups[where_affinity(volume.required_nodes)]


def _record(here: AuditWorld, name: str) -> Any:
    return queue(here).places.get(f"uid-{name}")


def _rejected(here: AuditWorld) -> Any:
    index = queue(here)._pool._rejected
    return next(each for each in index._by_rejecter.values() if each._shape_indexes)


def _topic_index(here: AuditWorld) -> Any:
    shapes = (each._shape_indexes for each in queue(here)._pool._rejected._by_rejecter.values())
    return next(t for shape in shapes for index in shape.values() for t in index.topic_indexes.values() if t.topics)


def _no_topics(here: AuditWorld) -> None:
    found = _topic_index(here)
    found.by_topic.clear()
    found.with_all_topics.clear()


def _strange_row(here: AuditWorld) -> None:
    rows = nodes(here).rows
    rows.set_aside("example.com/z", 1, 7)


def _strange_pod(here: AuditWorld) -> None:
    """Leave a pod behind on a node, as after a removal that was lost."""
    info = here.cluster._pods.pop("uid-web-2")
    here.cluster.nodes.pods(1)
    assert info.node_name == "n2"
    here.stores["Pod"]._objects.pop(info.key)


def _second_object(here: AuditWorld) -> None:
    from scheduler.api.podinfo import pod_info  # an equal pod that is another object

    pods = nodes(here)._pods[1]
    pods["uid-web-2"] = pod_info(pods["uid-web-2"].pod)


def _settled(here: AuditWorld) -> None:
    _flying(here).state = "settling"


def _foreign_assumption(here: AuditWorld) -> None:
    volumes(here).holders["PersistentVolume", "pv-free", "1"] = {"uid-gone": None}


def _stale_assumption(here: AuditWorld) -> None:
    claims = volumes(here).claims
    claims._assumed["default/idle"] = claims._store["default/data"]


def _held_assumption(here: AuditWorld) -> None:
    """Leave an assumption behind whose pod is gone."""
    cache = volumes(here).volumes
    volume = cache.get("pv-free")
    cache.assume(volume)
    volumes(here).holders["PersistentVolume", "pv-free", volume.metadata.resource_version] = {"uid-gone": None}


def _heap_entry(here: AuditWorld) -> None:
    record = _record(here, "late")
    queue(here).places.enter(record, Place.ACTIVE, "test")
    record.ticket = -1


def _heap_order(here: AuditWorld) -> None:
    places = queue(here).places
    for name in ("late", "big"):
        places.enter(_record(here, name), Place.ACTIVE, "test")
    places._active._entries.reverse()


def _two_places(here: AuditWorld) -> None:
    record = _record(here, "late")
    queue(here).in_flight.begin(record)


def _gone_record(here: AuditWorld) -> None:
    here.parts.shared.pending._pods.pop("default/late")
    here.stores["Pod"]._objects.pop("default/late")


def _lost_record(here: AuditWorld) -> None:
    queue(here).places.remove("uid-late")


def _kind_elsewhere(here: AuditWorld) -> None:
    on_nodes = devices(here).on_nodes
    kinds = [on_nodes.kind(0), on_nodes.kind(1)]
    assert kinds[0] is not kinds[1]
    kinds[0].nodes |= 1 << 1


def _wrong_kind(here: AuditWorld) -> None:
    on_nodes = devices(here).on_nodes
    on_nodes._kind_at[0] = on_nodes.kind(1)


def _view(here: AuditWorld) -> None:
    pool = devices(here).on_nodes.pools_by_key[PoolKey("drv", "n1")]
    (names,) = pool.views
    pool.views[names] = None


def _ghost_slice(here: AuditWorld) -> None:
    devices(here).published.pop("s-net")
    here.stores["ResourceSlice"]._objects.pop("s-net")


def _lose(kind: str, key: str, forget: Callable[[AuditWorld], object]) -> Harm:
    """Let the cache forget an object that the informer has."""

    def harm(here: AuditWorld) -> None:
        assert here.stores[kind].get(key) is not None
        forget(here)

    return harm


def _keep(kind: str, key: str) -> Harm:
    """Let the informer lose an object that the cache has."""
    return lambda here: here.stores[kind]._objects.pop(key)
