"""Never two leaders, over histories of faults, stalls, departures and crashes; and always one in the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.core.errors import Ambiguous, Conflict, Unavailable
from scheduler.kube.leader_election import LeaseTiming
from tests.examples import SLOW_SHARE, examples
from tests.unit.kube.leases import NEVER_S, LeaseWorld, Member

TIMINGS = [LeaseTiming(), LeaseTiming(3.0, 2.0, 0.5), LeaseTiming(11.0, 10.9, 2.0), LeaseTiming(15.5, 15.2, 2.0)]
TICK_S = 1.0


@dataclass(frozen=True)
class Step:
    """Something happens to one of the members, then time passes."""

    who: int
    what: str
    then_s: float
    trouble: dict[str, Any]
    stall_s: float


TROUBLES = st.fixed_dictionaries(
    {"verb": st.sampled_from(["", "get", "create", "patch"]), "times": st.integers(1, 6)},
    optional={
        "refusal": st.sampled_from([Ambiguous("lost"), Unavailable("away"), Conflict("conflict", status=409)]),
        "is_done": st.booleans(),
        "there_s": st.sampled_from([0.1, 1.0, 4.0, 9.0, 14.0, 30.0, NEVER_S]),
        "back_s": st.sampled_from([0.1, 1.0, 4.0, 9.0, 14.0, 30.0]),
    },
)
STEPS = st.builds(
    Step,
    who=st.integers(0, 1),
    what=st.sampled_from(["nothing", "trouble", "trouble", "stall", "leave", "crash", "label"]),
    then_s=st.sampled_from([0.0, 1.0, 2.0, 7.0, 11.0, 16.0, 30.0]),
    trouble=TROUBLES,
    stall_s=st.sampled_from([1.0, 8.0, 9.9, 12.0, 15.1, 25.0]),
)


class History:
    """Two members at a time; a member that ends is followed by another process with another name."""

    def __init__(self, timing: LeaseTiming) -> None:
        self.world = LeaseWorld()
        self.timing = timing
        self.now_on = [self._member("p0"), self._member("p1")]
        self.born = 2
        self.leaving: list[asyncio.Future[None]] = []

    def _member(self, name: str) -> Member:
        """One that looks around at the very moment it wins."""
        member = Member(self.world.server, self.world.clock, name, timing=self.timing)
        won = member.elector._won

        def seen(*args: Any) -> bool:
            is_won = won(*args)
            self.look()
            return is_won

        member.elector._won = seen  # type: ignore[assignment, method-assign]
        self.world.members.append(member)
        return member

    def look(self) -> None:
        """Check the law. Crashed members count too, because a process that is cut off does not know it."""
        leaders = [member.name for member in self.world.members if member.leads()]
        assert len(leaders) <= 1, f"{leaders} lead at {self.world.clock.now()}"

    async def go(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            await self.world.clock.advance(TICK_S)
            self.look()
            for at, member in enumerate(self.now_on):
                if member.task.done():
                    assert not member.leads()
                    assert member.why_lost
                    self.replace(at)

    def replace(self, at: int) -> None:
        self.now_on[at] = self._member(f"p{self.born}")
        self.born += 1

    async def apply(self, step: Step) -> None:
        member = self.now_on[step.who]
        match step.what:
            case "trouble":
                member.suffers(**step.trouble)
            case "stall":
                member.stalls.stall(step.stall_s)
            case "crash":
                member.task.cancel()
                self.replace(step.who)
            case "leave":
                member.task.cancel()
                await asyncio.gather(member.task, return_exceptions=True)
                self.replace(step.who)
                self.leaving.append(asyncio.ensure_future(member.elector.resign()))
            case "label" if self.world.server.list("leases"):
                patch = {"metadata": {"labels": {"n": str(self.born)}}}
                self.world.server.patch("leases", "kubestow", patch, namespace="kube-system")
        await self.go(step.then_s)


@pytest.mark.parametrize("timing", TIMINGS, ids=["upstream's", "short", "hardly any margin", "fractions of a second"])
@settings(max_examples=examples(25, share=SLOW_SHARE), deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
async def test_never_two_and_one_in_the_end(timing: LeaseTiming, steps: list[Step]) -> None:
    """Clocks advance equally; everything else may go wrong."""
    history = History(timing)
    try:
        for step in steps:
            await history.apply(step)
        for member in history.now_on:
            member.line.troubles.clear()
        await history.go(2 * timing.lease_duration_s + 60)

        assert [True] == [member.leads() for member in history.now_on if member.leads()]
        assert all(leaving.done() for leaving in history.leaving)
    finally:
        await history.world.end()
