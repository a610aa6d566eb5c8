"""The API server's version, and the remark while it is not the emulated one."""

import asyncio

import pytest
from structlog.testing import capture_logs

from scheduler.core.errors import Forbidden, Unavailable
from scheduler.core.feature_gates import VERSIONS
from scheduler.kube.server_version import AGAIN_S, ServerVersion, version_remark
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import Answer, ScriptedTransport

NEWEST = VERSIONS[-1]


def version(text: str) -> bytes:
    return b'{"gitVersion": "%s"}' % text.encode()


@pytest.mark.parametrize(
    ("server", "emulated", "remark"),
    [
        pytest.param("v1.36.3", "1.36", "", id="the same"),
        pytest.param("v1.38.0-beta.0", "1.38", "", id="the same, before its release"),
        pytest.param("v1.38.1+k3s1", "1.38", "", id="of a distribution"),
        pytest.param("v1.34.9", "1.36", "", id="older than all known: the oldest one was chosen at start"),
        pytest.param("", "1.36", "", id="unreadable"),
        pytest.param("devel", "1.36", "", id="no version: the default was chosen at start"),
        pytest.param(
            "v1.38.0",
            "1.37",
            "the API server is v1.38.0, but this process started as kube-scheduler 1.37",
            id="upgraded since the start",
        ),
        pytest.param(
            "v1.36.3",
            "1.37",
            "the API server is v1.36.3, but this process started as kube-scheduler 1.37",
            id="rolled back since the start",
        ),
        pytest.param(
            "v1.99.0",
            NEWEST,
            f"the API server is v1.99.0, newer than every known version: pods are placed as by {NEWEST}",
            id="newer than all known",
        ),
        pytest.param(
            "v2.0.0",
            "1.36",
            "the API server is v2.0.0, newer than every known version: pods are placed as by 1.36",
            id="upgraded beyond all known",
        ),
    ],
)
def test_the_remark(server: str, emulated: str, remark: str) -> None:
    assert version_remark(server, emulated) == remark


async def test_an_upgrade_under_a_running_daemon_is_noticed_and_logged_once() -> None:
    clock = VirtualClock()
    answers: list[Answer] = [
        Unavailable("connection refused"),  # the server restarts: the next request is a second later
        version("v1.38.0"),
        Forbidden("no"),
        version("v1.38.0"),
        version("v1.37.2"),
    ]
    transport = ScriptedTransport(answers)
    checked = ServerVersion(transport, clock, "1.37", "v1.37.2")
    with capture_logs() as logs:
        running = asyncio.ensure_future(checked.run())
        seen = []
        for _ in range(5):
            await clock.advance(AGAIN_S + 2)
            seen.append(checked.remark)
        running.cancel()
    upgraded = "the API server is v1.38.0, but this process started as kube-scheduler 1.37"
    assert [entry["remark"] for entry in logs] == [upgraded]
    assert [each for at, each in enumerate(seen) if at == 0 or seen[at - 1] != each] == [upgraded, ""]
    assert set(transport.paths("GET")) == {"/version"}
