"""The laws of preemption: the dry run decides as upstream's algorithm taken literally, as if pods had never had devices, and as without memo.

The reference for devices builds a new cluster for every question, in which a claim has its devices only if one of its users is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import finish
from scheduler.core.feature_gates import CHANGES, DEVICE_GATES_ON, VERSIONS
from scheduler.core.nodeset import each
from scheduler.framework import dry_run
from scheduler.framework.dry_run import NominatedPods, Simulation
from scheduler.framework.interface import CycleState, DryRun
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import Code, Nominate, Rejection
from scheduler.plugins import BUILT_IN
from scheduler.plugins.defaultpreemption import Answer, Candidate, Evaluator, VictimRule, victim_rule
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.unit import objects
from tests.unit.cache.picture import check_sums, picture
from tests.unit.objects import handle, node
from tests.unit.plugins.preempting import NO_VICTIMS, Looks, PreemptionHarness, Refusal, near_to, pod, restarted, spread
from tests.unit.plugins.preemption_worlds import (
    NAMES,
    PreemptionWorld,
    bound,
    budgets,
    newcomers,
    nodes,
    starts,
    unbound,
    worlds,
)
from tests.unit.plugins.reference_preemption import FILTERS, LiteralPreemption, Victims

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Tried(Simulation):
    """Never counts aside: pods leave the cache and come back."""

    def __init__(self, ahead: NominatedPods, state: CycleState, pod: PodInfo) -> None:
        super().__init__(ahead, state, pod)
        self.is_counted = False


def stated(answer: Answer | Victims | Refusal, harness: PreemptionHarness) -> Any:
    """What both the plugin and the reference say of a node."""
    match answer:
        case Candidate():
            return harness.named(answer), answer.violations
        case Victims():
            return [pod.pod.metadata.name for pod in answer.pods], answer.violations
        case Rejection():
            return answer.code, answer.reasons
        case _:
            return answer


def test_the_reference_has_the_default_filters() -> None:
    assert tuple(bound.name for bound in PreemptionHarness().runner.profile.filter) == FILTERS


@settings(max_examples=examples(250, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=unbound("incoming"), parity=st.booleans(), version=st.sampled_from(VERSIONS))
def test_each_node_and_the_choice(world: PreemptionWorld, incoming: PodInfo, parity: bool, version: str) -> None:
    """182, 183: equal victims in equal order, violations or refusals on each node, and one of the best nodes is chosen."""
    ours, gates = KubestowArgs(parity=parity), CHANGES[version]
    harness, literal = world.harness(ours=ours, gates=gates), world.literal(ours, gates)
    rule = victim_rule(harness.handle)
    refusing = {name: no for name in world.nodes if (no := literal.fits(incoming, name, literal.pods)) is not None}
    what_if = harness.what_if(incoming)
    expected = {name: literal.on(incoming, name) for name in refusing}
    for name, victims in expected.items():
        answer = finish(Evaluator(harness.cluster, rule).on(what_if, incoming, harness.slot(name), None))

        assert stated(victims, harness) == stated(answer, harness)
        event(f"{'counted' if what_if.is_counted else 'tried'}: {kind(victims)}")
    if refusing.keys() == world.nodes.keys():
        could = {name: expected[name] for name, no in refusing.items() if no.code is Code.UNSCHEDULABLE}
        check_choice(harness, incoming, could, literal)


def kind(expected: Victims | Refusal) -> str:
    if isinstance(expected, Victims):
        return f"{min(len(expected.pods), 3)} victims"
    return "no victims" if expected == NO_VICTIMS else expected[1][0]


def check_choice(
    harness: PreemptionHarness, incoming: PodInfo, could: dict[str, Victims | Refusal], literal: LiteralPreemption
) -> None:
    """`could` are the nodes where an eviction might help."""
    answer = harness.post_filtered(incoming)
    assert isinstance(answer, Nominate)
    found = {name: victims for name, victims in could.items() if isinstance(victims, Victims)}
    if found:
        assert answer.node_name in literal.best(found)
        assert answer.victims == found[answer.node_name].pods
        event(f"{len(found)} candidates")
        return
    reasons = [reason for no in could.values() if not isinstance(no, Victims) for reason in no[1]]
    nodes = len(literal.nodes)
    reasons += ["Preemption is not helpful for scheduling"] * (nodes - len(could))
    told = ", ".join(sorted(f"{reasons.count(reason)} {reason}" for reason in set(reasons)))

    assert answer.rejection is not None
    assert answer.rejection.message == f"preemption: 0/{nodes} nodes are available: {told}."


@settings(max_examples=examples(150, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=st.one_of(unbound("incoming"), unbound("incoming", plain=True)))
def test_counting_and_trying_agree(world: PreemptionWorld, incoming: PodInfo) -> None:
    """Wherever questions can be answered aside, the cache itself gives the same answers."""
    harness = world.harness()
    what_if = harness.what_if(incoming)
    event("counted" if what_if.is_counted else "tried")
    state = CycleState()
    harness.runner.pre_filter(state, incoming)
    counted, tried = Evaluator(harness.cluster, VictimRule()), Evaluator(harness.cluster, VictimRule())
    for name in world.nodes:
        slot = harness.slot(name)
        aside = finish(counted.on(what_if, incoming, slot, counted.of(what_if, incoming)))
        with mock.patch.object(dry_run, "Simulation", Tried):
            truly = finish(tried.on(Tried(harness.runner.ahead, state, incoming), incoming, slot, None))

        assert stated(aside, harness) == stated(truly, harness)


@settings(max_examples=examples(150, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=unbound("incoming"), forced=st.booleans())
def test_the_cache_is_as_before(world: PreemptionWorld, incoming: PodInfo, forced: bool) -> None:
    """Columns, indexes and counts are those of a cluster without a dry run."""
    harness, untouched = world.harness(), world.harness()
    for kind_of_what_if in (Simulation, Tried if forced else Simulation):
        state = CycleState()
        harness.runner.pre_filter(state, incoming)
        what_if = kind_of_what_if(harness.runner.ahead, state, incoming)
        with mock.patch.object(dry_run, "Simulation", kind_of_what_if):
            for name in world.nodes:
                Evaluator(harness.cluster, VictimRule()).on(what_if, incoming, harness.slot(name), None)

    assert picture(harness.cluster) == picture(untouched.cluster)
    check_sums(harness.cluster)


NODES: Final = ("n1", "n2")
ODD: Final = "device.attributes['drv'].at == 1"
WISHES: Final = ((), (), (ODD,), ("device.attributes['drv'].at == 0",))


@dataclass
class Devices:
    """Claims, slices and classes."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: list[ResourceClaim] = field(default_factory=list)

    def put_into(self, cluster: Cluster, *, gone: frozenset[str]) -> None:
        """Claims whose users are all gone have nothing."""
        for one in self.slices:
            cluster.devices.set_slice(one)
        for known in self.classes:
            cluster.devices.classes.put(known.key, known)
        for claim in self.claims:
            users = {user.uid for user in claim.status.reserved_for}
            status = claim.status
            if users and users <= gone:
                status = msgspec.structs.replace(status, allocation=None, reserved_for=())
            cluster.devices.claims.set(msgspec.structs.replace(claim, status=status))


