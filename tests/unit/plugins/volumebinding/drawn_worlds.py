"""Random clusters with volumes and capacity, and the claims of a pod in them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.api.meta import AnnotatedMetadata, Metadata
from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSIDriver,
    CSIDriverSpec,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.plugins.volumebinding.find import VolumeFinder
from scheduler.plugins.volumebinding.pod_volumes import PodVolumeClaims, _is_entangled
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import a_claim, a_pv
from tests.unit.cache.nodes.labelled_nodes import NAMES, Step, labels, take, topologies
from tests.unit.cache.storage.storage_objects import capacities, claims, volumes
from tests.unit.wakeups import literal_volumes as literal

PROVISIONERS = st.sampled_from(["P", "P", "Q", "kubernetes.io/no-provisioner", "kubernetes.io/no-provisioner", ""])
NODE_LABELS: st.SearchStrategy[list[Any]] = st.lists(st.tuples(st.sampled_from(NAMES), labels), min_size=1, max_size=4)
SELECTED = st.sampled_from([None] * 14 + ["n0", "n1", "gone", ""])


@dataclass
class Drawn:
    """A cluster and the claims of a pod in it."""

    nodes: list[Step]
    volumes: list[PersistentVolume]
    classes: list[StorageClass]
    tracks: dict[str, bool]
    capacities: list[Any]
    bound: list[PersistentVolumeClaim]
    delayed: list[PersistentVolumeClaim]
    in_flight: list[PersistentVolumeClaim] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)


def _simple(at: int, size: str, zone: str, modes: tuple[str, ...]) -> PersistentVolume:
    volume = a_pv(f"v{at}", size, "x").modes(*modes)
    return (volume.where("zone", zone) if zone else volume).typed()


PLAIN = st.sampled_from([a_claim("c", size, name) for size in ("1G", "2G", "2G", "3G") for name in "xxxy"]).map(
    lambda claim: claim.typed()
)
WISHING = st.sampled_from(
    [
        a_claim("c", size, "x").modes("ReadWriteOnce", "ReadOnlyMany") if shares else a_claim("c", size, "x")
        for size in ("1G", "2G", "3G")
        for shares in (True, False)
    ]
).map(lambda claim: claim.typed())
"""Claims that stand in each other's way; those that may have any wish at all seldom do."""
SIMPLE = st.builds(
    _simple,
    st.integers(0, 7),
    st.sampled_from(["1G", "2G", "2G", "4G"]),
    st.sampled_from(["", "", "a", "b"]),
    st.sampled_from([("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany")]),
)


CLAIMS = (
    st.lists(PLAIN, min_size=2, max_size=3) | st.lists(WISHING, min_size=2, max_size=3) | st.lists(claims, max_size=3)
)


def named(claim: PersistentVolumeClaim, name: str, selected: str | None) -> PersistentVolumeClaim:
    annotations = {} if selected is None else {SELECTED_NODE: selected}
    return replace(claim, metadata=AnnotatedMetadata(name=name, namespace="default", uid=name, annotations=annotations))


def bound_to(at: int, volume_name: str) -> PersistentVolumeClaim:
    claim = PersistentVolumeClaim(
        AnnotatedMetadata(name=f"b{at}", namespace="default", uid=f"b{at}", annotations={BIND_COMPLETED: "yes"})
    )
    return replace(claim, spec=replace(claim.spec, volume_name=volume_name))


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    classes = [
        StorageClass(
            AnnotatedMetadata(name=name),
            provisioner=draw(PROVISIONERS),
            volume_binding_mode="WaitForFirstConsumer",
            allowed_topologies=tuple(draw(topologies)) if draw(st.booleans()) else (),
        )
        for name in ("x", "y")
        if draw(st.integers(0, 19))
    ]
    return Drawn(
        draw(NODE_LABELS),
        list({volume.key: volume for volume in draw(st.lists(SIMPLE | SIMPLE | volumes, max_size=8))}.values()),
        classes,
        draw(st.fixed_dictionaries({}, optional={"P": st.sampled_from([True, True, False]), "Q": st.booleans()})),
        list({obj.key: obj for obj in draw(st.lists(capacities, max_size=4))}.values()),
        [bound_to(at, draw(st.sampled_from(["v0", "v1", "v2"]))) for at in range(draw(st.integers(0, 2)))],
        [named(claim, f"c{at}", draw(SELECTED)) for at, claim in enumerate(draw(CLAIMS))],
        [
            named(draw(claims), f"f{at}", draw(st.sampled_from(["n0", "n1", "n2"])))
            for at in range(draw(st.integers(0, 2)))
        ],
        draw(st.lists(st.sampled_from(["v0", "v1", "v2", "v3"]), max_size=2, unique=True)),
    )


