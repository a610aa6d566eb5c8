"""The status of a SchedulerProfile is told: on which condition, and what is made of the answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, NotFound, TooManyRequests
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.writes.api_writer import PROFILE_RULES
from scheduler.kube.writes.profiles import PROFILES, ProfileWriter
from tests.unit.kube.scripted import Answer, LeapingClock, ScriptedTransport

SEEN: dict[str, Any] = {"metadata": {"name": "kubestow", "uid": "u1", "resourceVersion": "7", "labels": {"a": "b"}}}
STATUS = {"observedGeneration": 3, "inForceGeneration": None}


def writer(*answers: Answer, leads: bool = True) -> tuple[ProfileWriter, ScriptedTransport]:
    transport, clock = ScriptedTransport(answers=list(answers)), LeapingClock()
    throttle = Throttle(clock, qps=-1, burst=1)
    return ProfileWriter(transport, throttle, clock, may_write=lambda: leads), transport


async def test_only_the_status_is_changed_and_only_of_this_very_state() -> None:
    """uid and resourceVersion as they were seen; the object as it is then is the answer."""
    now = SEEN | {"status": STATUS}
    write, transport = writer(msgspec.json.encode(now))

    assert await write.write_profile_status(SEEN, STATUS) == now

    (asked,) = transport.asked
    assert (
        asked.path == f"{PROFILES}/kubestow/status" == "/apis/kubestow.dev/v1alpha1/schedulerprofiles/kubestow/status"
    )
    assert (asked.method, asked.content_type) == ("PATCH", "application/merge-patch+json")
    before = {"uid": "u1", "resourceVersion": "7"}
    assert asked.body == {"metadata": before, "status": STATUS}
    assert [(rule.group, rule.resource, rule.verb) for rule in PROFILE_RULES] == [
        ("kubestow.dev", "schedulerprofiles/status", "patch")
    ]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Conflict("modified", status=409), id="somebody wrote"),
        pytest.param(NotFound("gone", status=404), id="gone"),
        pytest.param(Ambiguous("cut"), id="a lost answer"),
        pytest.param(TooManyRequests("busy", status=429, retry_after_s=1.0), id="a busy server"),
    ],
)
async def test_it_is_sent_once(error: ApiError) -> None:
    """Whoever asked for it looks at the object first."""
    write, transport = writer(error)

    with pytest.raises(type(error)):
        await write.write_profile_status(SEEN, STATUS)

    assert len(transport.asked) == 1


async def test_a_standby_sends_nothing() -> None:
    """It knows the same, and somebody else says it."""
    write, transport = writer(leads=False)

    with pytest.raises(Fenced):
        await write.write_profile_status(SEEN, STATUS)

    assert (transport.asked, write.may_write()) == ([], False)


@pytest.mark.parametrize("lacking", ["uid", "resourceVersion"])
async def test_without_anything_to_compare_nothing_is_sent(lacking: str) -> None:
    """An empty precondition is none."""
    write, transport = writer()

    with pytest.raises(Conflict):
        await write.write_profile_status({"metadata": SEEN["metadata"] | {lacking: ""}}, STATUS)

    assert transport.asked == []
