"""Leader election (docs/spec/core.md §7.4), and another Kubestow of the same names, which is noticed before this one acts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.meta import micros
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, TooManyRequests, Unavailable
from scheduler.kube.leader_election import AnotherScheduler, Elector, LeaseTiming, OtherLeases
from scheduler.kube.writes.api_writer import LABEL, NAMES, LeaseWriter
from tests.support.clock import VirtualClock
from tests.unit.kube.leases import NEVER_S, LeaseWorld, Line
from tests.unit.kube.scripted import ScriptedTransport

LONGEST_WAIT_S = 2 * 2.2
"""Between two tries of a candidate: the retry period and 120 % of it."""
NO = Forbidden("leases is forbidden", status=403)
AWAY = Unavailable("connection refused")
LOST = Ambiguous("connection reset")


@pytest.fixture
async def world():
    world = LeaseWorld()
    yield world
    await world.end()


# -- taking it ---------------------------------------------------------------------------------------------------------


async def test_a_lease_that_was_given_back_is_taken_at_once(world):
    world.put("", leaseTransitions=4, acquireTime=micros(1.0), leaseDurationSeconds=1)
    member = await world.join("a")

    assert member.leads()
    spec = world.spec()
    assert ("a", 15, 5, world.now()) == (
        spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"], spec["acquireTime"]
    )  # fmt: skip
    assert {"team": "a"} == world.server.get("leases", "kubestow", "kube-system")["metadata"]["labels"]


@pytest.mark.parametrize(
    ("record", "lasts_s"),
    [
        pytest.param({}, 15, id="a record of now"),
        pytest.param({"renewTime": micros(1.0)}, 15, id="a clock that is decades behind"),
        pytest.param({"renewTime": micros(4e9)}, 15, id="a clock that is decades ahead"),
        pytest.param({"renewTime": None}, 15, id="a record without times"),
        pytest.param({"leaseDurationSeconds": 40}, 40, id="the holder's duration counts"),
        pytest.param({"leaseDurationSeconds": 3}, 3, id="also when it is shorter than ours"),
        pytest.param({"leaseDurationSeconds": None}, 15, id="ours where the record has none"),
    ],
)
async def test_a_silent_holder_is_replaced(world, record, lasts_s):
    world.put("b", leaseTransitions=1, **record)
    await world.clock.advance(1000)
    member = await world.join("a")
    await world.clock.advance(lasts_s - 0.1)
    assert not member.leads()
    await world.clock.advance(0.1 + LONGEST_WAIT_S)

    assert member.leads()
    assert ("a", 2) == (world.spec()["holderIdentity"], world.spec()["leaseTransitions"])


async def test_a_holder_that_renews_is_never_replaced(world):
    world.put("b")
    member = await world.join("a")
    for second in range(20):
        await world.clock.advance(10)
        world.put("b", renewTime=micros(second))
    await world.clock.advance(10)

    assert member.led_at is None
    assert "b" == world.spec()["holderIdentity"]
    assert {"get"} == {verb for verb, _ in member.line.sent}


async def test_a_lease_of_a_fraction_of_a_second_more_lasts_that_second(world):
    """The record has whole seconds. Rounded down, the lease would end 0.2 s before the deadline of its holder."""
    timing = LeaseTiming(lease_duration_s=15.5, renew_deadline_s=15.2, retry_period_s=0.1)
    leader = await world.join("a", timing=timing)
    other = await world.join("b", timing=timing)
    assert 16 == world.spec()["leaseDurationSeconds"]
    leader.suffers(there_s=NEVER_S, times=10**6)
    for _ in range(180):
        await world.clock.advance(0.1)
        assert not (leader.leads() and other.leads())

    assert "b" == world.spec()["holderIdentity"]


async def test_an_edit_of_labels_does_not_prolong_the_lease(world):
    world.put("b")
    member = await world.join("a")
    for second in range(15 + round(LONGEST_WAIT_S)):
        world.server.patch("leases", "kubestow", {"metadata": {"labels": {"n": str(second)}}}, namespace="kube-system")
        await world.clock.advance(1)

    assert member.leads()


@pytest.mark.parametrize(
    ("trouble", "transitions"),
    [
        pytest.param({"verb": "create", "refusal": LOST, "is_done": True}, 0, id="the answer of the creation is lost"),
        pytest.param({"verb": "create", "refusal": LOST}, 0, id="the creation is lost"),
        pytest.param({"verb": "create", "there_s": 7}, 0, id="the creation lands after we gave it up"),
        pytest.param({"verb": "create", "back_s": 7}, 0, id="the answer is too slow"),
        pytest.param({"verb": "get", "there_s": NEVER_S}, 0, id="a read hangs"),
        pytest.param({"refusal": AWAY, "times": 4}, 0, id="the server is away for a while"),
        pytest.param({"refusal": TooManyRequests("busy", retry_after_s=1.0)}, 0, id="the server is busy"),
        pytest.param({"refusal": NO, "times": 3}, 0, id="a permission comes late"),
    ],
)
async def test_trouble_delays_a_candidate(world, trouble, transitions):
    member = await world.join("a", trouble=trouble)
    assert not member.leads()
    await world.clock.advance(30)

    assert member.leads()
    assert ("a", transitions) == (world.spec()["holderIdentity"], world.spec()["leaseTransitions"])


async def test_the_answer_of_a_takeover_is_lost(world):
    world.put("", leaseTransitions=4)
    member = await world.join("a", trouble={"verb": "patch", "refusal": LOST, "is_done": True})
    began = world.spec()["acquireTime"]
    assert not member.leads()
    await world.clock.advance(2)

    assert member.leads()
    spec = world.spec()
    assert (5, began, "a") == (spec["leaseTransitions"], spec["acquireTime"], spec["holderIdentity"])


async def test_a_namespace_that_is_not_there(world):
    member = await world.join("a", namespace="mine")
    assert 'it cannot be created: namespaces "mine" not found' == member.elector.refused
    world.server.ensure_namespace("mine")
    await world.clock.advance(3)

    assert member.leads()
    assert "" == member.elector.refused


async def test_candidates_do_not_come_all_at_once(world):
    """Between one retry period and 2.2 of them lie between two tries, as in client-go."""
    world.put("b", leaseDurationSeconds=10**6)
    line = Line(world.server, world.clock, world.clock)
    leases = LeaseWriter(line, "kube-system", "kubestow")
    elector = Elector(leases, world.clock, random.Random(5), identity="a", timing=LeaseTiming(1e6, 1e5, 2))
    task = asyncio.ensure_future(elector.acquire())
    await world.clock.advance(1000)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    waits = [late - early for (_, early), (_, late) in zip(line.sent, line.sent[1:])]
    assert 2 <= min(waits) < 2.3
    assert 4.1 < max(waits) <= LONGEST_WAIT_S + 1e-9


# -- keeping it --------------------------------------------------------------------------------------------------------


async def test_a_leader_renews_every_retry_period(world):
    member = await world.join("a")
    began = world.spec()["acquireTime"]
    await world.clock.advance(100)

    assert member.leads()
    assert [("patch", 2.0 * n) for n in range(1, 51)] == member.line.sent[2:]
    spec = world.spec()
    assert (began, world.now(), 0) == (spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"])


async def test_foreign_labels_survive_and_cost_a_read(world):
    member = await world.join("a")
    world.server.patch("leases", "kubestow", {"metadata": {"labels": {"x": "y"}}}, namespace="kube-system")
    await world.clock.advance(2)

    assert member.leads()
    assert ["patch", "get", "patch"] == [verb for verb, _ in member.line.sent[2:]]
    lease = world.server.get("leases", "kubestow", "kube-system")
    assert ({"x": "y"}, world.now()) == (lease["metadata"]["labels"], lease["spec"]["renewTime"])


async def test_a_lease_that_was_deleted_is_created_again(world):
    member = await world.join("a")
    world.server.delete("leases", "kubestow", "kube-system")
    await world.clock.advance(2)

    assert member.leads()
    assert ("a", world.now()) == (world.spec()["holderIdentity"], world.spec()["renewTime"])


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({"refusal": LOST, "is_done": True, "times": 3}, id="answers are lost"),
        pytest.param({"refusal": LOST, "times": 6}, id="requests are lost"),
        pytest.param({"refusal": AWAY, "times": 6}, id="the server is away"),
        pytest.param({"refusal": NO, "times": 6}, id="permissions are missing"),
        pytest.param({"verb": "patch", "there_s": 6}, id="a renewal lands after it was given up"),
        pytest.param({"verb": "patch", "there_s": NEVER_S}, id="a renewal hangs"),
        pytest.param({"refusal": Conflict("again", status=409), "times": 2}, id="conflicts"),
    ],
)
async def test_trouble_within_the_deadline_costs_nothing(world, trouble):
    member = await world.join("a")
    member.suffers(**trouble)
    for _ in range(300):
        await world.clock.advance(0.1)
        assert member.leads()

    assert 0 == world.spec()["leaseTransitions"]


@pytest.mark.parametrize(
    ("trouble", "because"),
    [
        pytest.param({"refusal": AWAY}, ": connection refused", id="the server is away"),
        pytest.param({"there_s": NEVER_S}, ": no answer within", id="the server hangs"),
        pytest.param({"refusal": LOST, "is_done": True}, ": connection reset", id="no answer arrives"),
        pytest.param({"refusal": NO}, ": leases is forbidden", id="the permission was taken away"),
        pytest.param({"refusal": Conflict("x", status=409)}, ": x", id="one conflict after another"),
    ],
)
async def test_a_leader_that_cannot_renew_stops_at_the_deadline(world, trouble, because):
    member = await world.join("a")
    await world.clock.advance(1.9)
    member.suffers(times=10**6, **trouble)
    await world.clock.advance(8.0)
    assert member.leads()
    await world.clock.advance(0.2)

    assert not member.leads()
    assert member.why_lost.startswith("lease kube-system/kubestow was not renewed within 10 s" + because)
    assert max(sent_at for _, sent_at in member.line.sent) < 10
    await world.clock.advance(NEVER_S)
    assert not member.leads()


async def test_the_deadline_counts_from_when_the_renewal_was_sent(world):
    member = await world.join("a", trouble={"verb": "create", "back_s": 4})
    await world.clock.advance(4)
    assert 4 == member.led_at
    member.suffers(refusal=AWAY, times=10**6)
    await world.clock.advance(5.9)
    assert member.leads()
    await world.clock.advance(0.1)

    assert not member.leads()


async def test_a_stalled_loop_leads_no_more_though_no_timer_ran(world):
    member = await world.join("a")
    world.clock._now += 9.9
    assert member.leads()
    world.clock._now += 0.1
    assert not member.leads()


async def test_after_a_stall_beyond_the_deadline_nothing_is_written(world):
    """Another replica may hold the lease, so it is not even read."""
    member = await world.join("a")
    await world.clock.advance(1)
    member.stalls.stall(11)
    await world.clock.advance(30)

    assert "lease kube-system/kubestow was not renewed within 10 s" == member.why_lost
    assert ["get", "create"] == [verb for verb, _ in member.line.sent]


async def test_an_answer_that_a_stall_made_late_is_no_renewal(world):
    member = await world.join("a")
    member.suffers(verb="patch", back_s=1)
    await world.clock.advance(2.5)
    member.stalls.stall(20)
    await world.clock.advance(60)

    assert "lease kube-system/kubestow was renewed too late" == member.why_lost
    assert not member.leads()


# -- giving it back ----------------------------------------------------------------------------------------------------


async def test_a_leader_that_lost_the_lease_does_not_release_it(world):
    member = await world.join("a")
    member.suffers(refusal=AWAY, times=10**6)
    await world.clock.advance(20)
    member.line.troubles.clear()
    recorded = len(member.line.sent)
    await member.leave()

    assert ("a", recorded) == (world.spec()["holderIdentity"], len(member.line.sent))


@pytest.mark.parametrize(
    ("trouble", "holder"),
    [
        pytest.param({"verb": "patch", "refusal": Conflict("x", status=409)}, "", id="a renewal came in between"),
        pytest.param({"refusal": AWAY, "times": 10**6}, "a", id="the server is away"),
        pytest.param({"there_s": NEVER_S, "times": 10**6}, "a", id="the server hangs"),
        pytest.param({"verb": "patch", "refusal": NO, "times": 10**6}, "a", id="the permission was taken away"),
    ],
)
async def test_trouble_while_giving_it_back(world, trouble, holder):
    member = await world.join("a")
    member.suffers(**trouble)
    begun = world.clock.now()
    await member.leave()

    assert holder == world.spec()["holderIdentity"]
    assert max(sent_at for _, sent_at in member.line.sent) - begun < 10


async def test_a_standby_that_leaves_writes_nothing(world):
    """Not even a read is needed."""
    world.put("b")
    member = await world.join("a")
    before = len(member.line.sent)
    await member.leave()

    assert ("b", before) == (world.spec()["holderIdentity"], len(member.line.sent))


async def test_a_candidate_that_leaves_gives_back_what_it_may_have_got(world):
    """The answer of its creation never came."""
    member = await world.join("a", trouble={"verb": "create", "refusal": LOST, "is_done": True})
    await member.leave()

    assert "" == world.spec()["holderIdentity"]


# -- the watchdog ------------------------------------------------------------------------------------------------------


async def test_the_watchdog(world):
    """Upstream's: 20 s beyond the lease. Neither a standby nor one that resigned is meant."""
    leader, standby, left = await world.join("a"), await world.join("b"), await world.join("c", namespace="default")
    await left.leave()
    leader.task.cancel()  # as if it hung
    await world.clock.advance(0)
    assert not leader.elector.is_overdue()
    leader.elector._renewed_at = world.clock.now()
    await world.clock.advance(35)
    assert not leader.elector.is_overdue()
    await world.clock.advance(0.1)

    assert [True, False, False] == [member.elector.is_overdue() for member in (leader, standby, left)]


