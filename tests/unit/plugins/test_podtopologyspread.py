"""PodTopologySpread, PreFilter and Filter: docs/spec/core.md §5.8, rows 169-175."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import ReplicationController, Service, StatefulSet
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.config.types import Configuration
from scheduler.core import nodeset
from scheduler.core.clock import SystemClock
from scheduler.core.cooperative import finish
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import Runner
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.profiles.build import build_profiles
from tests.unit.fake_plugins import Nominated
from tests.unit.objects import cluster, handle
from tests.unit.plugins.ask import Refusals, named, refused
from tests.unit.plugins.spreading import BAR, HOST, KEYLESS, LIST, SKEWED, hard, node, on, pod

FOUR = (node("a1"), node("a2"), node("b1"), node("b2"))
GPU = (node("a1", "gpu"), node("a2", "gpu"), node("b1", "gpu"), node("b2"))
ON_GPU: dict[str, Any] = {"nodeSelector": {"gpu": ""}}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def like(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": list(terms)}}}}


def has(key: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def out(skewed: str = "", keyless: str = "") -> Refusals:
    return {**dict.fromkeys(skewed.split(), SKEWED), **dict.fromkeys(keyless.split(), KEYLESS)}


def filtered(incoming: PodInfo, seen: Cluster, args: PodTopologySpreadArgs = LIST) -> Refusals:
    plugin = PodTopologySpread(args, handle(seen))
    assert plugin.pre_filter(CycleState(), incoming, seen.nodes.present) is None
    return refused(plugin, seen, incoming)


@pytest.mark.parametrize(
    ("incoming", "there", "expected"),
    [
        pytest.param(pod("p", hard()), on(a1=2, b1=1, c1=1), out("a1 a2"), id="169 2, 1, 1 leaves the zones with 1"),
        pytest.param(
            pod("p", hard()),
            [pod("q", is_deleting=True, on="a1"), pod("r", is_deleting=True, on="a1")],
            out(),
            id="171 terminating pods",
        ),
        pytest.param(
            pod("p", hard()), [pod("q", ns="other", on="a1"), pod("r", ns="other", on="a1")], out(), id="175 namespace"
        ),
    ],
)
def test_one_constraint(incoming: PodInfo, there: list[PodInfo], expected: Refusals) -> None:
    """Out are the nodes of zones that would have more than maxSkew over the emptiest zone."""
    assert expected == filtered(incoming, cluster(*FOUR, node("c1"), *there))


def test_170_two_domains_are_too_few_for_three() -> None:
    """minDomains 3, one pod in each of two zones, maxSkew 1: the least counts as 0, so no pod may come."""
    seen = cluster(*FOUR, *on(a1=1, b1=1))

    assert out("a1 a2 b1 b2") == filtered(pod("p", hard(minDomains=3)), seen)
    assert out() == filtered(pod("p", hard(minDomains=2)), seen)


@pytest.mark.parametrize(
    ("nodes", "incoming", "expected"),
    [
        pytest.param(GPU, pod("p", hard(), **like(has("gpu"))), out("a1 a2"), id="node affinity: b2 is not seen"),
        pytest.param(
            GPU, pod("p", hard(nodeAffinityPolicy="Ignore"), **ON_GPU), out("b1 b2"), id="173 Ignore counts b2's pods"
        ),
        pytest.param(
            GPU,
            pod("p", hard(), **like({"matchExpressions": [{"key": "gpu", "operator": "In"}]})),
            out(),
            id="a broken term matches nothing: no domain",
        ),
    ],
)
def test_inclusion_policies(nodes: Any, incoming: PodInfo, expected: Refusals) -> None:
    """Pods on nodes that the pod could not go to count, or do not."""
    assert expected == filtered(incoming, cluster(*nodes, *on(a1=1, b2=2)))


def test_172_a_zone_of_tainted_nodes_is_no_domain() -> None:
    """An empty zone that the pod cannot go to keeps no pod out, if taints are honoured."""
    closed = node("c1", taints=["t=:NoExecute"])
    seen = cluster(*FOUR, closed, *on(a1=1, b1=1))

    assert out() == filtered(pod("p", hard(nodeTaintsPolicy="Honor")), seen)
    assert out("a1 a2 b1 b2") == filtered(pod("p", hard()), seen)


def test_a_cordon_alone_is_no_taint() -> None:
    """`spec.unschedulable` without its taint leaves the zone a domain, as upstream."""
    cordoned = from_manifest(
        type(FOUR[0]),
        {"metadata": {"name": "c1", "labels": node("c1").metadata.labels}, "spec": {"unschedulable": True}},
    )
    seen = cluster(*FOUR, cordoned, *on(a1=1, b1=1))

    assert out("a1 a2 b1 b2") == filtered(pod("p", hard(nodeTaintsPolicy="Honor")), seen)


REVISION = {"foo": "", "hash": "2"}


@pytest.mark.parametrize(
    ("constraint", "labels", "expected"),
    [
        pytest.param(hard(matchLabelKeys=["hash"]), REVISION, out("b1 b2"), id="174 only the same revision counts"),
    ],
)
def test_match_label_keys(constraint: dict[str, Any], labels: dict[str, str], expected: Refusals) -> None:
    """The pod's own values narrow the selector down."""
    old = [pod(f"old{at}", labels={"foo": "", "hash": "1"}, on="a1") for at in range(2)]
    seen = cluster(*FOUR, *old, pod("new", labels=REVISION, on="b1"))

    assert expected == filtered(pod("p", constraint, labels=labels), seen)


