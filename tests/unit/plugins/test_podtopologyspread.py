"""PodTopologySpread (docs/spec/core.md §5.8): what is kept incrementally equals the rules taken literally, and what that law does not draw."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.apps_and_policy import ReplicaSet, Service
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import Nodes
from scheduler.config.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.config.types import Configuration
from scheduler.core.clock import SystemClock
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import CHANGES
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import SKIP
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.podtopologyspread import PodTopologySpread, plugin as soft_module
from scheduler.profiles.build import build_profiles
from tests.examples import SLOW_SHARE, examples
from tests.unit import objects
from tests.unit.fake_plugins import Nominated
from tests.unit.objects import cluster, handle
from tests.unit.plugins.ask import Refusals, hinted, is_concerned, refused
from tests.unit.plugins.spreading import (
    BAR,
    HOST,
    LIST,
    SKEWED,
    ZONE,
    expected_refusals,
    expected_scores,
    hard,
    node,
    on,
    pod,
    scored_among,
    soft,
)

FOUR = (node("a1"), node("a2"), node("b1"), node("b2"))
BROKEN = {"matchExpressions": [{"key": "gpu", "operator": "In"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def filtered(incoming: PodInfo, seen: Cluster) -> Refusals:
    plugin = PodTopologySpread(LIST, handle(seen))
    assert plugin.pre_filter(CycleState(), incoming, seen.nodes.present) is None
    return refused(plugin, seen, incoming)


def test_a_broken_term_of_node_affinity_matches_no_node() -> None:
    """So there is no domain, and no node is refused."""
    terms = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [BROKEN]}}}

    assert {} == filtered(pod("p", hard(), affinity=terms), cluster(*FOUR, *on(a1=1, b2=2)))


EMPTY: dict[str, Any] = {}


@pytest.mark.parametrize("version", ["1.37", "1.38"])
@pytest.mark.parametrize(("constraint", "there", "before", "now"), [
    pytest.param(hard(selector=EMPTY), on(a1=2), {}, {"a1": SKEWED, "a2": SKEWED}, id="all pods count"),
    pytest.param(hard(selector=EMPTY), on(a1=","), {}, {"a1": SKEWED, "a2": SKEWED}, id="pods without labels count"),
    pytest.param(hard(selector=EMPTY), on(a1=1, b1=1), {}, {}, id="as many on each side"),
    pytest.param(hard(selector=EMPTY), [pod("x", on="a1", ns="other")], {}, {}, id="not those of another namespace"),
    pytest.param(hard(selector=EMPTY), [pod("x", on="a1", deleting=True)], {}, {}, id="nor those that are terminating"),
    pytest.param(hard(selector=None), on(a1=2), {}, {}, id="without a selector no pod counts"),
    pytest.param(hard(selector=EMPTY, matchLabelKeys=["foo"]), on(a1=1), {"a1": SKEWED, "a2": SKEWED},
        {"a1": SKEWED, "a2": SKEWED}, id="with a key of labels it is not empty"),
])  # fmt: skip
def test_an_empty_selector(
    constraint: dict[str, Any], there: list[PodInfo], before: Refusals, now: Refusals, version: str
) -> None:
    """Up to 1.37 it counts no pod."""
    seen, incoming = cluster(*FOUR, *there), pod("p", constraint)
    plugin = PodTopologySpread(LIST, handle(seen, feature_gates=CHANGES[version]))

    assert refused(plugin, seen, incoming) == (now if version == "1.38" else before)


@pytest.mark.parametrize(("version", "scores"), [("1.37", {"a1": 100, "b1": 100}), ("1.38", {"a1": 0, "b1": 100})])
def test_the_score_of_an_empty_selector(version: str, scores: dict[str, int]) -> None:
    seen = cluster(*FOUR, *on(a1=2))
    plugin = PodTopologySpread(LIST, handle(seen, feature_gates=CHANGES[version]))

    assert scored_among(plugin, seen, pod("p", soft(selector=EMPTY)), ["a1", "b1"]) == scores


@pytest.mark.parametrize("constraint", [hard, soft])
def test_the_pods_of_many_constraints_are_counted_in_steps(constraint: Callable[..., dict[str, Any]]) -> None:
    """A selector may have to be compared with the labels of every pod of the cluster, which takes up to 100 ms."""
    seen = cluster(*FOUR, *on(a1=3, b1=1))
    others = [{"matchLabels": {f"other-{at}": ""}} for at in range(8)]
    many, one = pod("p", constraint(), *(constraint(selector=each) for each in others)), pod("p", constraint())
    plugin, state, present = PodTopologySpread(LIST, handle(seen)), CycleState(), seen.nodes.present
    plugin.pre_score(state, many, present)

    assert len(list((plugin.filter if constraint is hard else plugin.score)(state, many, present))) == 9
    assert (
        refused(plugin, seen, many)
        == refused(plugin, seen, one)
        == ({"a1": SKEWED, "a2": SKEWED} if constraint is hard else {})
    )
    assert scored_among(plugin, seen, many, ["a1", "b1"]) == scored_among(plugin, seen, one, ["a1", "b1"])


def test_a_cordon_alone_is_no_taint() -> None:
    """`spec.unschedulable` without its taint leaves the zone a domain, as upstream."""
    cordoned = objects.node("c1", labels={ZONE: "c", HOST: "c1"}, cordoned=True)
    seen = cluster(*FOUR, cordoned, *on(a1=1, b1=1))

    assert dict.fromkeys(("a1", "a2", "b1", "b2"), SKEWED) == filtered(pod("p", hard(nodeTaintsPolicy="Honor")), seen)


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


def test_the_check_before_bind_sees_pods_of_other_schedulers() -> None:
    """Just before Bind the pod itself is taken out, and another scheduler's pod may have filled the zone."""
    seen = cluster(*FOUR, *on(a1=1, b1=1))
    profile = build_profiles(Configuration(), handle(seen))["kubestow"]
    running = FrameworkRunner(profile, seen, Nominated({}), clock=SystemClock(), metrics=Metrics(process=False))
    state = CycleState()
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