OWN = ("kube-system", "kubestow")
CHART = {"namespace": "stow", "name": "kubestow"}


def lease(renewed_s: float = 0.0, *, holder: str = "pod_1", duration_s: int = 15, **more: Any) -> dict[str, Any]:
    """One of the chart, which serves `kubestow`, unless `more` says otherwise."""
    marks = {"labels": {LABEL: "true"}, "annotations": {NAMES: more.pop("names", "kubestow")}}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": micros(1.7e9 + renewed_s)}
    return {"metadata": CHART | more | marks, "spec": spec}


LEASES = re.compile(r"/apis/coordination\.k8s\.io/v1(?:/namespaces/([a-z-]+))?/leases")


class Listed(ScriptedTransport):
    """Answers each list with what `leases` returns then, as far as namespace and limit of the list go."""

    def __init__(self, leases: Callable[[], list[Any]]) -> None:
        super().__init__()
        self.leases = leases
        self.errors: list[ApiError | None] = []
        """Of the next lists of each namespace; None lets one be answered."""
        self.listed: list[str] = []
        """The namespaces of the lists so far; "" is all."""
        self.forbidden: set[str] = set()

    async def get(self, path: str, **more: Any) -> bytes:
        found = LEASES.fullmatch(path)
        assert found is not None
        assert more["query"]["labelSelector"] == LABEL
        namespace = found[1] or ""
        self.listed.append(namespace)
        if namespace in self.forbidden:
            raise Forbidden("no")
        number = self.listed.count(namespace)
        if number <= len(self.errors) and (error := self.errors[number - 1]) is not None:
            raise error
        leases = sorted(filter(lambda lease: namespace in ("", _namespace(lease)), self.leases()), key=_namespace)
        page = leases[: int(more["query"]["limit"])]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": page})