# -- default constraints -----------------------------------------------------------------------------------------------

DEFAULT = PodTopologySpreadArgs((DefaultConstraint(1, HOST, "DoNotSchedule"),), "List")


def owned(kind: type[Any], selector: dict[str, Any]) -> Any:
    return from_manifest(kind, {"metadata": {"name": "o", "namespace": "default"}, "spec": {"selector": selector}})


def surrounded(*selecting: Any) -> Cluster:
    seen = cluster(*FOUR, *on(a1="foo", a2="foo bar", b1="bar"))
    for thing in selecting:
        if isinstance(thing, Service):
            seen.workloads.set_service(thing)
        else:
            seen.workloads.set_controller(thing)
    return seen


@pytest.mark.parametrize(
    ("incoming", "selecting", "expected"),
    [
        pytest.param(
            pod("p", labels="bar", owner="StatefulSet/o"), [owned(StatefulSet, BAR)], out("a2 b1"), id="a StatefulSet"
        ),
        pytest.param(
            pod("p", labels="bar", owner="ReplicationController/o"),
            [owned(ReplicationController, {"bar": ""})],
            out("a2 b1"),
            id="a ReplicationController",
        ),
    ],
)
def test_defaults(incoming: PodInfo, selecting: list[Any], expected: Refusals) -> None:
    """For a pod without constraints, with the selectors of what it belongs to."""
    assert expected == filtered(incoming, surrounded(*selecting), DEFAULT)


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        pytest.param(None, {"Service", "ReplicationController", "ReplicaSet", "StatefulSet"}, id="system defaults"),
        pytest.param(LIST, set(), id="an empty list"),
    ],
)
def test_kinds_that_are_read(args: PodTopologySpreadArgs | None, kinds: set[str]) -> None:
    """Without default constraints Services and controllers are not watched."""
    assert kinds == set(PodTopologySpread(args, handle(cluster())).reads)


# -- trials and nominations --------------------------------------------------------------------------------------------


def runner(seen: Cluster, **nominated: PodInfo) -> Runner:
    """The default profile on this cluster, with nominated pods by node."""
    profile = build_profiles(Configuration(), handle(seen))["kubestow"]
    nominations = Nominated({name: (info,) for name, info in nominated.items()})
    return Runner(profile, seen, nominations, clock=SystemClock(), metrics=Metrics(process=False))


@pytest.mark.parametrize(
    ("nominated", "expected"),
    [
        pytest.param({"b1": pod("q", priority=1)}, out("b1"), id="with the nominated pod its node is too full"),
        pytest.param({"b1": pod("q", priority=-1)}, out(), id="of lower priority"),
    ],
)
def test_nominated_pods(nominated: dict[str, PodInfo], expected: Refusals) -> None:
    """§3.5: they count on the node that is kept for them, when that node is judged."""
    seen = cluster(*FOUR, *on(a1=1, b1=1))
    incoming, state, running = pod("p", hard()), CycleState(), runner(seen, **nominated)
    left, groups = finish(running.filter(state, incoming, running.pre_filter(state, incoming).nodes, exact=False))

    assert expected == named(seen, groups)
    assert {seen.nodes.name(slot) for slot in nodeset.each(left)} == {"a1", "a2", "b1", "b2"} - set(expected)


def test_the_check_before_bind_sees_pods_of_other_schedulers() -> None:
    """Just before Bind the pod itself is taken out, and another scheduler's pod may have filled the zone."""
    seen = cluster(*FOUR, *on(a1=1, b1=1))
    state, running = CycleState(), runner(seen)
    assumed = placed(pod("p", hard()), "b2")
    running.pre_filter(state, assumed)
    slot = seen.nodes.slot("b2")
    assert slot is not None
    seen.assume(assumed)
    with seen.trial(remove=[assumed]):
        before = finish(running.check_node(assumed, slot, state))
    seen.add_pod(pod("foreign", on="b1"))
    with seen.trial(remove=[assumed]):
        after = finish(running.check_node(assumed, slot, state))

    assert before is None
    assert after is not None
    assert (after.code, after.reasons) == SKEWED