# -- events ------------------------------------------------------------------------------------------------------------

OWN_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)

WAITING = pod("p", hard())
TWO = pod("p", hard(), hard(HOST, selector=BAR))


def other(labels: str = "foo", *, on: str = "n1") -> PodInfo:
    return pod("q", labels=labels, on=on)


BARE, ZONED, BOTH = node("n", zone="", host=""), node("n", zone="a", host=""), node("n", zone="a")
BY_ZONE_AND_NODE = pod("p", hard(), hard(HOST))


@pytest.mark.parametrize(("event", "waiting", "old", "new", "hint"), [
    pytest.param(ASSIGNED_POD_ADD, WAITING, None, other(on=""), Hint.SKIP, id="a pod without a place"),
    pytest.param(ASSIGNED_POD_ADD, TWO, None, other("bar"), Hint.QUEUE, id="a pod that any constraint counts"),
    pytest.param(ASSIGNED_POD_ADD, pod("p", hard(selector={})), None, other("x"), Hint.QUEUE, id="an empty selector"),
    pytest.param(ASSIGNED_POD_ADD, pod("p", hard(selector=None)), None, other(), Hint.SKIP,
        id="a nil selector selects no pod"),
    pytest.param(ASSIGNED_POD_ADD, pod("p", soft(), hard(selector=BAR)), None, other(), Hint.SKIP,
        id="a soft constraint"),
    pytest.param(ASSIGNED_POD_ADD, pod("p", hard(matchLabelKeys=["foo"]), labels={"foo": "2"}), None, other(),
        Hint.SKIP, id="another value of matchLabelKeys"),
    pytest.param(ASSIGNED_POD_DELETE, WAITING, other(on=""), None, Hint.SKIP, id="a pod went that had no place"),
    pytest.param(OWN_LABEL, WAITING, pod("q", labels="x"), pod("q"), Hint.SKIP, id="another waiting pod's labels"),
    pytest.param(NODE_ADD, BY_ZONE_AND_NODE, None, ZONED, Hint.SKIP, id="a node with some of the keys came"),
    pytest.param(NODE_DELETE, BY_ZONE_AND_NODE, ZONED, None, Hint.SKIP, id="a node with some of the keys went"),
    pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, BARE, ZONED, Hint.SKIP, id="a node got one of the keys"),
    pytest.param(NODE_LABEL, BY_ZONE_AND_NODE, ZONED, BOTH, Hint.QUEUE, id="a node got the last of the keys"),
    pytest.param(NODE_LABEL, pod("p", hard(nodeAffinityPolicy="Ignore"), nodeSelector={"x": ""}), ZONED,
        node("n", "x", zone="a", host=""), Hint.SKIP, id="a label of the nodeSelector, which decides nothing"),
    pytest.param(NODE_TAINT, WAITING, BOTH, BOTH, Hint.SKIP, id="the same taints"),
])  # fmt: skip
def test_hints(event: ClusterEvent, waiting: PodInfo, old: Any, new: Any, hint: Hint) -> None:
    """Queue if the counts or the domains of a hard constraint change; more rows are in the table of hints."""
    seen = cluster()
    manifest = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    seen.workloads.set_service("default/s", from_manifest(Service, manifest))

    assert hint is hinted(PodTopologySpread(LIST, handle(seen)), event, waiting, old=old, new=new)