def _namespace(lease: Any) -> str:
    """Return the namespace of a Lease; "" for what is none."""
    metadata = lease.get("metadata") if isinstance(lease, dict) else None
    return str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""


class Check:
    """One check on virtual time."""

    def __init__(self, leases: Callable[[VirtualClock], list[Any]], **more: Any) -> None:
        self.clock = VirtualClock()
        self.transport = Listed(lambda: leases(self.clock))
        settings = {"names": {"kubestow", "second"}, "own": OWN} | more
        self.others = OtherLeases(self.transport, self.clock, **settings)

    async def lasts_s(self, limit_s: float = 100.0) -> float:
        """Run it, and return how long it took. Raises what it raises."""
        checking = asyncio.ensure_future(self.others.check())
        await self.clock.settle()
        while not checking.done() and self.clock.now() < limit_s:
            await self.clock.advance(1)
        await checking
        return self.clock.now()


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person runs it, not a pod."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    "leases",
    [
        pytest.param([], id="no Lease"),
        pytest.param([lease(namespace="kube-system")], id="our own, held by another replica"),
        pytest.param([lease(names="other")], id="another scheduler name"),
        pytest.param([lease(names="")], id="no scheduler name"),
        pytest.param([lease(holder="")], id="given back"),
        pytest.param([7, {"metadata": 1}, {"metadata": {}}], id="what is no Lease"),
    ],
)
async def test_what_is_no_other_scheduler_costs_two_lists(leases: list[Any]) -> None:
    check = Check(lambda _: leases)

    assert await check.lasts_s() == 0.0
    assert check.others.remark == ""
    assert sorted(check.transport.listed) == ["", "kube-system"]


