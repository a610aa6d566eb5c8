"""Objects as the watch has them, and our own that stand in for them until it speaks: docs/spec/volumes.md §1.2, §11.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.storage_v1 import PersistentVolume
from scheduler.cache.nodes.node_groups import NodeGroups
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.storage.assume_cache import AssumeCache, NotKnown, OutOfSync
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from tests.support.volumebuilders import a_pv


class Volumes(AssumeCache[PersistentVolume]):
    """An assume cache that writes down what changed."""

    def __init__(self, *stored: PersistentVolume) -> None:
        super().__init__("persistentvolumes")
        self.changes: list[tuple[PersistentVolume | None, PersistentVolume | None]] = []
        for one in stored:
            self.set(one)
        self.changes.clear()

    def _changed(self, before: PersistentVolume | None, now: PersistentVolume | None) -> None:
        self.changes.append((before, now))


def pv(version: str, *, name: str = "v", by: str = "watch", uid: str = "u") -> PersistentVolume:
    """`by` tells two objects of one version apart."""
    return a_pv(name).resource_version(version).uid(uid).label("by", by).typed()


def mine(version: str, *, name: str = "v", by: str = "us") -> PersistentVolume:
    return pv(version, name=name, by=by)


def shown(cache: AssumeCache[PersistentVolume], key: str = "v") -> str | None:
    """Whose object decisions see, and its version."""
    found = cache.get(key)
    return None if found is None else f"{found.metadata.labels['by']} {found.metadata.resource_version}"


def test_c1_an_assumption_on_the_newest_version_stands_in_for_it() -> None:
    cache = Volumes(pv("5"))
    cache.assume(mine("5"))

    assert mine("5") == cache.get("v") == cache.need("v")
    assert pv("5") == cache.get_api("v")
    assert cache.is_assumed("v")
    assert [(pv("5"), mine("5"))] == cache.changes


@pytest.mark.parametrize(
    ("stored", "assumed"),
    [
        pytest.param("5", "6", id="C2 newer than the store"),
        pytest.param("5", "4", id="C3 older than the store"),
        pytest.param("5", "a", id="C4 not a number"),
        pytest.param("a", "5", id="C5 the stored one is not a number"),
        pytest.param("5", "", id="no version at all"),
        pytest.param("5", "05", id="versions are text"),
    ],
)
def test_another_version_cannot_be_assumed(stored: str, assumed: str) -> None:
    """Newer and older are refused alike, with upstream's text; what is seen stays the store's."""
    cache = Volumes(pv(stored))
    with pytest.raises(OutOfSync) as refused:
        cache.assume(mine(assumed))

    assert f'"v" is out of sync (stored: {stored}, assume: {assumed})' == str(refused.value)
    assert pv(stored) == cache.get("v")
    assert not cache.is_assumed("v")
    assert [] == cache.changes


def test_c6_what_the_store_does_not_have_cannot_be_assumed() -> None:
    cache = Volumes(pv("5", name="other"))
    with pytest.raises(NotKnown) as refused:
        cache.assume(mine("5"))

    assert 'persistentvolumes "v" not found' == str(refused.value)
    assert cache.get("v") is None
    assert () == cache.assumed_keys()


def test_c7_an_unknown_key_is_not_found() -> None:
    cache = Volumes()
    with pytest.raises(NotKnown) as refused:
        cache.need("v")

    assert 'persistentvolumes "v" not found' == str(refused.value)
    assert cache.get("v") is cache.get_api("v") is None
    assert not cache.is_assumed("v")


def test_c10_restoring_shows_the_store_again() -> None:
    cache = Volumes(pv("5"))
    cache.assume(mine("5"))
    cache.restore(mine("5"))
    cache.restore(mine("5"))

    assert "watch 5" == shown(cache)
    assert [(pv("5"), mine("5")), (mine("5"), pv("5"))] == cache.changes


def test_c14_another_version_ends_the_assumption() -> None:
    cache = Volumes(pv("1"))
    cache.assume(mine("1"))
    cache.set(pv("2"))

    assert "watch 2" == shown(cache)
    assert () == cache.assumed_keys()
    assert (mine("1"), pv("2")) == cache.changes[-1]


def test_c16_a_change_touches_its_own_class_only() -> None:
    """Ten volumes in each of two classes; one changes, one goes."""
    cache = classes(*(a_pv(f"{name}{at}", "1Gi", name) for name in "xy" for at in range(10)))
    cache.set(a_pv("x3", "1Gi", "x").resource_version("2").phase("Bound").typed())
    cache.remove("x4")

    assert sorted(f"x{at}" for at in range(10) if at not in {3, 4}) == free_of(cache, "x")
    assert sorted(f"y{at}" for at in range(10)) == free_of(cache, "y")


def test_c17_an_assumed_volume_is_seen_as_assumed_in_its_class() -> None:
    cache = classes(a_pv("v", "1Gi", "x"), a_pv("w", "1Gi", "x"))
    cache.assume(a_pv("v", "1Gi", "x").claimed_by("c", uid="u").typed())

    assert ["w"] == free_of(cache, "x")
    assert ["v"] == [volume.key for volume in cache.meant_for("default/c")]

    cache.restore(a_pv("v", "1Gi", "x").typed())

    assert ["v", "w"] == free_of(cache, "x")
    assert [] == cache.meant_for("default/c")


def test_c18_two_caches_of_the_same_objects_do_not_see_each_other() -> None:
    """Indexes belong to a cache; an assumption in one is none in the other."""
    first, second = (classes(a_pv("v", "1Gi", "x")) for _ in range(2))
    first.assume(a_pv("v", "1Gi", "x").claimed_by("c").typed())

    assert ([], ["v"]) == (free_of(first, "x"), free_of(second, "x"))


@pytest.mark.parametrize("legacy", ["old", ""])
def test_c20_the_legacy_annotation_decides_the_class(legacy: str) -> None:
    """Even an empty one."""
    cache = classes(a_pv("v", "1Gi", "new").legacy_class(legacy))

    assert cache.class_volumes("new") is None
    assert ["v"] == free_of(cache, legacy)


def classes(*volumes: Any) -> PersistentVolumes:
    nodes = Nodes()
    cache = PersistentVolumes(nodes, NodeGroups(nodes))
    for volume in volumes:
        cache.set(volume.typed())
    return cache


def free_of(cache: PersistentVolumes, storage_class: str) -> list[str]:
    class_volumes = cache.class_volumes(storage_class)
    assert class_volumes is not None
    return sorted(row.name for at, row in enumerate(class_volumes.rows) if row is not None and class_volumes.free[at])


_steps = st.tuples(
    st.sampled_from(["set", "remove", "assume", "restore"]), st.sampled_from("vw"), st.sampled_from("123")
)


@given(st.lists(_steps, max_size=20))
def test_it_is_the_assumption_exactly_while_the_store_has_its_version(steps: list[tuple[str, str, str]]) -> None:
    """C8, C9, C11–C15, C19: after any history `get` follows the table of §1.2, and every change of it is told once."""
    cache, store, assumed = Volumes(), dict[str, PersistentVolume](), dict[str, PersistentVolume]()
    followed: dict[str, PersistentVolume | None] = {}
    for at, (what, name, version) in enumerate(steps):
        theirs, ours = pv(version, name=name, by=f"watch{at}"), mine(version, name=name, by=f"us{at}")
        fits = name in store and store[name].metadata.resource_version == version
        if what == "set":
            cache.set(theirs)
            store[name] = theirs
            if name in assumed and assumed[name].metadata.resource_version != version:
                del assumed[name]
        elif what == "remove":
            cache.remove(name)
            store.pop(name, None)
            assumed.pop(name, None)
        elif what == "assume" and fits:
            cache.assume(ours)
            assumed[name] = ours
        elif what == "assume":
            with pytest.raises(OutOfSync if name in store else NotKnown):
                cache.assume(ours)
        else:
            cache.restore(ours)
            if name in assumed and assumed[name].metadata.resource_version == version:
                del assumed[name]
        for before, now in cache.changes:
            changed = (now or before or theirs).key
            assert followed.get(changed) == before
            followed[changed] = now
        cache.changes.clear()
        for key in "vw":
            assert (cache.get(key), cache.get_api(key)) == (assumed.get(key, store.get(key)), store.get(key))
            assert cache.is_assumed(key) is (key in assumed)
            assert followed.get(key) == cache.get(key)
        assert (len(cache), sorted(one.key for one in cache)) == (len(store), sorted(store))
        assert set(assumed) == set(cache.assumed_keys())
