"""Budgets that protect a pod (docs/spec/core.md §3.10), and pods that belong together (§5.8)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, Service
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder, from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.workloads import Disruptions, Workloads
from tests.unit.cache.picture import leftovers
from tests.unit.plugins.preempting import budget, pod
from tests.unit.plugins.preemption_worlds import budgets, namespaces, words

X, Y = {"app": "x"}, {"app": "y"}


def filed(*known: PodDisruptionBudget) -> Disruptions:
    seen = Disruptions()
    for one in known:
        seen.put(one)
    return seen


def test_a_budget_that_cannot_be_read_may_mean_any_pod_of_its_namespace() -> None:
    seen = filed(budget("d", 1, X))
    seen.put_unreadable("default/e", "default")
    seen.put_unreadable("far/e", "far")
    seen.remove("far/e")
    near, bare, far = pod("near", labels=Y), pod("bare"), pod("far", labels=X, ns="far")

    assert seen.violating([near, bare, far]) == {near.uid}

    seen.put(budget("e", 1, X))
    assert seen.violating([near, bare, far]) == set()


A, B, C = (pod(name, labels=X) for name in "abc")
Z, T = pod("z", labels={**X, "tier": "a"}), pod("t", labels={"tier": "a"})


@pytest.mark.parametrize(("known", "leaving", "over"), [
    pytest.param([], [A, B], "", id="no budgets"),
    pytest.param([budget("d", 0, X)], [A, B, C], "abc", id="nothing allowed"),
    pytest.param([budget("d", 2, X)], [A, B, C], "c", id="used up within the list"),
    pytest.param([budget("d", 2, X)], [C, B, A], "a", id="in the order of the list"),
    pytest.param([budget("d", 3, X)], [A, B, C], "", id="enough for all"),
    pytest.param([budget("d", -1, X)], [A], "a", id="less than nothing allowed"),
    pytest.param([budget("d", 0, X, gone=("a",))], [A, B], "b", id="an eviction that the server has let pass"),
    pytest.param([budget("d", 1, X, gone=("a",))], [A, B, C], "c", id="which uses nothing of the budget either"),
    pytest.param([budget("d", 0, X, gone=("a",), ns="other")], [A], "", id="another namespace's budget"),
    pytest.param([budget("d", 1, X), budget("e", 0, {"tier": "a"})], [Z, A, B], "zab",
        id="both are used, also if the second is over"),
    pytest.param([budget("d", 0, X), budget("e", 1, {"tier": "a"})], [Z, T], "zt",
        id="both are used, also if the first is over"),
    pytest.param([budget("d", 5, X), budget("e", 0, {"tier": "a"})], [A, Z, B], "z", id="the strictest decides"),
    pytest.param([budget("d", 0, X, gone=("z",)), budget("e", 1, {"tier": "a"})], [Z, A], "a",
        id="let pass by one of several"),
])  # fmt: skip
def test_whose_eviction_violates(known: list[PodDisruptionBudget], leaving: list[PodInfo], over: str) -> None:
    assert {f"default/{name}" for name in over} == filed(*known).violating(leaving)


@pytest.mark.parametrize(
    ("change", "over", "is_news"),
    [
        pytest.param(lambda seen: seen.put(budget("d", 0, X)), "ab", True, id="it allows less now"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X)), "b", False, id="it says the same again"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X, gone=("a",))), "", True, id="an eviction was let pass"),
        pytest.param(lambda seen: seen.put(budget("d", 1, Y)), "", True, id="it selects other pods now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, {})), "", True, id="it has an empty selector now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, None)), "", True, id="it has no selector now"),
        pytest.param(lambda seen: seen.remove("default/d"), "", True, id="it is gone"),
        pytest.param(lambda seen: seen.remove("other/d"), "b", False, id="a namesake is gone"),
        pytest.param(lambda seen: seen.put(budget("d", 0, X, ns="other")), "b", True, id="a namesake came"),
        pytest.param(lambda seen: seen.put(budget("e", 0, {})), "b", False, id="a new one has an empty selector"),
    ],
)
def test_changes(change: Any, over: str, is_news: bool) -> None:
    seen = filed(budget("d", 1, X))
    before = seen.generation
    change(seen)

    assert {f"default/{name}" for name in over} == seen.violating([A, B])
    assert is_news is (before != seen.generation)


@given(
    history=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 3).flatmap(lambda at: budgets(f"d{at}"))),
            st.tuples(st.just("remove"), namespaces, st.integers(0, 3)),
        ),
        max_size=12,
    ),
    asked=st.lists(st.tuples(namespaces, words), min_size=1, max_size=4),
)
def test_the_index_equals_an_evaluation_of_each_budget(
    history: list[tuple[Any, ...]], asked: list[tuple[str, dict[str, str]]]
) -> None:
    """After any history a pod finds those budgets that mean it, each once; and nothing stays behind of those that went."""
    seen, known = Disruptions(), dict[str, PodDisruptionBudget]()
    for what, *more in history:
        if what == "put":
            seen.put(more[0])
            known[more[0].key] = more[0]
        else:
            key = f"{more[0]}/d{more[1]}"
            seen.remove(key)
            known.pop(key, None)
    for ns, labels in asked:
        expected = sorted(
            one.key
            for one in known.values()
            if labels
            and one.metadata.namespace == ns
            and (selector := one.spec.selector) is not None
            and (selector.match_labels or selector.match_expressions)
            and selector.matches(labels)
        )
        assert expected == sorted(one.key for one in seen.protecting(pod("a", labels=labels, ns=ns)))
    for key in known:
        seen.remove(key)
    assert leftovers(seen) == {}


@pytest.mark.parametrize(
    ("spec", "is_broken"),
    [
        pytest.param('"selector": {"matchExpressions": [{"key": "a", "operator": "Never"}]}', True, id="bad operator"),
        pytest.param('"selector": null', False, id="no selector"),
        pytest.param('"maxUnavailable": "50%", "selector": {"matchLabels": null}', False, id="fields not read"),
    ],
)
def test_as_the_server_writes_it(spec: str, is_broken: bool) -> None:
    raw = f'{{"metadata": {{"name": "d"}}, "spec": {{{spec}}}, "status": {{"disruptedPods": null}}}}'
    read = ObjectDecoder("PodDisruptionBudget", PodDisruptionBudget).decode(raw.encode())

    assert is_broken is isinstance(read, Broken)


WEB = {"app": "web", "tier": "front"}


def service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> Service:
    spec = {} if selector is None else {"selector": selector}
    return from_manifest(Service, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def owner(kind: type[Any], name: str, selector: dict[str, Any] | None) -> Any:
    spec = {} if selector is None else {"selector": selector}
    return from_manifest(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def owned_pod(labels: dict[str, str] = WEB, owned_by: tuple[str, str, str] | None = None, **more: Any) -> Pod:
    owners = []
    if owned_by is not None:
        version, kind, name = owned_by
        owners = [{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True, **more}]
    metadata = {"name": "p", "namespace": "default", "labels": labels, "ownerReferences": owners}
    return from_manifest(Pod, {"metadata": metadata, "spec": {"containers": []}})


RS = ("apps/v1", "ReplicaSet", "rs")
WEB_RS = owner(ReplicaSet, "rs", {"matchLabels": {"app": "web"}})
HASHED_RS = owner(ReplicaSet, "rs", {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]})
HASHED = LabelSelectorRequirement("hash", "In", ("1",))


def put(workloads: Workloads, thing: Any) -> None:
    update = workloads.set_service if isinstance(thing, Service) else partial(workloads.set_controller, type(thing))
    update(thing.key, thing)


@pytest.mark.parametrize(("there", "comes", "expected"), [
    pytest.param([], owned_pod(), None, id="no selector matches it"),
    pytest.param([service("s", {"app": "web"}), service("t", {"tier": "front"})], owned_pod(), LabelSelector(WEB),
        id="two Services together"),
    pytest.param([service("s", {"app": "web", "x": "y"})], owned_pod(), None, id="a Service demands a label it lacks"),
    pytest.param([service("s", {"app": "web"}, "other")], owned_pod(), None, id="a Service of another namespace"),
    pytest.param([service("s", None)], owned_pod(), None, id="a Service without a selector"),
    pytest.param([service("s", {})], owned_pod(), None, id="an empty selector demands nothing"),
    pytest.param([service("s", {"tier": "front"}), HASHED_RS], owned_pod(owned_by=RS),
        LabelSelector({"tier": "front"}, (HASHED,)), id="a Service and the owner's expressions"),
    pytest.param([service("s", {"app": "web"}), owner(ReplicaSet, "rs", {"matchLabels": {"app": "old"}})],
        owned_pod(owned_by=RS), LabelSelector({"app": "web"}, (LabelSelectorRequirement("app", "In", ("old",)),)),
        id="an owner that contradicts the Service: both must hold"),
    pytest.param([service("s", WEB), owner(ReplicationController, "rc", {"app": "old"})],
        owned_pod(owned_by=("v1", "ReplicationController", "rc")), LabelSelector({"app": "old", "tier": "front"}),
        id="a ReplicationController that contradicts the Service: its own word counts"),
    pytest.param([], owned_pod(owned_by=RS), None, id="an owner that is not known"),
    pytest.param([WEB_RS], owned_pod(owned_by=("example.com/v1", "ReplicaSet", "rs")), None,
        id="an owner of another group"),
    pytest.param([WEB_RS], owned_pod(owned_by=RS, controller=False), None, id="an owner that is no controller"),
    pytest.param([owner(ReplicaSet, "rs", None)], owned_pod(owned_by=RS), None, id="an owner without a selector"),
])  # fmt: skip
def test_default_selector(there: list[Any], comes: Pod, expected: LabelSelector | None) -> None:
    workloads = Workloads()
    for thing in there:
        put(workloads, thing)

    assert expected == workloads.default_selector(comes)


CHANGES: list[tuple[Callable[[Workloads], object], dict[str, str] | None, bool]] = [
    (lambda seen: put(seen, service("s", {"app": "web"})), {"app": "web"}, True),
    (lambda seen: put(seen, service("s", {"app": "web"})), {"app": "web"}, False),
    (lambda seen: put(seen, service("s", {"tier": "front"})), {"tier": "front"}, True),
    (lambda seen: put(seen, service("s", None)), None, True),
    (lambda seen: seen.set_service("default/s", None), None, False),
    (lambda seen: put(seen, WEB_RS), {"app": "web"}, True),
    (lambda seen: put(seen, WEB_RS), {"app": "web"}, False),
    (lambda seen: seen.set_controller(ReplicaSet, "default/rs", None), None, True),
    (lambda seen: seen.set_controller(ReplicaSet, "default/rs", None), None, False),
]


def test_changes_are_followed_and_what_changes_nothing_is_no_news() -> None:
    workloads = Workloads()
    for change, labels, is_news in CHANGES:
        before = workloads.generation
        change(workloads)
        selector = workloads.default_selector(owned_pod(owned_by=RS))

        assert labels == (selector.match_labels if selector else None)
        assert is_news is (workloads.generation != before)
