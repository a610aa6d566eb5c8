"""Errors and objects that no code path expects cost their own object or pause; the daemon goes on and counts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest

from scheduler import binding
from scheduler.api.decode import Delta
from scheduler.config.types import LeaderElection
from scheduler.eventhandlers import pods
from scheduler.kube import events as recorder, leader_election as lease, reflector
from scheduler.kube.resources import POD, WATCHED_NOW, KindSpec
from scheduler.server import cache_dump as cachedump
from simulator.apiserver import GROUPS, LIKE_1_36, ApiServer
from tests.hostile import LARGE, SMALL, fields
from tests.integration.daemon import Rig, rig_on, until

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
            pods.PodHandlers,
            "apply",
            Mistake(1, is_about("q")),
            "event-handler",
            id="an event handler",
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
        monkeypatch.setattr(cluster.daemon.informers, "lag", lambda _: 1 / 0)
        status, text = await cluster.get("/readyz")

        assert 500 == status
        assert "[-]informer-sync-pods failed: the check raised ZeroDivisionError" in text
        assert "[+]shutdown ok" in text


# -- hostile objects of every watched kind, through each way by which a daemon comes to see them -----------------------


BOUND = {"schedulerName": "other", "nodeName": "n1", "nominatedNodeName": ""}


def hostile(spec: KindSpec) -> Iterator[tuple[str, bytes]]:
    """Yield each value once, in one field after the other, and each list and map with the largest number of elements that a server stores."""
    fixed = BOUND if spec is POD else {}
    made = list(fields(spec, name="NAME", **fixed))
    texts = [(field, value) for field, value in zip(cycle(made), [*SMALL.values(), *LARGE.values()], strict=False)]
    texts += [(field, field.many()) for field in made if field.item][:3]
    texts += [(field, LARGE["deep objects"]) for field in made if field.path in {".metadata.labels", ".spec"}]
    for number, (field, value) in enumerate(texts):
        name = f"h-{number}"
        raw = field.with_value(value).replace(b'"NAME"', b'"%b"' % name.encode())
        yield name, raw.replace(b'"uid-NAME"', b'"uid-%b"' % name.encode())
    deep = b'{"metadata":{"managedFields":[%b],"name":"h-skipped","namespace":"%b","uid":"u","resourceVersion":"1"}}'
    yield "h-skipped", deep % (LARGE["deep objects"], b"default" if spec.namespaced else b"")


def fill(server: ApiServer) -> int:
    stored = 0
    for spec in WATCHED_NOW:
        for name, raw in hostile(spec):
            server.store(spec.name, raw, name=name, namespace="default" if spec.namespaced else "")
            stored += 1
    return stored


def is_bound(server: ApiServer, name: str) -> bool:
    return bool(server.get("pods", name)["spec"].get("nodeName"))


@pytest.mark.parametrize(
    ("is_watched", "has_watch_list"),
    [
        pytest.param(False, False, id="in a list"),
        pytest.param(False, True, id="in the initial events of a watch"),
        pytest.param(True, True, id="in a watch"),
    ],
)
async def test_hostile_objects_cost_no_other_object_anything(is_watched: bool, has_watch_list: bool) -> None:
    server = ApiServer(served=(*LIKE_1_36, *GROUPS), watch_list=has_watch_list)
    if not is_watched:
        assert fill(server) > 500
    async with server, rig_on(server) as cluster:
        cluster.node("fine")
        if is_watched:
            await until(cluster.daemon.idle, lambda: "never synced")
            fill(server)
        cluster.pod("p", cpu="1")
        await until(lambda: is_bound(server, "p"), lambda: "p was never bound")
        informers = cluster.daemon.informers.reflectors
        await until(
            lambda: all(
                any(seen.key.endswith("h-skipped") for seen in informers[spec.name].store) for spec in WATCHED_NOW
            ),
            lambda: "not all objects were seen",
        )
        cluster.pod("late", cpu="1")
        await until(lambda: is_bound(server, "late"), lambda: "late was never bound")
        _, shown = await cluster.get("/debug/cache")

        assert {} == errors(cluster)
        assert cluster.daemon.failure is None
        assert all(informers[spec.name].stats.decode_errors for spec in WATCHED_NOW)
        assert '"unreadable"' in shown
