"""A Binding that the API server could not carry out is sent again, as from 1.37 on (docs/spec/changes-1.37.md §1.7)."""

from __future__ import annotations

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.config.load import default
from scheduler.config.types import Configuration
from scheduler.core.errors import ApiError, Conflict, Forbidden, Unavailable
from scheduler.core.feature_gates import defaults
from tests.unit.harness import SchedulerHarness, manifest, typed

IN_1_37 = default(feature_gates=defaults("1.37"))
AWAY, BROKEN, UNREACHABLE = (Unavailable("no", status=status) for status in (503, 500, 0))


async def bound_with(config: Configuration, *errors: ApiError, server: str = "") -> SchedulerHarness:
    """A binding whose first tries fail with these errors; `server` is the node on which a read then finds the pod."""
    sched = SchedulerHarness(config)
    left = list(errors)

    def answer(pod: Pod, node_name: str) -> None:
        if left:
            raise left.pop(0)

    sched.writer.on_bind = answer
    sched.node("n1")
    sched.pod("p")
    sched.writer.server["default/p"] = typed(manifest("p", on=server))
    await sched.settle()
    for _ in errors:
        await sched.later(0.26)
    return sched


@pytest.mark.parametrize(
    ("config", "errors", "binds", "place"),
    [
        pytest.param(Configuration(), [AWAY], 1, "error backoff", id="1.36 does not retry"),
        pytest.param(IN_1_37, [AWAY], 2, None, id="503 is retried"),
        pytest.param(IN_1_37, [BROKEN], 2, None, id="500 is retried"),
        pytest.param(IN_1_37, [UNREACHABLE], 2, None, id="a refused connection is retried"),
        pytest.param(IN_1_37, [AWAY, BROKEN, UNREACHABLE], 4, None, id="the fourth try succeeds"),
        pytest.param(IN_1_37, [AWAY] * 4, 4, "error backoff", id="there is no fifth try"),
        pytest.param(IN_1_37, [Unavailable("no", status=504)], 1, "error backoff", id="504 is not retried"),
        pytest.param(IN_1_37, [Forbidden("no")], 1, "error backoff", id="a missing permission is not retried"),
        pytest.param(IN_1_37, [Conflict("odd")], 1, "error backoff", id="a conflict without a cause is not retried"),
    ],
)
async def test_a_binding_is_retried(
    config: Configuration, errors: list[ApiError], binds: int, place: str | None
) -> None:
    """The pauses are 10, 50 and 250 ms. The node stays the same, and the pod stays assumed."""
    sched = await bound_with(config, *errors)

    assert sched.writer.binds == [("default/p", "n1")] * binds
    assert sched.places().get("p") == place
    assert sched.cluster.is_assumed("uid-p") == (place is None)


async def test_a_retry_of_a_binding_that_was_carried_out_gets_a_conflict() -> None:
    """The pod is read, and it is on our node."""
    sched = await bound_with(IN_1_37, BROKEN, Conflict("already assigned"), server="n1")

    assert len(sched.writer.binds) == 2
    assert [e.reason for e in sched.recorder.events] == ["Scheduled"]


async def test_pauses_between_the_tries_of_a_binding() -> None:
    sched = SchedulerHarness(IN_1_37)
    sent_at = []

    def answer(pod: Pod, node_name: str) -> None:
        sent_at.append(round(sched.clock.now() - 1000, 3))
        raise AWAY

    sched.writer.on_bind = answer
    sched.node("n1")
    sched.pod("p")
    await sched.settle()
    for pause_s in (0.01, 0.05, 0.25):
        await sched.later(pause_s + 1e-9)

    assert sent_at == [0, 0.01, 0.06, 0.31]