def registered(event: ClusterEvent) -> EventHint:
    plugin = PodTopologySpread(LIST, handle(cluster()))
    (found,) = [registration for registration in plugin.events_to_register() if registration.event.wants(event)]
    return found


def test_one_question_for_all_replicas() -> None:
    """Pods of one ReplicaSet, and of one StatefulSet, have one shape; those of another revision have not."""
    shape = registered(ASSIGNED_POD_ADD).shape
    assert shape is not None
    replicas = [
        pod(f"p{at}", hard(matchLabelKeys=["hash"]), labels={"foo": "", "hash": "1", "pod": f"p{at}"})
        for at in range(3)
    ]
    newer = pod("n", hard(matchLabelKeys=["hash"]), labels={"foo": "", "hash": "2", "pod": "n"})

    assert 1 == len({shape(replica) for replica in replicas})
    assert shape(newer) != shape(replicas[0])


def test_pods_of_all_namespaces_wait_for_one_node() -> None:
    """About nodes only the keys matter."""
    shape = registered(NODE_ADD).shape
    assert shape is not None

    assert shape(pod("p", hard(), ns="x")) == shape(pod("q", hard(skew=9, selector=BAR), soft(HOST), ns="y"))
    assert shape(pod("p", hard())) != shape(pod("p", hard(HOST)))


NAMES = tuple(f"n{at}" for at in range(12))
BOTH_TAINTS = PodTopologySpreadArgs(
    (
        DefaultConstraint(1, ZONE, "DoNotSchedule", min_domains=2, match_label_keys=("app",)),
        DefaultConstraint(2, HOST, "ScheduleAnyway"),
        DefaultConstraint(1, ZONE, "ScheduleAnyway", node_affinity_policy="Ignore", node_taints_policy="Honor"),
    ),
    "List",
)
ARGS = (PodTopologySpreadArgs(), LIST, BOTH_TAINTS)

# -- anything that may be there, or come -------------------------------------------------------------------------------

words = st.fixed_dictionaries({}, optional={"app": st.sampled_from("xxy"), "track": st.sampled_from("xy")})
namespaces = st.sampled_from("aaab")


def mostly(*values: str) -> st.SearchStrategy[str | None]:
    return st.sampled_from([*values, *values, None])


