"""InterPodAffinity: docs/spec/core.md §5.9, rows 146, 147, 176–178; an event that lets a pod in wakes it (§10.2)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from scheduler.api.core_v1 import Namespace
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.config.args import InterPodAffinityArgs
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.core.cooperative import answered, finish
from scheduler.eventhandlers.nodes import node_changes
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.status import Code
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.queueing.types import pod_changes
from tests.examples import SLOW_SHARE, examples
from tests.unit.harness import manifest, typed
from tests.unit.objects import cluster, handle, node
from tests.unit.plugins.ask import hinted, refused, scored
from tests.unit.plugins.reference_affinity import AFFINITY, ANTI, EXISTING, Reference

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = (
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("bare"),
)
CODES = {AFFINITY: Code.UNRESOLVABLE, ANTI: Code.UNSCHEDULABLE, EXISTING: Code.UNSCHEDULABLE}


def pod(name: str = "p", app: str = "", *, ns: str = "default", **more: Any) -> PodInfo:
    """Labelled app=<app>; near, away (required terms), likes, dislikes (weight, term) make its affinity."""
    affinity: dict[str, Any] = {
        "podAffinity": {
            HARD: more.pop("near", []),
            SOFT: [{"weight": w, "podAffinityTerm": t} for w, t in more.pop("likes", [])],
        },
        "podAntiAffinity": {
            HARD: more.pop("away", []),
            SOFT: [{"weight": w, "podAffinityTerm": t} for w, t in more.pop("dislikes", [])],
        },
    }
    raw = manifest(name, uid=f"{ns}/{name}", labels={"app": app} if app else {}, affinity=affinity, **more)
    raw["metadata"]["namespace"] = ns
    return pod_info(typed(raw))


def term(app: str = "db", key: str = "zone", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def namespace(name: str, **labels: str) -> Namespace:
    return from_manifest(Namespace, {"metadata": {"name": name, "labels": labels}})


def plugin_on(seen: Cluster, **args: Any) -> InterPodAffinity:
    return InterPodAffinity(InterPodAffinityArgs(**args), handle(seen))


def test_only_candidates_are_refused() -> None:
    """And Filter is never skipped, for pods may come between two looks."""
    seen = cluster(*NODES)
    plugin, state, comes = plugin_on(seen), CycleState(), pod(app="x")
    plugin.pre_filter(state, comes, seen.nodes.present)
    seen.add_pod(pod("guard", on="a1", away=[term("x")]))

    both = finish(answered(plugin.filter(state, comes, seen.nodes.by_name(["a2", "b1"]))))
    assert [seen.nodes.by_name(["a2"])] == [*both.values()]
    assert {} == plugin.filter(state, comes, seen.nodes.by_name(["b1"]))


def test_the_pods_of_many_terms_are_counted_in_steps() -> None:
    """A term may have to be compared with the labels of every pod of the cluster, which takes up to 100 ms."""
    seen = cluster(*NODES, pod("db", "db7", on="a1"), pod("web", "web", on="b1"))
    plugin, apart = plugin_on(seen), [term(f"db{at}") for at in range(9)]
    comes = pod(away=apart, likes=[(1, term("web"))])

    assert len(list(plugin.filter(CycleState(), comes, seen.nodes.present))) == 10
    assert refused(plugin, seen, comes) == refused(plugin, seen, pod(away=[term("db7")])) != {}
    assert scored(plugin, seen, comes) == scored(plugin, seen, pod(likes=[(1, term("web"))])) is not None


@pytest.mark.parametrize(("there", "args"), [
    pytest.param(pod("db", "db", on="a1", near=[term("web")]), {"hard_pod_affinity_weight": 0},
        id="hardPodAffinityWeight 0"),
    pytest.param(pod("db", "db", on="a1", dislikes=[(5, term("web"))]),
        {"ignore_preferred_terms_of_existing_pods": True}, id="ignorePreferredTermsOfExistingPods"),
])  # fmt: skip
def test_terms_of_existing_pods_that_do_not_count(there: PodInfo, args: dict[str, Any]) -> None:
    """Score is skipped for a pod without own wishes."""
    seen, comes = cluster(*NODES, there), pod(app="web")

    assert scored(plugin_on(seen), seen, comes) is not None
    assert scored(plugin_on(seen, **args), seen, comes) is None


RELABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
NODE_LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NAMESPACE_ADD = ClusterEvent(Resource.NAMESPACE, Action.ADD)
NAMESPACE_UPDATE = ClusterEvent(Resource.NAMESPACE, Action.UPDATE_OTHER)
TEAM: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "t"}}}


@pytest.mark.parametrize(("waits", "event", "old", "new", "hint"), [
    pytest.param(pod(near=[term(), term("web")]), ASSIGNED_POD_ADD, None, pod("db", "db", on="a1"), Hint.SKIP,
        id="it matches one of two terms"),
    pytest.param(pod(near=[term()]), RELABELLED, pod("x", "db", on="a1"), pod("x", "x", on="a1"), Hint.SKIP,
        id="one ceases to be what it wants"),
    pytest.param(pod(away=[term()]), NODE_LABELS, node("c"), node("c", labels={"zone": "c"}), Hint.SKIP,
        id="anti: got it"),
    pytest.param(pod(near=[term(namespaceSelector={})]), NAMESPACE_UPDATE, namespace("late"),
        namespace("late", team="t"), Hint.SKIP, id="all namespaces were selected before"),
    pytest.param(pod(near=[term()]), ASSIGNED_POD_DELETE, pod("db", "db", on="a1"), None, Hint.SKIP,
        id="a liked one went"),
    pytest.param(pod(near=[term()]), NODE_DELETE, NODES[0], None, Hint.SKIP, id="a node went"),
    pytest.param(pod(near=[term()]), NODE_LABELS, node("c", labels={"zone": "c"}), node("c"), Hint.SKIP,
        id="it lost the key"),
    pytest.param(pod(near=[term()]), NAMESPACE_ADD, None, namespace("new"), Hint.SKIP, id="none is selected"),
])  # fmt: skip
def test_hints(waits: PodInfo, event: ClusterEvent, old: Any, new: Any, hint: Hint | None) -> None:
    """Queue when the event can have helped; `hinted` checks the law of topics on the way."""
    seen = cluster(*NODES)
    seen.namespaces.set(namespace("team", team="t"))

    assert hint is hinted(plugin_on(seen), event, waits, old=old, new=new)


def test_a_label_that_terms_about_other_pods_read_wakes_no_pod() -> None:
    """The key counts only where the term is about the waiting pod."""
    plugin = plugin_on(cluster(*NODES, pod("guard", on="b1", away=[term("other", "rack")])))

    assert Hint.SKIP is hinted(plugin, NODE_LABELS, pod(app="x"), old=node(labels={"rack": "1"}), new=node())


def test_equal_pods_have_one_shape() -> None:
    """The shape of pod hints is what terms look at; of node hints, the topology keys that matter to the pod."""
    shapes = {r.event.resource: r.shape for r in plugin_on(cluster()).events_to_register() if r.shape is not None}
    pods = [pod("a", "x"), pod("b", "x"), pod("c", "x", ns="else"), pod("d", "x", away=[term(key="rack")])]

    assert {resource: len({shape(each) for each in pods}) for resource, shape in shapes.items()} == {
        Resource.ASSIGNED_POD: 3,
        Resource.NODE: 2,
        Resource.NAMESPACE: 3,
    }


# -- the law ----------------------------------------------------------------------------------------------------------

SELECTOR = st.sampled_from(
    [
        None,
        {},
        {"matchLabels": {"app": "x"}},
        {"matchLabels": {"app": "y"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "z"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    ]
)


@st.composite
def a_term(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"topologyKey": draw(st.sampled_from(["zone", "host", "rack"]))}
    selector = draw(SELECTOR)
    if selector is not None:
        found["labelSelector"] = selector
    found["namespaces"] = draw(st.sampled_from([[], [], ["n1"], ["n1", "n2"]]))
    if draw(st.integers(0, 2)) == 0:
        found["namespaceSelector"] = draw(
            st.sampled_from(
                [
                    {},
                    {"matchLabels": {"team": "t"}},
                    {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                ]
            )
        )
    return found


WISH = st.tuples(st.integers(1, 100), a_term())
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "zone": st.sampled_from(["a", "b"]),
        "host": st.sampled_from(["h1", "h2", "h3"]),
        "rack": st.sampled_from(["r1", "r2"]),
    },
)


@st.composite
def a_pod(draw: st.DrawFn, name: str = "p", *, on: bool) -> PodInfo:
    rules = {
        "near": draw(st.lists(a_term(), max_size=2)),
        "away": draw(st.lists(a_term(), max_size=2)),
        "likes": draw(st.lists(WISH, max_size=2)),
        "dislikes": draw(st.lists(WISH, max_size=1)),
    }
    node_name = draw(st.sampled_from(["n1", "n2", "n3", "n4"])) if on else ""
    app, space = draw(st.sampled_from(["", "x", "y", "z"])), draw(st.sampled_from(["n1", "n2", "n3"]))
    return pod(name, app, ns=space, on=node_name, **rules)


STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(["n1", "n2", "n3", "n4"]), LABELS),
    st.tuples(st.just("gone"), st.sampled_from(["n1", "n2", "n3", "n4"])),
    st.integers(0, 5).flatmap(lambda i: st.tuples(st.just("pod"), a_pod(f"p{i}", on=True))),
    st.tuples(st.just("left"), st.integers(0, 5)),
    st.tuples(st.just("space"), st.sampled_from(["n1", "n2"]), st.sampled_from([{}, {"team": "t"}])),
)


def apply(seen: Cluster, step: tuple[Any, ...]) -> None:
    match step:
        case ("node", name, labels):
            seen.set_node(node(name, labels=labels))
        case ("gone", name):
            seen.remove_node(name)
        case ("pod", info):
            if seen.get(info.uid) is None:
                seen.add_pod(info)
        case ("left", number):
            for space in ("n1", "n2", "n3"):
                seen.remove_pod(f"{space}/p{number}")
        case ("space", name, labels):
            seen.namespaces.set(namespace(name, **labels))


def agree(plugin: InterPodAffinity, seen: Cluster, comes: PodInfo) -> None:
    reference = Reference(seen, comes)
    expected = {name: (CODES[text], (text,)) for name, text in reference.filter().items()}
    assert expected == refused(plugin, seen, comes)
    if seen.nodes.present:
        assert reference.scores() == scored(plugin, seen, comes)


@settings(max_examples=examples(120, share=SLOW_SHARE))
@given(
    st.lists(STEP, max_size=12),
    st.lists(st.one_of(STEP, st.just(("check",))), max_size=8),
    st.lists(a_pod("q", on=False), min_size=1, max_size=3),
    a_pod("nominated", on=False),
)
def test_sets_and_columns_agree_with_looking_at_every_pod(start, more, comers, nominated):
    """146, 147, 176, 177, 178: after any history, with one plugin for all of it, and inside a trial."""
    seen = cluster(node("n1", labels={"zone": "a", "host": "h1"}), node("n2", labels={"zone": "b", "host": "h2"}))
    plugin = plugin_on(seen)
    for step in (*start, ("check",), *more, ("check",)):
        if step == ("check",):
            for comes in comers:
                agree(plugin, seen, comes)
        else:
            apply(seen, step)
    with seen.trial(add=[(nominated, "n1")], remove=list(seen.pods())[:2]):
        for comes in comers:
            agree(plugin, seen, comes)
    for comes in comers:
        agree(plugin, seen, comes)


PLACES = ("n1", "n2", "n3", "n4")
PODS = st.integers(0, 3)
APPS = st.sampled_from(["x", "y"])
SPACES = st.sampled_from(["n1", "n1", "n2"])
PLACE_LABELS = st.sampled_from(
    [{}, {"zone": "a"}, {"zone": "a", "host": "h"}, {"zone": "b"}, {"zone": "b", "host": "h"}]
)


@st.composite
def drawn_term(draw: st.DrawFn) -> dict[str, Any]:
    more = draw(st.sampled_from([{}, {}, TEAM, {"namespaces": ["n1"]}, {"namespaceSelector": {}}]))
    return term(draw(APPS), draw(st.sampled_from(["zone", "zone", "host"])), **more)


@st.composite
def drawn_pod(draw: st.DrawFn, name: str, *, on: bool) -> PodInfo:
    near, away = draw(st.sampled_from([(0, 0), (1, 0), (1, 0), (0, 1), (0, 1), (2, 0), (0, 2), (1, 1)]))
    rules = {"near": [draw(drawn_term()) for _ in range(near)], "away": [draw(drawn_term()) for _ in range(away)]}
    return pod(name, draw(APPS), ns=draw(SPACES), on=draw(st.sampled_from(PLACES)) if on else "", **rules)


PLACE_STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(PLACES), PLACE_LABELS),
    st.tuples(st.just("gone"), st.sampled_from(PLACES)),
    PODS.flatmap(lambda i: st.tuples(st.just("pod"), drawn_pod(f"p{i}", on=True))),
    st.tuples(st.just("left"), PODS),
    st.tuples(st.just("called"), PODS, APPS),
    st.tuples(st.just("space"), st.sampled_from(["n1", "n2"]), st.sampled_from([{}, {"team": "t"}])),
)

News = tuple[ClusterEvent, Any, Any]


def happens(seen: Cluster, step: tuple[Any, ...]) -> Iterator[News]:
    """Apply the step; the events of it, as intake makes them."""
    match step:
        case ("node", name, labels):
            slot = seen.nodes.present_slot(name)
            old, new = (seen.nodes.node(slot) if slot is not None else None), node(name, labels=labels)
            apply(seen, step)
            for event in (NODE_ADD,) if old is None else node_changes(old, new):
                yield event, old, new
        case ("gone", name):
            slot = seen.nodes.present_slot(name)
            if slot is not None:
                left = seen.nodes.node(slot)
                apply(seen, step)
                yield NODE_DELETE, left, None
        case ("pod", info) if seen.get(info.uid) is None:
            apply(seen, step)
            yield ASSIGNED_POD_ADD, None, info
        case ("left", number):
            for info in whose_number(seen, number):
                seen.remove_pod(info.uid)
                yield ASSIGNED_POD_DELETE, info, None
        case ("called", number, app):
            for info in whose_number(seen, number):
                metadata = msgspec.structs.replace(info.pod.metadata, labels={"app": app})
                renamed = pod_info(msgspec.structs.replace(info.pod, metadata=metadata))
                seen.update_pod(renamed)
                for event in pod_changes(info, renamed):
                    yield event, info, renamed
        case ("space", name, labels):
            yield from is_labelled(seen, namespace(name, **labels))


def is_labelled(seen: Cluster, new: Namespace) -> Iterator[News]:
    before = seen.namespaces.by_name.get(new.key)
    seen.namespaces.set(new)
    if before is None:
        yield NAMESPACE_ADD, None, new
    elif before != new.metadata.labels:
        yield NAMESPACE_UPDATE, namespace(new.key, **before), new


def whose_number(seen: Cluster, number: int) -> list[PodInfo]:
    return [info for info in seen.pods() if info.pod.metadata.name == f"p{number}"]


def passing(plugin: InterPodAffinity, seen: Cluster, pod: PodInfo, elsewhere: set[str]) -> tuple[bool, bool]:
    """Return whether a node that other plugins admit passes, and whether the plugin refused one of them."""
    judged = seen.nodes.present & ~seen.nodes.by_name(elsewhere)
    out = 0
    for nodes in finish(answered(plugin.filter(CycleState(), pod, judged))).values():
        out |= nodes
    return bool(judged & ~out), bool(out)


def filed(registered: EventHint, pod: PodInfo) -> set[Hashable] | None:
    topics = registered.topics.of_pod(pod) if registered.topics is not None else None
    return None if topics is None else set(topics)


def is_woken(hints: list[tuple[EventHint, set[Hashable] | None]], pod: PodInfo, news: News) -> bool:
    event, old, new = news
    for registered, topics in hints:
        if not registered.event.wants(event):
            continue
        about = registered.topics.of_event(old, new) if registered.topics is not None else None
        if topics is not None and about is not None and topics.isdisjoint(about):
            continue
        if registered.hint is None or registered.hint(pod, old, new) is Hint.QUEUE:
            return True
    return False


@settings(
    max_examples=examples(500, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(
    st.lists(PLACE_STEP, max_size=14),
    drawn_pod("q", on=False),
    st.sets(st.sampled_from(PLACES), max_size=3),
    st.lists(PLACE_STEP, min_size=1, max_size=6),
)
def test_whatever_lets_it_in_wakes_it(start, waits, elsewhere, more):
    """`elsewhere` are nodes that some other plugin refuses all the time."""
    seen = Cluster()
    plugin = plugin_on(seen)
    for step in (("node", "n1", {"zone": "a"}), ("node", "n2", {"zone": "b"}), *start):
        list(happens(seen, step))
    passes, refuses = passing(plugin, seen, waits, elsewhere)
    assume(refuses and not passes)
    hints = [(registered, filed(registered, waits)) for registered in plugin.events_to_register()]
    for step in more:
        woken = [is_woken(hints, waits, news) for news in happens(seen, step)]
        if any(woken):
            return

        assert not passing(plugin, seen, waits, elsewhere)[0], step