@pytest.mark.parametrize("skew_s", [-86400, 0, 86400], ids=["a day behind", "clocks agree", "a day ahead"])
async def test_a_lease_that_is_renewed_has_a_live_holder(skew_s: float) -> None:
    check = Check(lambda clock: [lease(clock.now() // 2 * 2 + skew_s, names="kubestow,third")])

    with pytest.raises(AnotherScheduler) as raised:
        await check.lasts_s()

    assert str(raised.value) == (
        "Lease stow/kubestow is held by pod_1, which serves kubestow; "
        "stop one of them, give them different names, or start with --force"
    )
    assert check.clock.now() <= 4.0


@pytest.mark.parametrize(
    ("leases", "at_least_s", "at_most_s"),
    [
        pytest.param(lambda _: [lease()], 15, 17, id="not renewed within its duration"),
        pytest.param(lambda _: [lease(9e8)], 15, 17, id="not renewed, though its time is in the future"),
        pytest.param(lambda _: [lease(duration_s=3600)], 60, 62, id="a minute at most"),
        pytest.param(lambda _: [lease(duration_s=-5)], 0, 2, id="a duration that is none"),
        pytest.param(lambda clock: [lease(holder="" if clock.now() > 3 else "pod_1")], 4, 5, id="released later"),
        pytest.param(lambda clock: [] if clock.now() > 3 else [lease()], 4, 5, id="deleted later"),
    ],
)
async def test_a_lease_whose_holder_is_dead_stops_nothing(
    leases: Callable[[VirtualClock], list[Any]], at_least_s: float, at_most_s: float
) -> None:
    assert at_least_s <= await Check(leases).lasts_s() <= at_most_s


@pytest.mark.parametrize(
    ("namespace", "own", "is_believed"),
    [
        pytest.param("tenant", OWN, False, id="a tenant's namespace: only reported"),
        pytest.param("kube-system", ("stow", "kubestow"), True, id="kube-system"),
        pytest.param("stow", ("stow", "another"), True, id="the namespace of our own"),
        pytest.param("tenant", None, False, id="a tenant's, without election"),
        pytest.param("kube-system", None, True, id="kube-system, without election"),
    ],
)
async def test_in_a_pod_only_leases_that_no_tenant_writes_are_believed(
    monkeypatch: pytest.MonkeyPatch, namespace: str, own: tuple[str, str] | None, is_believed: bool
) -> None:
    """Else a user with write access to Leases in one namespace could keep the scheduler from starting."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    check = Check(lambda clock: [lease(clock.now() // 2, namespace=namespace)], own=own)

    if is_believed:
        with pytest.raises(AnotherScheduler):
            await check.lasts_s()
    else:
        assert await check.lasts_s() == 0.0
    remark = "other Leases name our scheduler names, and are not trusted; number: 1"
    assert check.others.remark == ("" if is_believed else remark), "a public page names no object"


@pytest.mark.parametrize("is_in_pod", [True, False])
@pytest.mark.parametrize("namespace", ["kube-system", "stow"])
async def test_no_number_of_leases_of_a_tenant_hides_one_that_is_believed(
    monkeypatch: pytest.MonkeyPatch, namespace: str, is_in_pod: bool
) -> None:
    """The tenant's namespace comes first in a list of all namespaces, and fills its page."""
    if is_in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    tenants = [lease(namespace="a-tenant", name=f"l{at}") for at in range(500)]
    check = Check(lambda clock: [*tenants, lease(clock.now() // 2, namespace=namespace)], own=("stow", "another"))

    with pytest.raises(AnotherScheduler, match=f"Lease {namespace}/kubestow is held by pod_1"):
        await check.lasts_s()
    assert check.clock.now() <= 4.0
    assert check.others.remark.endswith("not trusted; number: 50") is is_in_pod


async def test_only_the_namespaces_of_possible_holders_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    tenants = [lease(namespace="a-tenant", name=f"l{at}") for at in range(50)]
    check = Check(lambda _: [*tenants, lease()], own=("stow", "another"))

    await check.lasts_s()

    assert sorted(check.transport.listed[:3]) == ["", "kube-system", "stow"]
    assert set(check.transport.listed[3:]) == {"stow"}


async def test_leases_elsewhere_that_cannot_be_listed_hide_none_that_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A role of the own namespace is enough for what counts."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    check = Check(lambda clock: [lease(clock.now() // 2)], own=("stow", "another"))
    check.transport.forbidden = {"", "kube-system"}

    with pytest.raises(AnotherScheduler):
        await check.lasts_s()


async def test_force_continues_although_the_holder_is_alive() -> None:
    check = Check(lambda clock: [lease(clock.now() // 2)], is_forced=True)

    assert await check.lasts_s() <= 4.0


@pytest.mark.parametrize(("errors", "lasts_s", "is_found"), [
    pytest.param([Forbidden("no")], 0.0, False, id="without the right to list leases: at once"),
    pytest.param([Unavailable("away")] * 3, 4.0, False, id="without an answer: after three tries"),
    pytest.param([Unavailable("away")] * 2, None, True, id="with an answer to the third try"),
    pytest.param([None, *[Unavailable("away")] * 3], None, True,
        id="without an answer for some time while it is looked at"),
])  # fmt: skip
async def test_leases_that_cannot_be_listed_stop_nothing(
    errors: list[ApiError | None], lasts_s: float | None, is_found: bool
) -> None:
    check = Check(lambda clock: [lease(clock.now() // 2)])
    check.transport.errors = list(errors)

    if is_found:
        with pytest.raises(AnotherScheduler):
            await check.lasts_s()
    else:
        assert await check.lasts_s() == lasts_s