@dataclass(frozen=True)
class LiteralWithDevices(LiteralPreemption):
    """Devices are free when no user is left."""

    devices: Devices = field(default_factory=Devices)

    def _cluster(self, pods: Iterable[PodInfo]) -> Cluster:
        left = list(pods)
        fresh = super()._cluster(left)
        gone = frozenset(pod.uid for pod in self.pods) - {pod.uid for pod in left}
        self.devices.put_into(fresh, gone=gone)
        return fresh

    def _plugins(self, fresh: Cluster) -> Iterator[tuple[str, Any]]:
        made = dataclasses.replace(handle(fresh), ours=self.ours, feature_gates=DEVICE_GATES_ON)
        return ((name, BUILT_IN[name](None, made)) for name in FILTERS)


@dataclass
class DeviceWorld:
    """Nodes with a few devices, some in a pool that all of them see, and pods that have some of them."""

    pods: list[PodInfo] = field(default_factory=list)
    devices: Devices = field(default_factory=Devices)
    incoming: Any = None

    def harness(self) -> PreemptionHarness:
        made = PreemptionHarness(*(objects.node(name) for name in NODES), *self.pods, gates=DEVICE_GATES_ON)
        self.devices.put_into(made.cluster, gone=frozenset())
        return made

    def literal(self) -> LiteralPreemption:
        nodes = [objects.node(name) for name in NODES]
        return LiteralWithDevices(nodes, self.pods, (), {}, KubestowArgs(), devices=self.devices)


def using(name: str, priority: int, claims: Sequence[str], **more: Any) -> PodInfo:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return pod(name, priority, resourceClaims=entries, **more)


