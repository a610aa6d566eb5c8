"""Faults: the requests that they affect, their number, and the responses."""

import json
import random

import aiohttp
import pytest

from simulator.apiserver import ApiServer, Fault, Faults, Request, WatchFault
from simulator.apiserver.faults import End
from simulator.builders.core import pod
from tests.support.clock import VirtualClock

BINDING = Request("create", "pods", "default", "a", "binding")


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        pytest.param(Fault(status=500), True, id="an empty rule strikes everything"),
        pytest.param(
            Fault(verb="create", resource="pods", subresource="binding", status=500), True, id="all fields fit"
        ),
        pytest.param(Fault(subresource="", status=500), False, id="the object itself, not its subresources"),
        pytest.param(Fault(name="b", status=500), False, id="another name"),
        pytest.param(Fault(verb="patch", status=500), False, id="another verb"),
        pytest.param(Fault(probability=0, status=500), False, id="never by chance"),
    ],
)
def test_rules(fault: Fault, strikes: bool) -> None:
    faults = Faults(random.Random(1))
    faults.add(fault)
    assert (faults.strike(BINDING) is fault) is strikes
    assert fault.hits == int(strikes)


def test_a_rule_strikes_a_limited_number_of_times() -> None:
    faults = Faults(random.Random(1))
    first, second = faults.add(Fault(status=500, times=2)), faults.add(Fault(status=409))
    assert [faults.strike(BINDING) for _ in range(4)] == [first, first, second, None]
    assert (first.hits, second.hits) == (2, 1)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
async def test_a_status_is_answered_before_anything_happens(status: int, reason: str) -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="create", status=status, retry_after_s=7))
        async with http.post("/api/v1/namespaces/default/pods", json=pod("a").obj()) as response:
            body = await response.json()
        assert (response.status, body["reason"], body["code"]) == (status, reason, status)
        assert response.headers.get("Retry-After") == ("7" if status == 429 else None)
        assert server.objects("pods") == []


@pytest.mark.parametrize(("reset", "pods"), [("before", 0), ("after", 1)])
async def test_a_lost_connection_may_or_may_not_have_written(reset: str, pods: int) -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="create", reset="before" if reset == "before" else "after"))
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.post("/api/v1/namespaces/default/pods", json=pod("a").obj())
        assert len(server.objects("pods")) == pods
        assert server.requests() == {"create pods 0": 1}
        async with http.get("/api/v1/pods") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("end", "last"),
    [
        pytest.param("end", "", id="the response ends"),
        pytest.param("gone", "ERROR", id="an ERROR with 410"),
        pytest.param("reset", "reset", id="a reset"),
    ],
)
async def test_watches_that_live_for_seconds(end: End, last: str) -> None:
    """Queued events are lost."""
    clock = VirtualClock()
    async with ApiServer(clock=clock) as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="watch", watch=WatchFault((2.0, 3.0), (end,), late=1.0, late_s=(9.0, 9.0))))
        server.create("pods", pod("a").obj())
        async with http.get("/api/v1/pods?watch=true") as response:
            await clock.advance(1.9)
            assert not response.content.is_eof()
            await clock.advance(1.2)
            try:
                said = (await response.content.read()).decode()
            except aiohttp.ClientError:
                said = "reset"
    assert (json.loads(said)["type"] if said.startswith("{") else said) == last


async def test_a_false_body_is_answered() -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.create("pods", pod("a").obj())
        server.faults.add(Fault(verb="list", resource="pods", body=b"{}"))
        for wanted in (False, True):
            async with http.get("/api/v1/pods") as response:
                assert (response.status, "items" in await response.json()) == (200, wanted)


async def test_a_restored_server_assigns_versions_again() -> None:
    server = ApiServer()
    server.create("pods", pod("a").obj())
    backup = server.backup()
    written = server.create("pods", pod("b").obj())["metadata"]["resourceVersion"]
    server.delete("pods", "a", grace_s=0)
    server.restore(backup)
    assert [each["metadata"]["name"] for each in server.list("pods")] == ["a"]
    assert server.create("pods", pod("c").obj())["metadata"]["resourceVersion"] == written
