"""Which budgets protect a pod, and whose eviction would violate one: docs/spec/core.md §3.10, dry run step 4."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.podinfo import PodInfo
from scheduler.cache.disruptions import Disruptions
from tests.unit.plugins.preempting import budget, pod
from tests.unit.plugins.preemption_worlds import budgets, namespaces, words

X, Y = {"app": "x"}, {"app": "y"}


def expressions(*each: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": how, "values": values} for key, how, values in each]}


def filed(*known: PodDisruptionBudget) -> Disruptions:
    seen = Disruptions()
    for one in known:
        seen.put(one)
    return seen


@pytest.mark.parametrize(
    ("selector", "labels", "is_protected"),
    [
        pytest.param(X, X, True, id="its label"),
        pytest.param(X, {**X, "tier": "a"}, True, id="its label among others"),
        pytest.param(X, Y, False, id="another value"),
        pytest.param({**X, "tier": "a"}, X, False, id="one label of two"),
        pytest.param(X, {}, False, id="a pod without labels"),
        pytest.param(expressions(("app", "In", ["x", "y"])), Y, True, id="one of several values"),
        pytest.param(expressions(("app", "In", ["x", "x"])), X, True, id="a value that is written twice"),
        pytest.param(expressions(("app", "NotIn", ["x"])), Y, True, id="none of the values"),
        pytest.param(expressions(("app", "NotIn", ["x"])), {"tier": "a"}, True, id="no such key, but labels"),
        pytest.param(expressions(("app", "NotIn", ["x"])), {}, False, id="no labels at all, though it would match"),
        pytest.param(expressions(("app", "DoesNotExist", [])), {"tier": "a"}, True, id="a key that must not be"),
        pytest.param(expressions(("app", "Exists", []), ("tier", "In", ["a"])), X, False, id="one expression of two"),
        pytest.param(
            {"matchLabels": X, **expressions(("tier", "Exists", []))}, X, False, id="labels but not the expression"
        ),
        pytest.param({}, X, False, id="an empty selector"),
        pytest.param(None, X, False, id="no selector"),
    ],
)
def test_whom_a_budget_protects(selector: Any, labels: dict[str, str], is_protected: bool) -> None:
    """Pods that its selector matches; one that selects nobody in particular protects nobody."""
    seen = filed(budget("d", 0, selector))

    assert is_protected is bool(seen.protecting(pod("a", labels=labels)))
    assert is_protected is bool(seen.violating([pod("a", labels=labels)]))


def test_a_budget_that_cannot_be_read_may_mean_any_pod_of_its_namespace() -> None:
    """But none without labels. The room of others there, and what they mean elsewhere, is counted as ever."""
    seen = filed(budget("d", 1, X))
    seen.put_unreadable("default/e", "default")
    seen.put_unreadable("far/e", "far")
    seen.remove("far/e")
    near, bare, far = pod("near", labels=Y), pod("bare"), pod("far", labels=X, ns="far")

    assert seen.violating([near, bare, far]) == {near.uid}

    seen.put(budget("e", 1, X))
    assert seen.violating([near, bare, far]) == set()


@pytest.mark.parametrize(("ns", "is_protected"), [("default", True), ("other", False)])
def test_a_budget_holds_in_its_own_namespace(ns: str, is_protected: bool) -> None:
    seen = filed(budget("d", 0, X), budget("any", 0, expressions(("app", "Exists", []))))

    assert is_protected is bool(seen.protecting(pod("a", labels=X, ns=ns)))


A, B, C = (pod(name, labels=X) for name in "abc")
Z, T = pod("z", labels={**X, "tier": "a"}), pod("t", labels={"tier": "a"})


@pytest.mark.parametrize(
    ("known", "leaving", "over"),
    [
        pytest.param([], [A, B], "", id="no budgets"),
        pytest.param([budget("d", 0, X)], [A, B, C], "abc", id="nothing allowed"),
        pytest.param([budget("d", 2, X)], [A, B, C], "c", id="used up within the list"),
        pytest.param([budget("d", 2, X)], [C, B, A], "a", id="in the order of the list"),
        pytest.param([budget("d", 3, X)], [A, B, C], "", id="enough for all"),
        pytest.param([budget("d", -1, X)], [A], "a", id="less than nothing allowed"),
        pytest.param([budget("d", 0, X, gone=("a",))], [A, B], "b", id="an eviction that the server has let pass"),
        pytest.param([budget("d", 1, X, gone=("a",))], [A, B, C], "c", id="which uses nothing of the budget either"),
        pytest.param([budget("d", 0, X, gone=("a",), ns="other")], [A], "", id="another namespace's budget"),
        pytest.param(
            [budget("d", 1, X), budget("e", 0, {"tier": "a"})],
            [Z, A, B],
            "zab",
            id="both are used, also if the second is over",
        ),
        pytest.param(
            [budget("d", 0, X), budget("e", 1, {"tier": "a"})],
            [Z, T],
            "zt",
            id="both are used, also if the first is over",
        ),
        pytest.param(
            [budget("d", 5, X), budget("e", 0, {"tier": "a"})], [A, Z, B], "z", id="the strictest of several decides"
        ),
        pytest.param(
            [budget("d", 0, X, gone=("z",)), budget("e", 1, {"tier": "a"})],
            [Z, A],
            "a",
            id="let pass by one of several",
        ),
    ],
)
def test_whose_eviction_violates(known: list[PodDisruptionBudget], leaving: list[PodInfo], over: str) -> None:
    """One after the other; each takes one from every budget that protects it."""
    assert {f"default/{name}" for name in over} == filed(*known).violating(leaving)


def test_asking_uses_nothing_up() -> None:
    """The budget is the server's; a dry run works on a copy."""
    seen = filed(budget("d", 1, X))

    assert [seen.violating([A, B]) for _ in range(2)] == [{"default/b"}] * 2