class Case:
    """A drawn cluster, in the caches and as plain lists."""

    def __init__(self, world: Drawn) -> None:
        self.cluster = Cluster(VirtualClock())
        kept = self.cluster.volumes
        for step in world.nodes:
            take(self.cluster.nodes, step)
        for driver, tracks in world.tracks.items():
            kept.drivers[driver] = CSIDriver(Metadata(name=driver), CSIDriverSpec(storage_capacity=tracks))
        for storage_class in world.classes:
            kept.set_class(storage_class.key, storage_class)
        for volume in world.volumes:
            kept.set_volume(volume)
        for obj in world.capacities:
            kept.reservations.pool_changed(kept.capacities.pool(obj.key), kept.capacities.put(obj))
        for claim in (*world.bound, *world.delayed, *world.in_flight):
            kept.claims.set(claim)
        for name in world.taken:
            self._take(name)
        kept.reservations.catch_up()
        delayed = tuple(world.delayed)
        entangled = len(delayed) > 1 and _is_entangled(delayed)
        self.claims = PodVolumeClaims(bound=tuple(world.bound), delayed=delayed, is_entangled=entangled)
        self.literal = literal.LiteralVolumes(
            volumes={name: found for name in sorted(v.key for v in kept.volumes) if (found := kept.volumes.get(name))},
            classes={name: known.obj for name, known in kept.classes.items()},
            drivers=kept.drivers,
            capacities=world.capacities,
        )

    def _take(self, name: str) -> None:
        """Assume it as Reserve does for another pod."""
        volume = self.cluster.volumes.volumes.get(name)
        if volume is not None and volume.spec.claim_ref is None:
            spec = replace(volume.spec, claim_ref=ObjectRef("default", "stranger", "stranger"))
            self.cluster.volumes.volumes.assume(replace(volume, spec=spec))

    def nodes(self) -> list[tuple[int, str, dict[str, str]]]:
        seen = self.cluster.nodes
        out = []
        for slot in nodeset.each(seen.present):
            node = seen.node(slot)
            assert node is not None
            out.append((slot, seen.name(slot), node.metadata.labels))
        return out

    def finder(self, *, together: bool) -> VolumeFinder:
        return VolumeFinder(self.cluster.nodes, self.cluster.volumes, together=together)

    def conflicts(self, finder: VolumeFinder) -> dict[int, tuple[str, ...]]:
        out: dict[int, tuple[str, ...]] = {}
        for reasons, nodes in finder.conflicts(self.claims, self.cluster.nodes.present).items():
            assert nodes
            for slot in nodeset.each(nodes):
                assert slot not in out
                out[slot] = reasons
        return out

    def sizes(self, static: Any) -> list[tuple[str, int]]:
        """Claim and how large its volume is."""
        return [(claim, self.literal.volumes[volume].capacity.nano) for claim, volume in static]


def outcome(case: Case, name: str, found_labels: dict[str, str]) -> literal.LiteralDecision | None:
    try:
        return literal.find(case.literal, case.claims.bound, case.claims.delayed, node_name=name, labels=found_labels)
    except literal.Failure:
        return None


CLASS_GONE = Drawn(
    nodes=[("n0", {})],
    volumes=[_simple(0, "1G", "", ("ReadWriteOnce", "ReadOnlyMany"))],
    classes=[],
    tracks={},
    capacities=[],
    bound=[],
    delayed=[
        named(a_claim("c", "1G", "x").modes("ReadWriteOnce", "ReadOnlyMany").typed(), "c0", None),
        named(a_claim("c", "1G", "x").typed(), "c1", None),
    ],
)
"""Each claim finds the volume if it is alone. Together one must be provisioned, and its class does not exist."""
EQUAL_SIZES = dataclasses.replace(
    CLASS_GONE,
    volumes=[
        _simple(0, "2G", "", ("ReadWriteOnce",)),
        _simple(1, "2G", "", ("ReadWriteOnce", "ReadOnlyMany")),
        _simple(2, "2G", "", ("ReadWriteOnce",)),
    ],
    delayed=[
        named(a_claim("c", "1G", "x").typed(), "c0", None),
        named(a_claim("c", "1G", "x").modes("ReadWriteOnce", "ReadOnlyMany").typed(), "c1", None),
    ],
)
"""The first claim may have each of the volumes, but the second one only that with more access modes."""
