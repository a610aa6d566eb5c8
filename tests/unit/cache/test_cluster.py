"""Pods on nodes (docs/spec/core.md §2.1, §2.2, table §9.2), trials, and assumed objects (docs/spec/volumes.md §1.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import PersistentVolume
from scheduler.cache.assume_cache import AssumeCache, NotKnown, OutOfSync
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.cache.nodes import topology as domains
from scheduler.cache.nodes.node_groups import NodeGroups
from scheduler.cache.nodes.nodes import Nodes
from scheduler.cache.pods import selection
from scheduler.cache.storage.persistent_volumes import PersistentVolumes
from tests.examples import SLOW_SHARE, examples
from tests.support.volumebuilders import a_pv
from tests.unit.cache.picture import check_sums, picture
from tests.unit.objects import cluster, info, node, pod_requesting
from tests.unit.plugins.preemption_worlds import NAMES, bound, newcomers, nodes


def cpu(seen: Cluster, name: str) -> int:
    slot = seen.nodes.slot(name)
    return 0 if slot is None else seen.nodes.view(slot).requested("cpu")


def test_71_assume_then_add() -> None:
    seen = cluster(node("n1"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    assumed = seen.is_assumed("a")
    seen.add_pod(pod_requesting("a", on="n1", cpu="1"))

    assert (assumed, seen.is_assumed("a")) == (True, False)
    assert cpu(seen, "n1") == 1000
    assert seen.sizes() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
    assert seen.healed == 0


def test_72_assume_twice() -> None:
    seen = cluster(node("n1"), node("n2"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    with pytest.raises(AssumptionError):
        seen.assume(pod_requesting("a", on="n2", cpu="1"))

    assert (cpu(seen, "n1"), cpu(seen, "n2")) == (1000, 0)


def test_73_assumed_here_bound_there() -> None:
    seen = cluster(node("n1"), node("n2"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    before = seen.version("n2")
    seen.add_pod(pod_requesting("a", on="n2", cpu="1"))

    assert (cpu(seen, "n1"), cpu(seen, "n2")) == (0, 1000)
    assert before != seen.version("n2")
    assert not seen.is_assumed("a")


@pytest.mark.parametrize("known", ["bound", "elsewhere", "unknown"])
def test_74_forget_what_was_not_assumed(known: str) -> None:
    seen = cluster(node("n1"), node("n2"))
    if known == "bound":
        seen.add_pod(pod_requesting("a", on="n1", cpu="1"))
    if known == "elsewhere":
        seen.assume(pod_requesting("a", on="n2", cpu="1"))
    before = (cpu(seen, "n1"), cpu(seen, "n2"), seen.sizes())
    with pytest.raises(AssumptionError):
        seen.forget(pod_requesting("a", on="n1", cpu="1"))

    assert before == (cpu(seen, "n1"), cpu(seen, "n2"), seen.sizes())


@pytest.mark.parametrize(
    ("first", "healed"),
    [
        pytest.param(None, 1, id="update of an unknown pod"),
        pytest.param("bound to n1", 1, id="bound pod that moved"),
        pytest.param("assumed on n1", 1, id="assumed pod updated elsewhere"),
    ],
)
def test_contradictions_are_healed_and_counted_once(first: str | None, healed: int) -> None:
    """Where upstream exits, the newest object wins."""
    seen = cluster(node("n1"), node("n2"))
    if first == "bound to n1":
        seen.add_pod(pod_requesting("a", on="n1", cpu="1"))
    if first == "assumed on n1":
        seen.assume(pod_requesting("a", on="n1", cpu="1"))
    seen.update_pod(pod_requesting("a", on="n2", cpu="1"))

    assert (0, 1000, healed) == (cpu(seen, "n1"), cpu(seen, "n2"), seen.healed)


def test_a_pod_of_which_nothing_can_be_read_is_there_and_counts_nothing() -> None:
    seen = cluster(node("n1"))
    seen.add_broken(Broken("Pod", Metadata(name="a", uid="a"), "no", node_name="n1"))
    seen.add_broken(Broken("Pod", Metadata(name="b", uid="b"), "no", node_name="nowhere"))
    there = [broken.key for broken in seen.broken()], seen.is_broken("a"), cpu(seen, "n1")
    seen.remove_broken("a")
    seen.remove_broken("a")

    assert (["a", "b"], True, 0) == there
    assert not seen.is_broken("a")
    assert seen.nodes.slot("nowhere") is None


EVERYWHERE = (*NAMES, "ghost", "unknown")
X = selection(((None, LabelSelector({"app": "x"})),), counts_terminating=False)

steps = st.one_of(
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("add"), st.integers(0, 9), st.sampled_from(EVERYWHERE)),
    st.tuples(st.just("come"), st.integers(0, 3).flatmap(lambda at: newcomers(f"n{at}")), st.sampled_from(EVERYWHERE)),
    st.tuples(st.just("look"), st.sampled_from(("zone", "host"))),
    st.tuples(st.just("inner"), st.integers(0, 9), st.sampled_from(EVERYWHERE)),
    st.tuples(st.just("aside")),
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to three nodes and a ghost: pods are on it, and its object is gone."""
    seen = Cluster()
    for one in draw(st.lists(nodes, min_size=1, max_size=3)):
        seen.set_node(one)
    for at in range(draw(st.integers(1, 8))):
        seen.add_pod(draw(bound(f"b{at}", draw(st.sampled_from((*NAMES, "ghost"))))))
    return seen


