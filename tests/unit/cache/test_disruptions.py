"""Budgets that protect a pod (docs/spec/core.md §3.10), and pods that belong together (§5.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, Service
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder, from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache import disruptions
from scheduler.cache.disruptions import Disruptions
from scheduler.cache.workloads import Workloads
from scheduler.core.cooperative import finish
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

    assert finish(seen.violating([near, bare, far])) == {near.uid, bare.uid}
    assert finish(seen.violating([near, bare, far], by_selector_alone=False)) == {near.uid}

    seen.put(budget("e", 1, X))
    assert finish(seen.violating([near, bare, far])) == set()


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
    assert {f"default/{name}" for name in over} == finish(filed(*known).violating(leaving))


@pytest.mark.parametrize(
    ("change", "over", "is_news"),
    [
        pytest.param(lambda seen: seen.put(budget("d", 0, X)), "ab", True, id="it allows less now"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X)), "b", False, id="it says the same again"),
        pytest.param(lambda seen: seen.put(budget("d", 1, X, gone=("a",))), "", True, id="an eviction was let pass"),
        pytest.param(lambda seen: seen.put(budget("d", 1, Y)), "", True, id="it selects other pods now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, {})), "ab", True, id="it has an empty selector now"),
        pytest.param(lambda seen: seen.put(budget("d", 0, None)), "", True, id="it has no selector now"),
        pytest.param(lambda seen: seen.remove("default/d"), "", True, id="it is gone"),
        pytest.param(lambda seen: seen.remove("other/d"), "b", False, id="a namesake is gone"),
        pytest.param(lambda seen: seen.put(budget("d", 0, X, ns="other")), "b", True, id="a namesake came"),
        pytest.param(lambda seen: seen.put(budget("e", 0, {})), "ab", True, id="a new one has an empty selector"),
        pytest.param(lambda seen: seen.put(budget("e", 0, None)), "b", False, id="a new one has no selector"),
    ],
)
def test_changes(change: Any, over: str, is_news: bool) -> None:
    seen = filed(budget("d", 1, X))
    before = seen.generation
    change(seen)

    assert {f"default/{name}" for name in over} == finish(seen.violating([A, B]))
    assert is_news is (before != seen.generation)


BARE, FAR = pod("bare"), pod("far", ns="far")
NOT_X = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}


@pytest.mark.parametrize(("known", "before", "now"), [
    pytest.param([budget("d", 0, {})], "", "a bare", id="an empty selector"),
    pytest.param([budget("d", 1, {})], "", "bare", id="an empty selector that allows one"),
    pytest.param([budget("d", 0, {}, gone=("bare",))], "", "a", id="an eviction that the server has let pass"),
    pytest.param([budget("d", 0, {}, ns="far")], "", "far", id="an empty selector of another namespace"),
    pytest.param([budget("d", 0, None)], "", "", id="no selector"),
    pytest.param([budget("d", 0, NOT_X)], "", "bare", id="a selector for pods without the label"),
    pytest.param([budget("d", 0, X)], "a", "a", id="a selector with a label"),
    pytest.param([budget("d", 2, {}), budget("e", 0, X)], "a", "a", id="two budgets for one pod"),
    pytest.param([budget("d", 0, {}), budget("e", 1, X)], "", "a bare", id="two budgets, and the empty one is over"),
])  # fmt: skip
def test_budgets_protect_by_their_selector_alone(known: list[PodDisruptionBudget], before: str, now: str) -> None:
    """Up to 1.37 an empty selector protects no pod, and no budget protects a pod without labels."""
    seen, leaving = filed(*known), [A, BARE, FAR]
    names = {one.pod.metadata.name: one.uid for one in leaving}

    assert finish(seen.violating(leaving, by_selector_alone=False)) == {names[name] for name in before.split()}
    assert finish(seen.violating(leaving)) == {names[name] for name in now.split()}


def reference(
    known: Iterable[PodDisruptionBudget], leaving: list[PodInfo], *, by_selector_alone: bool = True
) -> set[str]:
    """What kube-scheduler's FilterVictimsWithPDBViolation says, line by line; up to 1.37 without `by_selector_alone`."""
    known, over = list(known), set()
    allowed = [one.status.disruptions_allowed for one in known]
    for each in leaving:
        metadata = each.pod.metadata
        for at, one in enumerate(known):
            selector = one.spec.selector
            if one.metadata.namespace != metadata.namespace or selector is None:
                continue
            if not by_selector_alone and not metadata.labels:
                continue
            if not by_selector_alone and not (selector.match_labels or selector.match_expressions):
                continue
            if not selector.matches(metadata.labels):
                continue
            if metadata.name in one.status.disrupted_pods:
                continue
            allowed[at] -= 1
            if allowed[at] < 0:
                over.add(each.uid)
    return over


