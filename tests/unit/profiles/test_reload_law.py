"""Law: after any changes of profiles nothing stays reserved, and the newest profile decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import event as noted, example, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core.errors import Unavailable
from scheduler.profiles.reconciler import IN_FORCE
from tests.examples import SLOW_SHARE, examples
from tests.support import permit
from tests.unit.profiles.reloads import OURS, Reloaded, witness

PODS = tuple("abcdef")
_FLUSH_S = 360.0
"""The flush of pods that have waited for five minutes (docs/spec/core.md §1.11)."""
SOME = st.sets(st.sampled_from(PODS), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(PODS)),
    st.tuples(st.just("gone"), st.sampled_from(PODS)),
    st.tuples(st.just("wish"), st.fixed_dictionaries({"refuses": SOME, "gates": SOME, "waits": SOME})),
    st.tuples(st.just("mistake"), st.none()),
    st.tuples(st.just("file"), st.none()),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("permit"), st.tuples(st.sampled_from(PODS), st.booleans())),
    st.tuples(st.just("later"), st.sampled_from((0.5, 3.0, 20.0))),
    st.tuples(st.just("step"), st.none()),
)


class History(Reloaded):
    """One history. `end` runs the scheduler until it is idle."""

    async def take(self, what: str, with_: Any) -> None:
        await getattr(self, f"_{what}")(with_)
        self.held_once()

    def held_once(self) -> None:
        """No pod is held by two instances."""
        holders = [uid for one in self.history.made for uid in one.held]
        assert len(holders) == len(set(holders))

    def _assumed(self) -> list[PodInfo]:
        uids = [f"uid-{name}" for name in PODS]
        return [info for uid in uids if (info := self.cluster.get(uid)) is not None and self.cluster.is_assumed(uid)]

    async def _pod(self, name: str) -> None:
        if name not in self.seen and f"uid-{name}" not in {info.uid for info in self._assumed()}:
            self.pod(name)

    async def _gone(self, name: str) -> None:
        if name in self.seen:
            self.gone(name)

    async def _wish(self, args: dict[str, set[str]]) -> None:
        self.wish(witness(**{key: sorted(names) for key, names in args.items()}))

    async def _mistake(self, _: None) -> None:
        self.wish({"plugins": {"score": {"enabled": [{"name": "Unknown"}]}}})

    async def _file(self, _: None) -> None:
        self.wish(None)

    async def _hold(self, is_held: bool) -> None:
        if self.writer.hold is not None:
            self.writer.hold.set()
        self.writer.hold = asyncio.Event() if is_held else None

    async def _fail(self, _: None) -> None:
        def down(_pod: object, _node: object) -> None:
            self.writer.on_bind = None
            raise Unavailable("down")

        self.writer.on_bind = down

    async def _permit(self, answer: tuple[str, bool]) -> None:
        name, allows = answer
        permits = self.parts.binder.permits
        if allows:
            permit.allow(permits, f"uid-{name}", "Witness")
        else:
            permits.reject(f"uid-{name}", "Witness", "no")

    async def _later(self, seconds: float) -> None:
        self.clock.move(seconds)
        await self.settle()

    async def _step(self, _: None) -> None:
        await self.parts.loop.step()

    async def end(self) -> None:
        """Release all holds, and let time pass."""
        await self._hold(False)
        self.writer.on_bind = None
        await self._let_go()
        await self.later(_FLUSH_S)  # no event wakes a pod that Permit has rejected
        await self._let_go()

    async def _let_go(self) -> None:
        for _ in range(3):
            for name in PODS:
                await self._permit((name, True))
            await self.later(30)


@settings(deadline=None, max_examples=examples(150, share=SLOW_SHARE))
@given(steps=st.lists(STEPS, max_size=40))
@example(
    steps=[
        ("pod", "a"),
        ("wish", {"refuses": set(), "gates": set(), "waits": {"a"}}),
        ("later", 0.5),
        ("permit", ("a", False)),
    ]
)
def test_nothing_stays_reserved_and_the_newest_profile_decides(steps: list[tuple[str, Any]]) -> None:
    """In the end no plugin holds a bound pod, and the profile in force has refused or gated every other pod."""

    async def history() -> None:
        with pytest.MonkeyPatch.context() as patch:
            sched = History(patch)
            sched.node("n1", cpu="64")
            for what, with_ in steps:
                await sched.take(what, with_)
            await sched.end()
            newest, bound = sched.witness(), {key.partition("/")[2] for key, _ in sched.writer.binds}
            held = {uid for one in sched.history.made for uid in one.held}
            assert (held, len(sched.parts.binder), sched.parts.queue.in_flight_events()) == (set(), 0, {})
            verdict = sched.parts.reloading.verdicts.get(OURS)
            assert (verdict is None) == (OURS not in sched.wishes)
            if verdict is not None and verdict.reason == IN_FORCE:
                assert verdict.in_force == sched.wishes[OURS].generation
            for name, place in sched.places().items():
                expected = {"unschedulable": "refuses", "gated": "gates"}
                assert name in newest.args[expected[place]], (name, place)
                if place == "unschedulable":
                    assert sched.history.tried[name] is newest
            waiting = sched.places().keys()
            assert {name for name in sched.seen if name not in bound} <= waiting
            noted(f"{len(waiting)} wait, {len(bound)} are bound, {len(sched.history.made)} instances")

    asyncio.run(history())