@pytest.mark.parametrize(
    ("change", "over", "is_news"),
    [
        pytest.param(lambda seen: seen.put(budget("d", 0, X)), "ab", True, id="it allows less now"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X)), "b", False, id="it says the same again"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X, gone=("a",))), "", True, id="an eviction was let pass"),
        pytest.param(lambda seen: seen.put(budget("d", 1, Y)), "", True, id="it selects others now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, {})), "", True, id="it selects nobody in particular now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, None)), "", True, id="it has no selector now"),
        pytest.param(lambda seen: seen.remove("default/d"), "", True, id="it is gone"),
        pytest.param(lambda seen: seen.remove("other/d"), "b", False, id="a namesake is gone"),
        pytest.param(lambda seen: seen.put(budget("d", 0, X, ns="other")), "b", True, id="a namesake came"),
        pytest.param(lambda seen: seen.put(budget("e", 0, {})), "b", False, id="one came that selects nobody"),
    ],
)
def test_changes(change: Any, over: str, is_news: bool) -> None:
    """The newest is what counts, and whoever remembers an answer is told by the generation."""
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
def test_filed_is_as_good_as_asked_one_by_one(
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
    assert (seen._budgets, seen._index) == ({}, {})


@pytest.mark.parametrize(
    ("spec", "is_broken"),
    [
        pytest.param(
            '"selector": {"matchExpressions": [{"key": "a", "operator": "Never"}]}', True, id="unknown operator"
        ),
        pytest.param('"selector": null', False, id="no selector"),
        pytest.param(
            '"maxUnavailable": "50%", "selector": {"matchLabels": null}', False, id="fields that nobody reads"
        ),
    ],
)
def test_as_the_server_writes_it(spec: str, is_broken: bool) -> None:
    """A selector that cannot be read makes that budget unreadable, and no other."""
    raw = f'{{"metadata": {{"name": "d"}}, "spec": {{{spec}}}, "status": {{"disruptedPods": null}}}}'
    read = ObjectDecoder("PodDisruptionBudget", PodDisruptionBudget).decode(raw.encode())

    assert is_broken is isinstance(read, Broken)
