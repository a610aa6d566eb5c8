"""Pods on nodes (docs/spec/core.md §2.1, §2.2, table §9.2), and trials, which leave the cache as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.selectors import LabelSelector
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.cache.nodes import topology as domains
from scheduler.cache.pods.selector_counts import selection
from tests.examples import SLOW_SHARE, examples
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
