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
    """`by` distinguishes two objects of one version."""
    return a_pv(name).resource_version(version).uid(uid).label("by", by).typed()


def mine(version: str, *, name: str = "v", by: str = "us") -> PersistentVolume:
    return pv(version, name=name, by=by)


def test_c6_c7_an_unknown_key_is_not_found_and_cannot_be_assumed() -> None:
    cache = Volumes()
    for ask in (lambda: cache.need("v"), lambda: cache.assume(mine("5"))):
        with pytest.raises(NotKnown, match=r'^persistentvolumes "v" not found$'):
            ask()


def test_c10_restoring_shows_the_store_again() -> None:
    cache = Volumes(pv("5"))
    cache.assume(mine("5"))
    cache.restore(mine("5"))

    assert pv("5") == cache.need("v")
    assert [(pv("5"), mine("5")), (mine("5"), pv("5"))] == cache.changes


@pytest.mark.parametrize(
    ("stored", "assumed"),
    [
        pytest.param("5", "6", id="C2 newer than the store"),
        pytest.param("5", "a", id="C4 not a number"),
        pytest.param("5", "05", id="versions are text"),
    ],
)
def test_another_version_cannot_be_assumed(stored: str, assumed: str) -> None:
    """The text is upstream's, and what is seen stays the store's. C3, C5: versions are compared as texts."""
    cache = Volumes(pv(stored))
    with pytest.raises(OutOfSync) as refused:
        cache.assume(mine(assumed))

    assert f'"v" is out of sync (stored: {stored}, assume: {assumed})' == str(refused.value)
    assert pv(stored) == cache.get("v")
    assert not cache.is_assumed("v")
    assert [] == cache.changes


def test_c18_two_caches_of_the_same_objects_do_not_see_each_other() -> None:
    first, second = (classes(a_pv("v", "1Gi", "x")) for _ in range(2))
    first.assume(a_pv("v", "1Gi", "x").claimed_by("c").typed())

    assert ([], ["v"]) == (free_of(first, "x"), free_of(second, "x"))


@pytest.mark.parametrize("legacy", ["old", ""])
def test_c20_the_legacy_annotation_decides_the_class(legacy: str) -> None:
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
    """C8–C15, C19: after any history `get` follows the table of §1.2, and every change of it is reported once."""
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
