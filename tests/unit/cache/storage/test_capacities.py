"""Free volumes and capacity of a class on each node (docs/spec/volumes.md §3.4, §11.6, §12.1 B-1)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.quantity import INT64_MAX
from scheduler.api.storage_v1 import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from scheduler.cache.nodes.node_groups import NodeGroup, NodeGroups, where_selector
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage import capacity as capacities_module, class_volumes as shelves_module
from scheduler.cache.storage.capacity import Capacities, CapacityCheck, ClassPools
from scheduler.cache.storage.capacity_pools import SharedPools
from scheduler.cache.storage.class_volumes import ClassVolumes, requirements_of, selector_of
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import NodeSet
from simulator.builders.core import node
from tests.support.volumebuilders import a_capacity, a_claim, a_pv
from tests.unit.cache.nodes.labelled_nodes import NAMES, node_steps, take
from tests.unit.cache.picture import leftovers
from tests.unit.cache.storage.storage_objects import at_version, capacities, claims, taken_by, volumes
from tests.unit.wakeups.literal_volumes import matching_volume, selector_admits

GI = 2**30
CAPACITY_LIMIT = 2**62
"""The capacity of a pool that does not report one."""


class World:
    """Nodes and capacity objects; each answer is compared with one for each node and object."""

    def __init__(self, *names: str) -> None:
        self.nodes = Nodes(capacity=1)
        self.groups = NodeGroups(self.nodes)
        self.seen = Capacities(self.nodes, self.groups, SharedPools(lambda _: ""))
        self.objects: dict[str, CSIStorageCapacity] = {}
        self.in_flight = Counter[str]()
        for name in names:
            take(self.nodes, (name, {}))

    def put(self, obj: CSIStorageCapacity) -> None:
        old = self.objects.get(obj.key)
        is_same = old is not None and old.storage_class_name == obj.storage_class_name
        if old is None or not is_same or where_selector(old.node_topology) != where_selector(obj.node_topology):
            self.in_flight[obj.key] = 0
        self.objects[obj.key] = obj
        self.seen.put(obj)

    def remove(self, key: str) -> None:
        self.objects.pop(key, None)
        self.in_flight[key] = 0
        self.seen.remove(key)

    def draw(self, key: str, size: int) -> None:
        """So much more is in flight; less than nothing never is."""
        pool = self.seen.pool(key)
        if pool is None:
            return
        size = max(size, -self.in_flight[key])
        self.in_flight[key] += size
        self.seen.book(pool, size)

    def of(self, storage_class: str) -> ClassPools:
        pools = self.seen.of(storage_class)
        assert pools is not None
        return pools

    def slot(self, name: str) -> int:
        slot = self.nodes.slot(name)
        assert slot is not None
        return slot

    def literal(self, storage_class: str, slot: int, sizes: Sequence[int], *, together: bool) -> list[str | None]:
        """From which object each of these comes on one node; None if from none."""
        node = self.nodes.node(slot)
        here = [
            obj
            for _, obj in sorted(self.objects.items())
            if obj.storage_class_name == storage_class
            and node is not None
            and selector_admits(obj.node_topology, node.metadata.labels)
        ]
        placed: dict[int, CSIStorageCapacity] = {}
        for at, size in enumerate(sizes):
            drawn = Counter(self.in_flight)
            for earlier, obj in placed.items():
                drawn[obj.key] += sizes[earlier]
            taking = [obj for obj in here if _takes(obj, size, drawn[obj.key], together=together)]
            if taking:
                placed[at] = max(taking, key=lambda obj: _capacity_of(obj) - drawn[obj.key])
            elif together:
                placed = self._placed_again(here, sizes, [*placed, at]) or placed
        return [placed[at].key if at in placed else None for at in range(len(sizes))]

    def _placed_again(
        self, here: Sequence[CSIStorageCapacity], sizes: Sequence[int], wanted: Sequence[int]
    ) -> dict[int, CSIStorageCapacity] | None:
        """Every way to place them, the largest first."""
        order = sorted(wanted, key=lambda at: -sizes[at])
        for way in itertools.product(here, repeat=len(order)):
            drawn = Counter(self.in_flight)
            for at, obj in zip(order, way):
                if not _takes(obj, sizes[at], drawn[obj.key], together=True):
                    break
                drawn[obj.key] += sizes[at]
            else:
                return dict(zip(order, way))
        return None

    def compare(self, storage_class: str, wanted: Sequence[tuple[int, int]], *, together: bool) -> None:
        """`wanted`: sizes, and for each a set of nodes."""
        pools = self.seen.of(storage_class)
        if pools is None:
            assert not any(obj.storage_class_name == storage_class for obj in self.objects.values())
            return
        pools.catch_up()
        drawing = CapacityCheck(pools, together=together)
        taken = [drawing.next(size, nodes & self.nodes.present) for size, nodes in wanted]
        for slot in nodeset.each(self.nodes.present):
            asked = [at for at, (_, nodes) in enumerate(wanted) if nodes >> slot & 1]
            sizes = [wanted[at][0] for at in asked]
            literal = self.literal(storage_class, slot, sizes, together=together)
            assert [key is not None for key in literal] == [bool(taken[at] >> slot & 1) for at in asked]
            one = CapacityCheck(pools, together=together)
            takes = [one.at(slot, size) for size in sizes]
            placed = iter(one.taken_from.get(slot, ()))
            assert literal == [next(placed).key if is_taken else None for is_taken in takes]

    def compare_all(self, sizes: Sequence[int]) -> None:
        """Each class, every node, in both ways."""
        everywhere = self.nodes.present
        for storage_class in "xy":
            for together in (False, True):
                self.compare(storage_class, [(size, everywhere) for size in sizes], together=together)
        assert len(self.objects) == len(self.seen)
        for key, obj in self.objects.items():
            pool = self.seen.pool(key)
            assert pool is not None
            assert (obj, self.in_flight[key]) == (pool.obj, pool.in_flight)

    def close(self) -> None:
        for key in list(self.objects):
            self.remove(key)
        assert (0, 0) == (len(self.seen), len(self.groups._groups))
        assert {} == self.seen._classes


def _capacity_of(obj: CSIStorageCapacity) -> int:
    return CAPACITY_LIMIT if obj.capacity is None else min(obj.capacity.value, CAPACITY_LIMIT)


def _takes(obj: CSIStorageCapacity, size: int, drawn: int, *, together: bool) -> bool:
    """Whether one more volume fits behind what is drawn."""
    limit = obj.limit
    is_free = not together or drawn == 0 or size <= _capacity_of(obj) - drawn
    return limit is not None and size <= limit.value and is_free


def at(capacity: str | None, *, name: str = "o", storage_class: str = "D", ns: str = "default") -> Any:
    """An object for everywhere."""
    return a_capacity(name, storage_class, capacity, ns=ns).everywhere()


def taking(pools: ClassPools, sizes: Sequence[int], nodes: NodeSet, *, together: bool) -> list[NodeSet]:
    """For each size in order, which of the nodes take it: together with those before it, or each judged alone."""
    pools.catch_up()
    drawing = CapacityCheck(pools, together=together)
    return [drawing.next(size, nodes) for size in sizes]


@pytest.mark.parametrize(
    ("objects", "in_flight", "sizes", "alone", "together"),
    [
        pytest.param([at("1Gi")], {}, [1, 1], "yy", "yn", id="K15 two claims and capacity for one"),
        pytest.param([at("2Gi")], {"o": 1}, [1, 1], "yy", "yn", id="what is in flight is gone"),
        pytest.param([at("2Gi")], {"o": 2}, [0], "y", "y", id="nothing fits even where nothing is left"),
        pytest.param([at("8Gi").maximum("2Gi")], {"o": 5}, [2, 2, 1], "yyy", "yny", id="the maximum stays what it was"),
        pytest.param([at(None).maximum("1Gi")], {"o": 99}, [1, 1], "yy", "yy", id="an unknown capacity is not used up"),
        pytest.param([at("1Gi"), at("1Gi", name="p")], {}, [1, 1, 1], "yyy", "yyn", id="one from each of two pools"),
        pytest.param([at("3Gi"), at("2Gi", name="p")], {}, [2, 2], "yy", "yy", id="the one with most left comes first"),
    ],
)
def test_several_claims(
    objects: list[Any], in_flight: dict[str, int], sizes: list[int], alone: str, together: str
) -> None:
    """In Gi; each judged alone as upstream does, and together with those before it (B-1)."""
    world = World("n1")
    for obj in objects:
        world.put(obj.typed())
    for name, size in in_flight.items():
        world.draw(f"default/{name}", size * GI)
    wanted = [size * GI for size in sizes]

    for expected, is_together in ((alone, False), (together, True)):
        found = taking(world.of("D"), wanted, world.nodes.present, together=is_together)

        assert expected == "".join("ny"[bool(nodes)] for nodes in found)
        world.compare("D", [(size, world.nodes.present) for size in wanted], together=is_together)


@pytest.mark.parametrize("nodes", [1, 40])
def test_absurd_sizes_do_not_overflow(nodes: int) -> None:
    world = World(*(f"n{at}" for at in range(nodes)))
    world.put(at("9Ei", storage_class="x").typed())
    world.put(at(None, storage_class="y").maximum("9Ei").typed())
    most = 2**63 - 1
    world.compare_all([most, most, 1, most])
    for _ in range(3):
        world.draw("default/o", most)
        world.compare_all([1, most])
    world.draw("default/o", -3 * most)
    world.compare_all([1, most, most, most])


_sizes = st.sampled_from([0, 1, GI, 2 * GI, 3 * GI, 5 * GI, 2**63 - 1])
_history = st.lists(
    st.one_of(
        st.tuples(st.just("node"), node_steps),
        st.tuples(st.just("put"), capacities),
        st.tuples(st.just("remove"), st.sampled_from(["default/o0", "default/o1", "other/o2"])),
        st.tuples(
            st.just("draw"),
            st.tuples(st.sampled_from(["default/o0", "default/o1", "other/o0"]), _sizes, st.sampled_from([1, 1, -1])),
        ),
        st.tuples(
            st.just("look"),
            st.tuples(st.sampled_from("xy"), st.lists(st.tuples(_sizes, st.integers(0, 255)), max_size=4)),
        ),
    ),
    max_size=40,
)


@given(
    first=st.lists(capacities, min_size=1, max_size=4),
    history=_history,
    always=st.lists(_sizes, min_size=1, max_size=3),
    log_max=st.sampled_from([1, 4, 65_536]),
    few=st.sampled_from([0, 16]),
)
def test_pools_are_as_good_as_looking_at_every_object(
    first: list[CSIStorageCapacity], history: list[tuple[str, Any]], always: list[int], *, log_max: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChangeLog, "log_max", log_max)
        patched.setattr(capacities_module, "_FEW", few)
        world = World("n0", "n1")
        for step, (what, more) in enumerate([*(("put", obj) for obj in first), *history]):
            if what == "node":
                take(world.nodes, more)
            elif what == "put":
                world.put(at_version(more, step))
            elif what == "remove":
                world.remove(more)
            elif what == "draw":
                world.draw(more[0], more[1] * more[2])
            else:
                world.compare(more[0], more[1], together=True)
                world.compare_all(always)
        world.compare_all(always)
        world.close()


class FreeVolumes:
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

    def compare(self, claim: PersistentVolumeClaim, excluded: frozenset[str]) -> None:
        free, requirements = self.free(), requirements_of(claim)
        size = claim.request.nano if claim.request is not None else 0
        class_volumes = self.volumes.class_volumes(claim.storage_class)
        fits = class_volumes.fits(requirements, size) if class_volumes is not None else None
        smallest = fits.smallest_bytes() if fits is not None else None
        for slot, labels in self.labels():
            fitting = [volume for volume in free if matching_volume(claim, [volume], labels) is not None]
            assert len(fitting) == (int(fits.counts[slot]) if fits is not None else 0)
            assert bool(fitting) is bool(fits is not None and fits.nodes >> slot & 1)
            left = [volume for volume in fitting if volume.key not in excluded]
            found = (
                class_volumes.smallest(slot, claim, requirements, excluded=excluded)
                if class_volumes is not None
                else None
            )
            if smallest is not None:
                assert min((volume.capacity.value for volume in fitting), default=INT64_MAX) == smallest[slot]
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
        assert 0 == len(self.groups._groups)
        assert leftovers(self.volumes) == {}


def local(capacity: str = "100Gi", *, name: str = "a", on: str = "n1") -> Any:
    return a_pv(name, capacity, "W").on(on)


def requesting(request: str | None = "100Gi") -> Any:
    return a_claim("c", "1Gi", "W").uid("u").request(request)


def chosen(known: list[Any], claim: PersistentVolumeClaim, *, on: str = "n1", excluded: str = "") -> str | None:
    """What the claim takes on that node; the counts and the other nodes are compared with the specification, too."""
    world = FreeVolumes()
    for name in ("n1", "n2", "n3"):
        world.nodes.set_node(node(name).typed())
    for volume in known:
        world.volumes.set(volume.typed())
    world.compare(claim, frozenset(excluded))
    class_volumes, slot = world.volumes.class_volumes("W"), world.nodes.slot(on)
    assert slot is not None
    return (
        class_volumes.smallest(slot, claim, requirements_of(claim), excluded=excluded)
        if class_volumes is not None
        else None
    )


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
        selector_of(requirements_of(requesting().matching_expression("t", "Near", "x").typed()))


@pytest.mark.parametrize("few", [0, 1000])
def test_the_smallest_size_follows_a_volume_that_takes_the_row_of_another(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of volumes on the node is the same."""
    monkeypatch.setattr(shelves_module, "_FEW", few)
    world, claim = FreeVolumes(), requesting("1Gi").typed()
    world.nodes.set_node(node("n1").typed())
    for name in "ab":
        world.volumes.set(local("2Gi", name=name).typed())
    world.volumes.set(local("1Gi", name="c").typed())
    world.compare(claim, frozenset())
    world.volumes.set(local("3Gi", name="c").typed())
    world.compare(claim, frozenset())