@st.composite
def device_worlds(draw: st.DrawFn) -> DeviceWorld:
    """Most devices are taken."""
    made = DeviceWorld()
    places: dict[str, list[str]] = {}
    slices = []
    for name in (*NODES, "shared"):
        devices = [f"d{at}" for at in range(draw(st.integers(0, 3)))]
        listed = [a_device(device).attr("drv/at", draw(st.integers(0, 1))) for device in devices]
        one = a_slice(name if name != "shared" else "n1", "drv", *listed)
        slices.append(one if name != "shared" else one.everywhere().pool("shared").named("shared"))
        for device in devices:
            places.setdefault(name, []).append(f"drv/{name}/{device}")
    held = [at for name in places for at in places[name] if draw(st.integers(0, 4))]
    names = [f"b{at}" for at in range(draw(st.integers(1, 6)))]
    where = {name: draw(st.sampled_from(NODES)) for name in names}
    claims_of: dict[str, list[str]] = {name: [] for name in names}
    while held:
        taken = [held.pop() for _ in range(min(draw(st.sampled_from((1, 1, 2))), len(held)))]
        claim = (
            a_claim(f"c{len(held)}").uid(f"c{len(held)}").request("r", "gpu", count=len(taken)).resource_version("1")
        )
        claim = claim.allocated(*(a_result("r", at) for at in taken))
        node = taken[0].split("/")[1]
        near = [name for name in names if where[name] == node or node not in NODES] or names
        users = draw(st.lists(st.sampled_from(near), min_size=1, max_size=2, unique=True))
        users += draw(st.sampled_from(([], [], [], [], ["stranger"], names[:1])))
        for user in dict.fromkeys(users):
            claim = claim.reserved_for(user, f"default/{user}")
            if user in claims_of:
                claims_of[user].append(f"c{len(held)}")
        made.devices.claims.append(claim.typed())
    for name in names:
        priority = draw(st.sampled_from((0, 0, 1, 1, 5, 10)))
        made.pods.append(using(name, priority, claims_of[name], on=where[name], started=draw(st.sampled_from("12"))))
    wanted = (
        a_claim("w")
        .uid("w")
        .request("r", "gpu", count=draw(st.sampled_from((1, 1, 2, 3))), cel=draw(st.sampled_from(WISHES)))
    )
    made.devices.claims.append(wanted.resource_version("1").typed())
    made.incoming = using("incoming", draw(st.sampled_from((5, 10, 10, 11))), ["w"])
    made.devices.slices = tuple(one.typed() for one in slices)
    made.devices.classes = (a_device_class("gpu").typed(),)
    return made


@settings(max_examples=examples(200, share=SLOW_SHARE), suppress_health_check=SLOW, deadline=None)
@given(world=device_worlds())
def test_each_node(world: DeviceWorld) -> None:
    """Equal victims in equal order, or equal refusals; and preemption looks where, and only where, it can help."""
    harness, literal, incoming = world.harness(), world.literal(), world.incoming
    before, revision = picture(harness.cluster), harness.cluster.devices.use.revision
    state = CycleState()
    assert harness.runner.pre_filter(state, incoming).rejection is None
    _, groups = finish(harness.runner.filter(state, incoming, harness.cluster.nodes.present, exact=True))
    relented = finish(harness.runner.with_evictable_nodes(state, incoming, groups))
    codes = {slot: no.code for no, nodes in relented.items() for slot in each(nodes)}
    what_if = harness.runner.what_if(state, incoming)
    for name in NODES:
        fits = literal.fits(incoming, name, literal.pods) is None
        slot = harness.slot(name)
        assert fits == (slot not in codes)
        if fits:
            continue
        expected = literal.on(incoming, name)
        answer = finish(Evaluator(harness.cluster, VictimRule()).on(what_if, incoming, slot, None))
        if isinstance(expected, Victims):
            assert isinstance(answer, Candidate)
            assert harness.named(answer) == [victim.pod.metadata.name for victim in expected.pods]
        else:
            assert isinstance(answer, Rejection)
            assert (answer.code, answer.reasons) == expected
        helps = isinstance(expected, Victims)
        assert codes[slot] is (Code.UNSCHEDULABLE if helps else Code.UNRESOLVABLE)
        event(f"{len(expected.pods)} victims" if isinstance(expected, Victims) else expected[1][0])
    assert (picture(harness.cluster), harness.cluster.devices.use.revision) == (before, revision)


# -- one change after another ------------------------------------------------------------------------------------------

FULL = node("n1", cpu="3")
ONLY_C = {"only": "c"}


def low(name: str, priority: int, **more: Any) -> PodInfo:
    return pod(name, priority, **{"on": "n1", "cpu": "1", **more})


A, B = low("a", 2, started="1"), low("b", 1, started="2")
C = low("c", 1, started="3", labels=ONLY_C)


