"""Another Kubestow that serves the same scheduler names is noticed before this one acts, without comparing clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.meta import micros
from scheduler.core.errors import ApiError, Forbidden, Unavailable
from scheduler.kube.leader_election import AnotherScheduler, OtherLeases
from scheduler.kube.writes.api_writer import LABEL, NAMES
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import ScriptedTransport

OWN = ("kube-system", "kubestow")
CHART = {"namespace": "stow", "name": "kubestow"}


def lease(renewed_s: float = 0.0, *, holder: str = "pod_1", duration_s: int = 15, **more: Any) -> dict[str, Any]:
    """One of the chart, which serves `kubestow`, unless `more` says otherwise."""
    marks = {"labels": {LABEL: "true"}, "annotations": {NAMES: more.pop("names", "kubestow")}}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": micros(1.7e9 + renewed_s)}
    return {"metadata": CHART | more | marks, "spec": spec}


class Listed(ScriptedTransport):
    """Answers each list with what `leases` returns then."""

    def __init__(self, leases: Callable[[], list[Any]]) -> None:
        super().__init__()
        self.leases = leases
        self.errors: list[ApiError | None] = []
        """Of the next lists; None lets one be answered."""

    async def get(self, path: str, **more: Any) -> bytes:
        assert (path, more["query"]["labelSelector"]) == ("/apis/coordination.k8s.io/v1/leases", LABEL)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": self.leases()})


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
async def test_what_is_no_other_scheduler_costs_one_list(leases: list[Any]) -> None:
    check = Check(lambda _: leases)

    assert await check.lasts_s() == 0.0
    assert check.others.remark == ""


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
    assert check.others.remark == ("" if is_believed else "Leases that name our scheduler names: tenant/kubestow")


async def test_force_continues_although_the_holder_is_alive() -> None:
    check = Check(lambda clock: [lease(clock.now() // 2)], is_forced=True)

    assert await check.lasts_s() <= 4.0


@pytest.mark.parametrize(
    ("errors", "lasts_s", "is_found"),
    [
        pytest.param([Forbidden("no")], 0.0, False, id="without the right to list leases: at once"),
        pytest.param([Unavailable("away")] * 3, 4.0, False, id="without an answer: after three tries"),
        pytest.param([Unavailable("away")] * 2, None, True, id="with an answer to the third try"),
        pytest.param(
            [None, *[Unavailable("away")] * 3], None, True, id="without an answer for some time while it is looked at"
        ),
    ],
)
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