@given(
    history=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 3).flatmap(lambda at: budgets(f"d{at}"))),
            st.tuples(st.just("remove"), namespaces, st.integers(0, 3)),
            st.tuples(st.just("ask"), st.lists(st.tuples(st.sampled_from("abc"), namespaces, words), max_size=4)),
        ),
        max_size=16,
    ),
    asked=st.lists(st.tuples(st.sampled_from("abc"), namespaces, words), min_size=1, max_size=4),
)
def test_after_any_history_the_answer_is_kube_schedulers(
    history: list[tuple[Any, ...]], asked: list[tuple[str, str, dict[str, str]]]
) -> None:
    """Results that are stored between the changes never matter, and nothing stays behind of budgets that went."""
    seen, known = Disruptions(), dict[str, PodDisruptionBudget]()
    for what, *more in [*history, ("ask", asked)]:
        if what == "put":
            seen.put(more[0])
            known[more[0].key] = more[0]
        elif what == "remove":
            key = f"{more[0]}/d{more[1]}"
            seen.remove(key)
            known.pop(key, None)
        else:
            leaving = [pod(name, labels=labels, ns=ns) for name, ns, labels in more[0]]
            for alone in (True, False):
                over = finish(seen.violating(leaving, by_selector_alone=alone))
                assert over == reference(known.values(), leaving, by_selector_alone=alone)
    for key in known:
        seen.remove(key)
    assert leftovers(seen) == {}


MANY = 1000
NONE_OF_THEM = {"key": "none", "operator": "Exists"}


def other(at: int) -> dict[str, Any]:
    """A selector that means every X, and equals no other one."""
    return {"matchLabels": X, "matchExpressions": [{"key": "n", "operator": "NotIn", "values": [f"n{at}"]}]}


def among(at: int) -> dict[str, Any]:
    return {"key": "n", "operator": "In", "values": [str(at), f"m{at}"]}


def counted(seen: Disruptions, leaving: list[PodInfo], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, set[str]]:
    """Return how many selectors were compared, the most of them between two yields, and the answer."""
    compared: list[int] = [0]
    matches = LabelSelector.matches

    def counting(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
        compared[-1] += 1
        return matches(selector, labels)

    with monkeypatch.context() as patch:
        patch.setattr(LabelSelector, "matches", counting)
        work = seen.violating(leaving)
        while True:
            try:
                next(work)
            except StopIteration as done:
                return sum(compared), max(compared), done.value
            compared.append(0)


@pytest.mark.parametrize(("selector", "compared", "is_protected"), [
    pytest.param(lambda _: X, 0, True, id="one selector"),
    pytest.param(other, 0, True, id="one label and expressions"),
    pytest.param(lambda _: {"matchExpressions": [NONE_OF_THEM]}, 0, True, id="no label with a value"),
    pytest.param(lambda at: {**X, "n": str(at)}, 20, True, id="a common label and a different one"),
    pytest.param(lambda at: {**X, "z": f"z{at}"}, 1, False, id="a common label and a label that no pod has"),
    pytest.param(lambda at: {"matchLabels": X, "matchExpressions": [among(at)]}, 20, True, id="different values"),
])  # fmt: skip
def test_many_budgets_are_compared_with_few_pods_once(
    selector: Callable[[int], dict[str, Any]], compared: int, is_protected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first budget is indexed by the common label, because no other one is there yet."""
    seen = filed(*(budget(f"d{at}", 0, selector(at)) for at in range(MANY)))
    leaving = [pod(f"p{at}", labels={**X, "n": str(at + 1)}) for at in range(20)]

    first, longest, over = counted(seen, leaving, monkeypatch)
    assert over == ({one.uid for one in leaving} if is_protected else set())
    assert first <= compared + len(leaving)
    assert longest <= disruptions.BUDGETS_MAX
    assert counted(seen, leaving, monkeypatch)[0] == 0

    seen.put(budget("d7", 0, selector(7), gone=("gone",)))  # another status, the same selector
    assert counted(seen, leaving, monkeypatch)[0] == 0
    seen.put(budget("other", 1, X, ns="other"))
    assert counted(seen, leaving, monkeypatch)[0] == 0
    seen.put(budget("last", 1, {"n": "1"}))
    assert counted(seen, leaving, monkeypatch)[2] == over


@pytest.mark.parametrize(("number", "over"), [
    pytest.param(disruptions.BUDGETS_MAX, "bc", id="as many as the limit"),
    pytest.param(disruptions.BUDGETS_MAX + 1, "abc", id="more than the limit"),
])  # fmt: skip
def test_a_pod_that_too_many_budgets_select_counts_as_protected(number: int, over: str) -> None:
    seen = filed(*(budget(f"d{at}", 1, other(at)) for at in range(number)))
    with structlog.testing.capture_logs() as logs:
        assert finish(seen.violating([A, B, C])) == {f"default/{name}" for name in over}
        assert finish(seen.violating([A, B, C])) == {f"default/{name}" for name in over}
    assert [entry["pod"] for entry in logs] == ["default/a"] * (number > disruptions.BUDGETS_MAX)

    seen.remove("default/d0")
    assert finish(seen.violating([A, B, C])) == {"default/b", "default/c"}


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