def incoming(name: str = "incoming", priority: int = 10, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod(name, priority, cpu=cpu, **more)


FAR = [
    pytest.param({"topologySpreadConstraints": spread("x")}, id="hard spread"),
    pytest.param({"affinity": near_to("x")}, id="pod affinity"),
]


@pytest.mark.parametrize("rules", FAR)
def test_a_refusal_of_the_node_itself_needs_no_trial(rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without all its victims the node is too small: what other nodes hold makes no difference."""
    harness = PreemptionHarness(node("n1", cpu="3", labels={"zone": "z"}), A, B, C)
    one = incoming(cpu="4", labels={"app": "x"}, **rules)
    wanted = harness.on(one, "n1")
    monkeypatch.setattr(harness.cluster, "trial", None)
    dry_run = Evaluator(harness.cluster, VictimRule())

    first = harness.remembered(dry_run, one)
    monkeypatch.setattr(DryRun, "leading", None)

    assert first == wanted
    assert harness.remembered(dry_run, one) is first


def test_pods_of_one_shape_share_an_answer() -> None:
    """Names, labels and namespaces make no difference where no rule looks at them."""
    looks = Looks()
    harness = PreemptionHarness(FULL, A, B, C, plugins=(looks,))
    dry_run = Evaluator(harness.cluster, VictimRule())
    alike = (incoming(), incoming("another"), incoming(labels={"app": "x"}), incoming(ns="other"))
    answers = {id(harness.remembered(dry_run, one)) for one in alike}

    assert len(answers) == 1
    assert looks.at == ["n1"]


def test_the_least_recently_used_shape_is_evicted() -> None:
    """Some shapes are remembered, not all there ever were."""
    looks = Looks()
    harness = PreemptionHarness(FULL, A, B, C, plugins=(looks,))
    dry_run = Evaluator(harness.cluster, VictimRule())
    for milli in (*range(1, 65), 1, 65, 1, 2):
        harness.remembered(dry_run, incoming(cpu=f"{milli}m"))

    assert len(looks.at) == 66  # 1..64, 65, and 2 again


# -- any history -------------------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 5).flatmap(lambda at: bound(f"b{at}"))),
    st.tuples(st.just("left"), st.integers(0, 5)),
    st.tuples(st.just("started"), st.integers(0, 5), starts),
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("budget"), st.integers(0, 2).flatmap(lambda at: budgets(f"d{at}"))),
    st.tuples(st.just("budget gone"), st.integers(0, 2)),
    st.tuples(
        st.just("nominated"),
        st.sampled_from(NAMES),
        st.lists(st.integers(0, 2).flatmap(lambda at: newcomers(f"n{at}")), max_size=2),
    ),
)


@st.composite
def preemptors(draw: st.DrawFn) -> list[PodInfo]:
    """Some differ only in labels, which the anti-affinity of other pods reads."""
    return [draw(unbound(f"incoming{at}", plain=draw(st.booleans()))) for at in range(draw(st.integers(1, 3)))]


@settings(
    max_examples=examples(80, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(world=worlds(), incoming=preemptors(), history=st.lists(steps, max_size=6))
def test_what_is_remembered_is_true(
    world: PreemptionWorld, incoming: list[PodInfo], history: list[tuple[Any, ...]]
) -> None:
    """After every step, for every preemptor and node; so is what the filters remember of nodes with nominated pods."""
    harness = world.harness()
    old = Evaluator(harness.cluster, VictimRule())
    for step in (("checked",), *history):
        apply(harness, step)
        for one in incoming:
            check(harness, old, one)
            check(harness, old, one)


def check(harness: PreemptionHarness, old: Evaluator, one: PodInfo) -> None:
    nodes = harness.cluster.nodes
    fresh = FrameworkRunner(
        harness.runner.profile, harness.cluster, harness.nominator, clock=harness.handle.clock, metrics=harness.metrics
    )
    answers = []
    whole = Evaluator(harness.cluster, VictimRule())
    """It has no memo, so all filters run."""
    for runner, evaluator in (
        (harness.runner, old),
        (fresh, Evaluator(harness.cluster, VictimRule())),
        (fresh, whole),
    ):
        state = CycleState()
        runner.pre_filter(state, one)
        passed, refused = finish(runner.filter(state, one, nodes.present, exact=True))
        what_if = runner.what_if(state, one)
        known = evaluator.of(what_if, one) if evaluator is not whole else None
        slots = [slot for name in NAMES if (slot := nodes.present_slot(name)) is not None]
        answers.append((passed, refused, [finish(evaluator.on(what_if, one, slot, known)) for slot in slots]))

    assert answers[0] == answers[1] == answers[2]


def apply(harness: PreemptionHarness, step: tuple[Any, ...]) -> None:
    cluster = harness.cluster
    match step:
        case ("pod", one):
            cluster.add_pod(one)
        case ("left", at):
            for ns in ("default", "other"):
                cluster.remove_pod(f"{ns}/b{at}")
        case ("started", at, started):
            known = cluster.get(f"default/b{at}")
            if known is not None:
                cluster.update_pod(restarted(known, started))
        case ("node", one):
            cluster.set_node(one)
        case ("node gone", name):
            cluster.remove_node(name)
        case ("budget", one):
            cluster.disruptions.put(one)
        case ("budget gone", at):
            for ns in ("default", "other"):
                cluster.disruptions.remove(f"{ns}/d{at}")
        case ("nominated", name, pods):
            harness.nominate(name, *{one.uid: one for one in pods}.values())
