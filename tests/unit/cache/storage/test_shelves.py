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
from tests.unit.cache.storage.storage_objects import at_version, claims, taken_by, volumes
from tests.unit.wakeups.literal_volumes import matching_volume


class World:
    """Nodes and volumes; and every question asked of the index, asked of each node and volume as well."""

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
        """Those that are meant for nobody: the others are asked for by name."""
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
        assert ({}, {}, {}) == (self.volumes._places, self.volumes._where, self.volumes._meant_for)
        assert {} == self.volumes._classes


def local(capacity: str = "100Gi", *, name: str = "a", on: str = "n1") -> Any:
    return a_pv(name, capacity, "W").on(on)


A, B = local(), local("150Gi", name="b")
C = local("200Gi", name="c", on="n3")
EVERYWHERE = a_pv("e", "120Gi", "W")


def asked(request: str | None = "100Gi") -> Any:
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


RWO, RWX, ROX = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"


@pytest.mark.parametrize(
    ("known", "claim", "more", "expected"),
    [
        pytest.param([A, B, C], asked(), {}, "a", id="M1 the smallest that is large enough"),
        pytest.param([A, B, C], asked(), {"besides": "a"}, "b", id="M2 but for one"),
        pytest.param([A, B, C], asked(), {"besides": "ab"}, None, id="M3 but for all of this node"),
        pytest.param([A, B, C], asked().modes(RWX), {}, None, id="M4 an access mode that none has"),
        pytest.param([A, B, C], asked(), {"on": "n2"}, None, id="M5 none on this node"),
        pytest.param([A, B, C], asked(), {"on": "n3"}, "c", id="M6 another node's"),
        pytest.param([C.phase("Released")], asked(), {"on": "n3"}, None, id="M7 not available"),
        pytest.param([A, B, EVERYWHERE], asked("110Gi"), {}, "e", id="one that can be used everywhere"),
        pytest.param([A.claimed_by("x"), B], asked(), {}, "b", id="M11 meant for another claim"),
        pytest.param([A.claimed_by("c"), B], asked(), {}, "b", id="M8 meant for this one: found by name, not here"),
        pytest.param([A.deleting(), B], asked(), {}, "b", id="M20 on its way out"),
        pytest.param([local("1G")], asked("1Gi"), {}, None, id="M21 a decimal gigabyte is too small"),
        pytest.param([local("1Gi")], asked("1G"), {}, "a", id="M21 a binary one is not"),
        pytest.param([local("200E"), local("800E", name="b")], asked("1E"), {}, "a", id="M22 beyond int64"),
        pytest.param([local("200E"), local("800E", name="b")], asked("800E"), {}, "b", id="M22 exactly"),
        pytest.param([local("200E"), local("800E", name="b")], asked("950E"), {}, None, id="M22 too much"),
        pytest.param([local("9Ei")], asked("9Ei"), {}, "a", id="M23 capped alike"),
        pytest.param([A, B], asked(None), {}, "a", id="M24 no request takes the smallest"),
        pytest.param([A.volume_mode(None)], asked(), {}, "a", id="M16 no mode is Filesystem"),
        pytest.param([A], asked().volume_mode(None), {}, "a", id="M16 for a claim, too"),
        pytest.param([A.volume_mode("Block")], asked(), {}, None, id="M16 Block for Filesystem"),
        pytest.param([A.volume_mode("Block")], asked().volume_mode(None), {}, None, id="M16 Block for nothing said"),
        pytest.param([A], asked().volume_mode("Block"), {}, None, id="M16 Filesystem for Block"),
        pytest.param([A.volume_mode("Block")], asked().volume_mode("Block"), {}, "a", id="M16 Block for Block"),
        pytest.param([A.attributes_class("g")], asked().attributes_class("g"), {}, "a", id="M14 the same VAC"),
        pytest.param([A.attributes_class("s")], asked().attributes_class("g"), {}, None, id="M14 another VAC"),
        pytest.param([A.attributes_class("")], asked(), {}, "a", id="M14 none and an empty one"),
        pytest.param([A], asked().attributes_class("g"), {}, None, id="M14 a claim with one, a volume without"),
        pytest.param([A.modes(RWO, RWX)], asked().modes(RWX), {}, "a", id="M17 one of its modes"),
        pytest.param([A.modes(RWO, RWX)], asked().modes(RWX, RWO), {}, "a", id="M17 both"),
        pytest.param([A.modes(RWO, RWX)], asked().modes(ROX), {}, None, id="M17 another"),
        pytest.param([A.modes(RWO, RWX)], asked().modes(RWX, ROX), {}, None, id="M17 one of two"),
        pytest.param([A, B.label("t", "x")], asked().matching({"t": "x"}), {}, "b", id="M18 its label"),
        pytest.param(
            [A.label("t", "y"), B.label("t", "x")],
            asked().matching_expression("t", "NotIn", "y"),
            {},
            "b",
            id="M18 an expression",
        ),
        pytest.param([A], asked().set({"spec": {"selector": {}}}), {}, "a", id="M18 an empty selector takes all"),
    ],
)  # fmt: skip
def test_which_volume(known: list[Any], claim: Any, more: dict[str, str], expected: str | None) -> None:
    assert expected == chosen(known, claim.typed(), **more)


def test_m26_of_equal_volumes_a_claim_always_gets_the_same() -> None:
    """Also if they came in another order; and other claims get others, so that two schedulers seldom meet."""
    equal = [local(name=name) for name in "abcdefgh"] + [a_pv("z", "100Gi", "W")]
    first = chosen(equal, asked().typed())

    assert {first} == {chosen(equal, asked().typed()) for _ in range(50)} | {chosen(equal[::-1], asked().typed())}
    assert 4 <= len({chosen(equal, asked().uid(f"u{at}").typed()) for at in range(50)})


def test_m19_a_selector_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="'Near' is not a label selector operator"):
        selector_of(wish_of(asked().matching_expression("t", "Near", "x").typed()))


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
    """Whatever came, was taken, freed, changed and went, on whatever nodes; also where nothing can be remembered."""
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