node_labels = st.fixed_dictionaries(
    {
        ZONE: mostly("z1", "z2", "z3", ""),
        HOST: mostly(*NAMES[:6], "shared"),
        "rack": mostly("r1", "r2"),
        "gpu": st.sampled_from(["", None]),
    }
).map(lambda labels: {key: value for key, value in labels.items() if value is not None})
taints = st.lists(st.sampled_from(["t=:NoSchedule", "u=:NoExecute", "t=:PreferNoSchedule"]), max_size=1)
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(["app", "track"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from("xy"), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(["app", "track"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = st.one_of(
    st.just({"matchLabels": {"app": "x"}}),
    words.map(lambda labels: {"matchLabels": labels}),
    expressions.map(lambda expression: {"matchExpressions": [expression]}),
    st.none(),
)
constraints = st.builds(
    lambda key, action, selector, rest: {
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": selector,
        **rest,
    },
    st.sampled_from([ZONE, ZONE, HOST, "rack"]),
    st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    selectors,
    st.fixed_dictionaries(
        {
            "maxSkew": st.sampled_from([1, 1, 1, 2, 5]),
            "minDomains": st.sampled_from([None, None, 2, 4]),
            "nodeAffinityPolicy": st.sampled_from([None, "Honor", "Ignore"]),
            "nodeTaintsPolicy": st.sampled_from([None, "Honor", "Honor", "Ignore"]),
            "matchLabelKeys": st.sampled_from([[], [], ["app"], ["track", "none"]]),
        }
    ),
)


@st.composite
def incomings(draw: st.DrawFn) -> list[PodInfo]:
    """Pods that share their constraints and differ in what these look at: what is kept for one must not serve another."""
    shared = draw(st.one_of(st.just([]), st.lists(constraints, min_size=1, max_size=3)))
    labels = draw(words)
    return [
        pod(
            f"incoming{at}",
            *shared,
            labels=draw(st.sampled_from([labels, labels, {"app": "x"}, {"app": "y"}])),
            ns=draw(namespaces),
            owner=draw(st.sampled_from(["", "ReplicaSet/o", "ReplicaSet/o", "Job/o"])),
            nodeSelector=draw(st.sampled_from([{}, {"gpu": ""}])),
            tolerations=draw(st.sampled_from([[], [{"key": "t", "operator": "Exists"}]])),
        )
        for at in range(draw(st.integers(1, 4)))
    ]


steps = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NAMES), node_labels, taints),
    st.tuples(st.just("gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("pod"), st.integers(0, 9), st.sampled_from(NAMES), namespaces, words, st.booleans()),
    st.tuples(st.just("left"), st.integers(0, 9)),
    st.tuples(st.just("everywhere"), namespaces, words),
    st.tuples(st.just("nowhere"), namespaces),
    st.tuples(st.just("service"), namespaces, st.sampled_from(["s", "t"]), st.none() | words),
    st.tuples(st.just("owner"), namespaces, selectors),
    st.just(("checked",)),
)
crowds = st.lists(st.tuples(st.sampled_from(NAMES[:6]), namespaces, words), min_size=5, max_size=20)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Some nodes with pods to begin with, so that there is something to be uneven; then anything."""
    nodes = [("node", name, draw(node_labels), draw(taints)) for name in NAMES[:6]]
    pods = [("crowd", at, *one) for at, one in enumerate(draw(crowds))]
    selecting = [("service", "a", "s", {"app": "x"}), ("owner", "a", {"matchLabels": {"track": "x"}})]
    return [*nodes, *pods, *draw(st.sampled_from([selecting, selecting[:1], []])), *draw(st.lists(steps, max_size=20))]


def apply(seen: Cluster, step: tuple[Any, ...]) -> None:
    match step:
        case ("node", name, labels, tainted):
            seen.set_node(objects.node(name, labels=labels, taints=tainted))
        case ("gone", name):
            seen.remove_node(name)
        case ("pod", number, name, ns, labels, is_deleting):
            known = seen.get(f"p{number}")
            at, space = (known.node_name, known.pod.metadata.namespace) if known else (name, ns)
            seen.add_pod(pod(f"p{number}", labels=labels, ns=space, deleting=is_deleting, on=at))
        case ("crowd", number, name, ns, labels):
            seen.add_pod(pod(f"c{number}", labels=labels, ns=ns, on=name))
        case ("left", number):
            seen.remove_pod(f"p{number}")
            seen.remove_pod(f"c{number}")
        case ("everywhere", ns, labels):
            for name in NAMES:
                seen.add_pod(pod(f"{ns}-{name}", labels=labels, ns=ns, on=name))
        case ("nowhere", ns):
            for name in NAMES:
                seen.remove_pod(f"{ns}-{name}")
        case ("service", ns, name, selector):
            manifest = {"metadata": {"name": name, "namespace": ns}, "spec": {"selector": selector}}
            seen.workloads.set_service(f"{ns}/{name}", from_manifest(Service, manifest))
        case ("owner", ns, selector):
            manifest = {"metadata": {"name": "o", "namespace": ns}, "spec": {"selector": selector}}
            seen.workloads.set_controller(ReplicaSet, f"{ns}/o", from_manifest(ReplicaSet, manifest))


class Judged:
    """A cluster, plugins that watch it from the beginning, and pods that are judged again and again."""

    def __init__(self, capacity: int, incoming: list[PodInfo], candidates: set[str]) -> None:
        self.seen = Cluster()
        self.seen.nodes = Nodes(capacity=capacity)
        versions = [(args, CHANGES[version]) for args in ARGS for version in ("1.37", "1.38")]
        self.plugins = [
            (args, gates, PodTopologySpread(args, handle(self.seen, feature_gates=gates))) for args, gates in versions
        ]
        self.incoming = incoming
        self.candidates = candidates

    def check(self) -> None:
        """Every pod under every kind of defaults, in two versions."""
        seen = self.seen
        for args, gates, plugin in self.plugins:
            for incoming in self.incoming:
                expected = expected_refusals(seen, incoming, args, gates)
                skips = plugin.pre_filter(CycleState(), incoming, seen.nodes.present) is SKIP

                assert skips == (expected is None)
                assert refused(plugin, seen, incoming) == (expected or {})
                for names in (NAMES, self.candidates):
                    scores = scored_among(plugin, seen, incoming, names)
                    assert scores == expected_scores(seen, incoming, args, names, gates)


judgements = {
    "capacity": st.sampled_from((4, 1024)),
    "incoming": incomings(),
    "candidates": st.sets(st.sampled_from(NAMES[:6]), min_size=1),
    "table_max": st.sampled_from((0, 64)),
}
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


@settings(max_examples=examples(200, share=SLOW_SHARE), deadline=None, suppress_health_check=SLOW)
@given(history=histories(), **judgements)
def test_any_history(
    history: list[tuple[Any, ...]], capacity: int, incoming: list[PodInfo], candidates: set[str], table_max: int
) -> None:
    """143, 144, 145, 147, 169, 170, 171, 172, 173, 174, 175: compare all answers at some steps of a history.

    Nodes, pods, Services and owners come, change and go.
    """
    judged = Judged(capacity, incoming, candidates)
    with mock.patch.object(soft_module, "_TABLE_MAX", table_max):
        for step in history:
            apply(judged.seen, step)
            if step[0] == "checked":
                judged.check()
        judged.check()


@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(
    history=histories(),
    coming=st.lists(st.tuples(namespaces, words, st.booleans(), st.sampled_from(NAMES[:6])), max_size=3),
    leaving=st.lists(st.integers(0, 9), max_size=3, unique=True),
    **judgements,
)
def test_any_trial(
    history: list[tuple[Any, ...]],
    coming: list[tuple[str, dict[str, str], bool, str]],
    leaving: list[int],
    capacity: int,
    incoming: list[PodInfo],
    candidates: set[str],
    table_max: int,
) -> None:
    """Pods come and go for a moment: nominated ones, victims of a preemption, the pod itself before it is bound."""
    judged = Judged(capacity, incoming, candidates)
    seen = judged.seen
    with mock.patch.object(soft_module, "_TABLE_MAX", table_max):
        for step in history:
            apply(seen, step)
        judged.check()
        added = [
            (pod(f"new{at}", labels=labels, ns=ns, deleting=is_deleting), name)
            for at, (ns, labels, is_deleting, name) in enumerate(coming)
        ]
        gone = [info for number in leaving if (info := seen.get(f"c{number}")) is not None]
        with seen.trial(add=added, remove=gone):
            judged.check()
        judged.check()


# -- woken pods ------------------------------------------------------------------------------------------------------


@st.composite
def neighbours(draw: st.DrawFn) -> PodInfo:
    return pod("q", labels=draw(words), ns=draw(namespaces), on=draw(st.sampled_from(["", "n1", "n1"])))


nodes = st.builds(lambda labels, tainted: objects.node("n1", labels=labels, taints=tainted), node_labels, taints)
ABOUT_NODES = ClusterEvent(Resource.NODE, Action.ADD)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=SLOW)
@given(
    waiting=incomings(),
    args=st.sampled_from(ARGS),
    pods=st.tuples(st.none() | neighbours(), st.none() | neighbours()),
    changed=st.tuples(st.none() | nodes, st.none() | nodes),
)
def test_one_answer_for_a_shape(
    waiting: list[PodInfo], args: PodTopologySpreadArgs, pods: tuple[Any, Any], changed: tuple[Any, Any]
) -> None:
    """Pods of equal shape are answered alike and wait for the same topics, and no yes is without a common topic."""
    seen = Cluster()
    for step in (("service", "a", "s", {"app": "x"}), ("owner", "a", {"matchLabels": {"track": "x"}})):
        apply(seen, step)
    for registration in PodTopologySpread(args, handle(seen)).events_to_register():
        if registration.shape is None:
            continue
        assert registration.hint is not None
        assert registration.topics is not None
        old, new = changed if registration.event.wants(ABOUT_NODES) else pods
        answers: dict[Hashable, tuple[Hint, set[Hashable] | None]] = {}
        for one in waiting:
            topics = registration.topics.of_pod(one)
            answer = registration.hint(one, old, new), None if topics is None else set(topics)

            assert answer == answers.setdefault(registration.shape(one), answer)
            assert answer[0] is Hint.SKIP or is_concerned(registration, one, old=old, new=new)