def test_smallest_sizes_follow_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change costs a search in the group of its volume, whatever the number of volumes and nodes."""
    world, search = FreeVolumes(), ClassVolumes.smallest_bytes
    searched: list[int] = []

    def counted(rows: ClassVolumes, group: NodeGroup, *more: Any) -> int:
        searched.append(group.slot)
        return search(rows, group, *more)

    monkeypatch.setattr(ClassVolumes, "smallest_bytes", counted)
    for at in range(100):
        world.nodes.set_node(node(f"n{at}").typed())
        for size in ("1Gi", "2Gi", "3Gi"):
            world.volumes.set(local(size, name=f"{size}-{at}", on=f"n{at}").typed())
    claim = requesting("1Gi").typed()

    def smallest(at: int) -> int:
        class_volumes = world.volumes.class_volumes("W")
        assert class_volumes is not None
        fits = class_volumes.fits(requirements_of(claim), GI)
        return int(fits.smallest_bytes()[at]) // GI

    assert [1, 1] == [smallest(7), smallest(8)]
    assert [] == searched
    world.volumes.assume(taken_by(world.volumes.need("1Gi-7"), "c0"))
    assert [2, 1] == [smallest(7), smallest(8)]
    assert [7] == searched
    world.volumes.restore(world.volumes.need("1Gi-7"))
    assert [1, 1] == [smallest(7), smallest(8)]
    assert [7, 7] == searched


_shelves = st.lists(
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


def do(world: FreeVolumes, at: int, *, what: str, more: Any) -> None:
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
    history=_shelves,
    always=st.lists(claims, min_size=1, max_size=3),
    log_max=st.sampled_from([1, 4, 16_384]),
    few=st.sampled_from([0, 1000]),
    few_groups=st.sampled_from([0, 1000]),
    pace=st.sampled_from([1, 1, 4]),
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
    few_groups: int,
    pace: int,
    shapes: int,
    is_cramped: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClassVolumes, "log_max", log_max)
        patched.setattr(ChangeLog, "log_max", log_max)
        patched.setattr(shelves_module, "_FEW", few)
        patched.setattr(shelves_module, "_FEW_GROUPS", few_groups)
        patched.setattr(shelves_module, "_SHAPES", shapes)
        if is_cramped:
            patched.setattr(shelves_module, "_SPARE_GROUPS", -1000)
            patched.setattr(shelves_module, "_SPARE_SIZES", -1000)
            patched.setattr(ClassVolumes.__init__, "__kwdefaults__", {"capacity": 1})
        world = FreeVolumes()
        for name in NAMES[:2]:
            take(world.nodes, (name, {}))
        for at, (what, more) in enumerate([*(("set", volume) for volume in first), *history]):
            do(world, at, what=what, more=more)
            for claim in always if at % pace == 0 else ():
                world.compare(claim, frozenset())
        for claim in always:
            world.compare(claim, frozenset({"v1"}))
        assert sorted(volume.key for volume in world.volumes if meant(world, volume) == "c0") == [
            volume.key for volume in world.volumes.meant_for("default/c0")
        ]
        world.close()


def meant(world: FreeVolumes, volume: PersistentVolume) -> str | None:
    """The claim that a volume's claimRef names, as decisions see it."""
    ref = world.volumes.need(volume.key).spec.claim_ref
    return ref.name if ref is not None else None
