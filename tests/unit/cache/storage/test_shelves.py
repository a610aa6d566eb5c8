"""The free volumes of a class: on which nodes a claim finds one, and which (docs/spec/volumes.md §3.3, §11.4, §12.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.cache.nodes.node_groups import NodeGroups
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage import persistent_volumes as shelves_module
from scheduler.cache.storage.persistent_volumes import ClassVolumes, PersistentVolumes, selector_of, wish_of
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from simulator.builders.core import node
from tests.support.volumebuilders import a_claim, a_pv
from tests.unit.cache.nodes.labelled_nodes import NAMES, node_steps, take
from tests.unit.cache.picture import leftovers
from tests.unit.cache.storage.storage_objects import at_version, claims, taken_by, volumes
from tests.unit.wakeups.literal_volumes import matching_volume


class World:
    """Nodes and volumes; each answer of the index is compared with one for each node and volume."""

    def __init__(self) -> None:
        self.nodes = Nodes(capacity=1)
        self.groups = NodeGroups(self.nodes)
        self.volumes = PersistentVolumes(self.nodes, self.groups)

    def labels(self) -> Iterator[tuple[int, dict[str, str]]]:
        for name in self.nodes.known_names():
            slot = self.nodes.slot(name)
            assert slot is not None
            node = self.nodes.node(slot)
            if node is not None:
                yield slot, node.metadata.labels

    def free(self) -> list[PersistentVolume]:
        """Return the volumes without a claimRef; volumes with one are found by name."""
        seen = [self.volumes.need(volume.key) for volume in self.volumes]
        return [volume for volume in seen if volume.spec.claim_ref is None]

    def compare(self, claim: PersistentVolumeClaim, besides: frozenset[str]) -> None:
        free, requirements = self.free(), wish_of(claim)
        size = claim.request.nano if claim.request is not None else 0
        class_volumes = self.volumes.class_volumes(claim.storage_class)
        fits = class_volumes.fits(requirements, size) if class_volumes is not None else None
        for slot, labels in self.labels():
            fitting = [volume for volume in free if matching_volume(claim, [volume], labels) is not None]
            assert len(fitting) == (int(fits.counts[slot]) if fits is not None else 0)
            assert bool(fitting) is bool(fits is not None and fits.nodes >> slot & 1)
            left = [volume for volume in fitting if volume.key not in besides]
            found = (
                class_volumes.smallest(slot, claim, requirements, besides=besides)
                if class_volumes is not None
                else None
            )
            if not left:
                assert found is None
                continue
            least = min(volume.capacity.nano for volume in left)
            assert found in {volume.key for volume in left if volume.capacity.nano == least}
        present = nodeset.of(slot for slot, _ in self.labels())
        assert fits is None or (fits.nodes & ~present, int(fits.counts.sum())) == (0, self._sum(fits.counts))

    def _sum(self, counts: Any) -> int:
        return int(sum(counts[slot] for slot, _ in self.labels()))

    def close(self) -> None:
        for volume in list(self.volumes):
            self.volumes.remove(volume.key)
        assert 0 == len(self.groups)
        assert leftovers(self.volumes) == {}


def local(capacity: str = "100Gi", *, name: str = "a", on: str = "n1") -> Any:
    return a_pv(name, capacity, "W").on(on)


def requesting(request: str | None = "100Gi") -> Any:
    return a_claim("c", "1Gi", "W").uid("u").request(request)


def chosen(known: list[Any], claim: PersistentVolumeClaim, *, on: str = "n1", besides: str = "") -> str | None:
    """What the claim takes on that node; the counts and the other nodes are compared with the specification, too."""
    world = World()
    for name in ("n1", "n2", "n3"):
        world.nodes.set_node(node(name).typed())
    for volume in known:
        world.volumes.set(volume.typed())
    world.compare(claim, frozenset(besides))
    class_volumes, slot = world.volumes.class_volumes("W"), world.nodes.slot(on)
    assert slot is not None
    return class_volumes.smallest(slot, claim, wish_of(claim), besides=besides) if class_volumes is not None else None


def test_m26_of_equal_volumes_a_claim_always_gets_the_same() -> None:
    """Also if they came in another order; other claims get other volumes, so that two schedulers seldom choose the same."""
    equal = [local(name=name) for name in "abcdefgh"] + [a_pv("z", "100Gi", "W")]
    first = chosen(equal, requesting().typed())

    assert {first} == {chosen(equal, requesting().typed()) for _ in range(50)} | {
        chosen(equal[::-1], requesting().typed())
    }
    assert 4 <= len({chosen(equal, requesting().uid(f"u{at}").typed()) for at in range(50)})


def test_m19_a_selector_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="'Near' is not a label selector operator"):
        selector_of(wish_of(requesting().matching_expression("t", "Near", "x").typed()))


_history = st.lists(
    st.one_of(
        st.tuples(st.just("node"), node_steps),
        st.tuples(st.just("set"), volumes),
        st.tuples(st.just("set"), volumes),
        st.tuples(st.just("remove"), st.integers(0, 7)),
        st.tuples(st.just("assume"), st.tuples(st.integers(0, 7), st.sampled_from(["c0", "c1"]))),
        st.tuples(st.just("restore"), st.integers(0, 7)),
        st.tuples(st.just("look"), st.tuples(claims, st.frozensets(st.sampled_from(["v0", "v1", "v2", "v3"])))),
    ),
    min_size=5,
    max_size=60,
)


def do(world: World, at: int, *, what: str, more: Any) -> None:
    known = world.volumes
    if what == "node":
        take(world.nodes, more)
    elif what == "set":
        known.set(at_version(more, at))
    elif what == "remove":
        known.remove(f"v{more}")
    elif what == "assume":
        stored = known.get_api(f"v{more[0]}")
        if stored is not None:
            known.assume(taken_by(stored, more[1]))
    elif what == "restore":
        stored = known.get_api(f"v{more}")
        if stored is not None:
            known.restore(stored)
    else:
        world.compare(*more)


@given(
    first=st.lists(volumes, min_size=4, max_size=8),
    history=_history,
    always=st.lists(claims, min_size=1, max_size=3),
    log_max=st.sampled_from([1, 4, 16_384]),
    few=st.sampled_from([0, 1000]),
    shapes=st.sampled_from([1, 1024, 1024]),
    is_cramped=st.booleans(),
)
def test_counts_are_as_good_as_looking_at_every_volume(
    first: list[PersistentVolume],
    history: list[tuple[str, Any]],
    always: list[PersistentVolumeClaim],
    *,
    log_max: int,
    few: int,
    shapes: int,
    is_cramped: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClassVolumes, "log_max", log_max)
        patched.setattr(ChangeLog, "log_max", log_max)
        patched.setattr(shelves_module, "_FEW", few)
        patched.setattr(shelves_module, "_SHAPES", shapes)
        if is_cramped:
            patched.setattr(shelves_module, "_SPARE_GROUPS", -1000)
            patched.setattr(shelves_module, "_SPARE_SIZES", -1000)
            patched.setattr(ClassVolumes.__init__, "__kwdefaults__", {"capacity": 1})
        world = World()
        for name in NAMES[:2]:
            take(world.nodes, (name, {}))
        for at, (what, more) in enumerate([*(("set", volume) for volume in first), *history]):
            do(world, at, what=what, more=more)
            for claim in always:
                world.compare(claim, frozenset())
        for claim in always:
            world.compare(claim, frozenset({"v1"}))
        assert sorted(volume.key for volume in world.volumes if meant(world, volume) == "c0") == [
            volume.key for volume in world.volumes.meant_for("default/c0")
        ]
        world.close()


def meant(world: World, volume: PersistentVolume) -> str | None:
    """The claim that a volume's claimRef names, as decisions see it."""
    ref = world.volumes.need(volume.key).spec.claim_ref
    return ref.name if ref is not None else None
