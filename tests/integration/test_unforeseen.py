"""An error that no code path expects costs its own object or pause; the daemon goes on, counts it and shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from scheduler import binding
from scheduler.api.decode import Delta
from scheduler.config.types import LeaderElection
from scheduler.eventhandlers import pods_and_nodes as intake
from scheduler.kube import events as recorder, leader_election as lease, reflector
from scheduler.server import cache_dump as cachedump
from simulator.apiserver import ApiServer
from tests.integration.daemon import Rig, rig_on

ELECTION = LeaderElection(leader_elect=True)


class Mistake:
    """Replaces a method, and raises at its first calls that match."""

    def __init__(self, times: int, concerns: Callable[..., bool] = lambda *_: True) -> None:
        self.times = times
        self._concerns = concerns

    def around(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        original = getattr(owner, name)

        def wrong(*args: Any, **more: Any) -> Any:
            if self.times and self._concerns(*args):
                self.times -= 1
                raise RuntimeError(f"{name} has a mistake")
            return original(*args, **more)

        monkeypatch.setattr(owner, name, wrong)


def is_about(name: str) -> Callable[..., bool]:
    """Return whether a delta, or a binding, is about the pod of this name."""

    def concerns(_self: object, about: Any, *_rest: object) -> bool:
        obj: Any = (about.new or about.old) if isinstance(about, Delta) else about.assumed.pod
        return bool(obj.metadata.name == name)

    return concerns


def errors(cluster: Rig) -> dict[str, float]:
    """Return part → errors, of the parts that had any."""
    return {part: value for (part,), value in cluster.metric("kubestow_unforeseen_errors_total").items() if value}


@pytest.mark.parametrize(
    ("owner", "method", "mistake", "part"),
    [
        pytest.param(reflector.Reflector, "_follow", Mistake(3), "informer", id="a reflector before its first picture"),
        pytest.param(
            reflector.Reflector,
            "_read",
            Mistake(2, lambda of, _lines: of.spec.name == "Pod"),
            "informer-pods",
            id="the reflector of pods in its stream",
        ),
        pytest.param(
            intake.PodAndNodeHandlers, "_pod_delta", Mistake(1, is_about("q")), "event-handler", id="an event handler"
        ),
        pytest.param(binding.Binder, "_bind", Mistake(2, is_about("p")), "binding", id="a binding"),
        pytest.param(recorder.EventRecorder, "_send", Mistake(2), "event-recorder", id="the event recorder"),
        pytest.param(lease.Elector, "_renew_or_take", Mistake(2), "leader-election", id="the election"),
    ],
)
async def test_a_mistake_in_one_part_costs_a_pause(monkeypatch, owner, method, mistake, part) -> None:
    times = mistake.times
    mistake.around(monkeypatch, owner, method)
    try:
        async with ApiServer() as server, rig_on(server, leader_election=ELECTION) as cluster:
            cluster.node("n1")
            cluster.pod("q")
            cluster.pod("p")
            await cluster.until(lambda: mistake.times == 0, "the mistake was never made")
            cluster.pod("late")
            await cluster.bound("late", "p", "q")
            text = await cluster.shows(lambda status, _: status == 200)

            counted = {key: value for key, value in errors(cluster).items() if key.startswith(part)}
            assert times == sum(counted.values()), counted
            assert cluster.daemon.failure is None
            assert re.search(rf"\[\+\]unforeseen-errors ok \({part}[a-z-]*: RuntimeError \d+ s ago", text), text
    finally:
        mistake.times = times


async def test_a_page_that_fails_costs_its_request(monkeypatch) -> None:
    Mistake(1).around(monkeypatch, cachedump, "cache_page")  # type: ignore[arg-type]
    monkeypatch.setattr("scheduler.daemon.introspection.cache_page", cachedump.cache_page)
    async with ApiServer() as server, rig_on(server) as cluster:
        cluster.node("n1")
        cluster.pod("p")
        await cluster.bound("p")
        status, text = await cluster.get("/debug/cache")
        again, _ = await cluster.get("/debug/cache")

        assert (500, 200) == (status, again)
        assert "500 internal server error\n" == text
        assert {"endpoint": 1} == errors(cluster)


async def test_a_check_that_fails_is_a_failed_check(monkeypatch) -> None:
    async with ApiServer() as server, rig_on(server) as cluster:
        await cluster.until(cluster.daemon.idle, "never synced")
        monkeypatch.setattr(cluster.daemon.mirrors, "lag", lambda _: 1 / 0)
        status, text = await cluster.get("/readyz")

        assert 500 == status
        assert "[-]informer-sync-pods failed: the check raised ZeroDivisionError" in text
        assert "[+]shutdown ok" in text