def looked_at(seen: Cluster, key: str) -> int:
    """Read sums, which are maintained from then on."""
    counts = seen.nodes.population.tally(X)
    return len(domains.of(counts, seen.nodes.topologies.of(key)).levels())


@settings(
    max_examples=examples(120, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(seen=clusters(), history=st.lists(steps, max_size=14))
def test_everything_is_as_it_was(seen: Cluster, history: list[tuple[Any, ...]]) -> None:
    before, pods = picture(seen), sorted(seen.pods(), key=lambda one: one.uid)
    with seen.trial() as trial:
        for what, *more in history:
            match what:
                case "remove":
                    trial.remove(pods[more[0] % len(pods)])
                case "add":
                    trial.add(pods[more[0] % len(pods)], more[1])
                case "come":
                    trial.add(more[0], more[1])
                case "look":
                    looked_at(seen, more[0])
                case "inner":
                    inside = picture(seen)
                    with seen.trial(add=[(pods[more[0] % len(pods)], more[1])], remove=pods):
                        check_sums(seen)
                    assert inside == picture(seen)
                case "aside":
                    inside = picture(seen)
                    with trial.suspended():
                        assert before == picture(seen)
                    assert inside == picture(seen)
            check_sums(seen)
    check_sums(seen)

    assert before == picture(seen)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(seen=clusters(), data=st.data())
def test_inside_it_is_a_cluster_with_these_pods(seen: Cluster, data: st.DataObject) -> None:
    pods = list(seen.pods())
    leaving = data.draw(st.lists(st.sampled_from(pods), unique_by=lambda one: one.uid, max_size=4))
    coming = [data.draw(bound(f"c{at}")) for at in range(data.draw(st.integers(0, 3)))]
    expected = Cluster()
    for name in NAMES:
        slot = seen.nodes.present_slot(name)
        one = seen.nodes.node(slot) if slot is not None else None
        if one is not None:
            expected.set_node(one)
    for other in (*(one for one in pods if one not in leaving), *coming):
        expected.add_pod(other)
    with seen.trial(add=[(one, one.node_name) for one in coming], remove=leaving):
        inside = picture(seen)

    # The cluster's own list of pods is not the trial's business.
    assert {**inside, "pods": None} == {**picture(expected), "pods": None}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whatever_ends_it(error: type[BaseException]) -> None:
    here = info("a", on="n1")
    seen = cluster(node("n1"), here)
    before = picture(seen)

    def interrupted() -> None:
        with seen.trial(remove=[here]) as trial:
            trial.add(info("b"), "n1")
            raise error

    with pytest.raises(error):
        interrupted()

    assert before == picture(seen)


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
