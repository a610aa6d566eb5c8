"""Groups on the page /ui: which are shown, and what is shown of their pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.cooperative import finish
from scheduler.explain.fixes import Steps
from scheduler.server.ui import groups as ui_groups
from scheduler.server.ui.answers import GroupRow
from scheduler.server.ui.groups import ROWS_MAX
from tests.page.sites import AtOnce, grouped, ui_data
from tests.unit.groups.test_groups_barrier import prepared
from tests.unit.harness import SchedulerHarness


def some(count: int, *, on: str = "") -> SchedulerHarness:
    """This many groups of one pod, and a group that waits."""
    sched = SchedulerHarness()
    sched.served()
    for at in range(count):
        sched.group(f"g{at:04}", 1)
        sched.pod(f"p{at}", on=on, schedulingGroup={"podGroupName": f"g{at:04}"})
    sched.group("z", 1)
    sched.pod("z", schedulingGroup={"podGroupName": "z"})
    return sched


async def test_groups_that_have_not_started_come_first() -> None:
    found = await ui_data(grouped()).overview()

    assert found.group_states == {"waiting": 1, "gated": 1, "running": 1}
    assert found.groups == (
        GroupRow(id="PodGroup/default/waits", state="waiting", least=60, pods=60, running=0),
        GroupRow(id="PodGroup/default/lost", state="gated", least=None, pods=1, running=0),
        GroupRow(id="PodGroup/default/runs", state="running", least=2, pods=2, running=2),
    )


async def test_a_cluster_without_groups() -> None:
    found = await ui_data(SchedulerHarness()).overview()

    assert (found.groups, found.group_states) == ((), {})


async def test_the_first_groups_are_shown() -> None:
    found = await ui_data(some(100, on="n")).overview()

    names = [each.id.rpartition("/")[2] for each in found.groups]
    assert names == ["z", *(f"g{at:04}" for at in range(ROWS_MAX - 1))]
    assert found.group_states == {"waiting": 1, "running": 100}


async def test_groups_are_counted_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is gone before its turn does not count."""
    monkeypatch.setattr(ui_groups, "_STEP_GROUPS", 10)
    sched = some(39)
    work = ui_data(sched)._groups.rows()
    next(work)
    sched.gone("z")

    assert finish(work)[0] == {"waiting": 39}
    assert sum(1 for _ in ui_data(sched)._groups.rows()) >= 39 // 10


@pytest.mark.parametrize(
    ("group", "page", "first", "total"),
    [
        ("PodGroup/default/runs", 0, ("default/runs-0", "running", "node-a"), 2),
        ("PodGroup/default/waits", 2, ("default/waits-50", "unschedulable", ""), 60),
        ("PodGroup/default/waits", 9, ("default/waits-50", "unschedulable", ""), 60),
        ("PodGroup/default/lost", 0, ("default/lost-0", "gated", ""), 1),
    ],
    ids=["it runs", "the last page", "beyond the end", "no object"],
)
async def test_members(group: str, page: int, first: tuple[str, str, str], total: int) -> None:
    sched = grouped()
    await sched.settle()
    found = await ui_data(sched).members_of(group, page)

    assert found is not None
    assert (found.pods[0].pod, found.pods[0].state, found.pods[0].node, found.total) == (*first, total)


async def test_a_member_whose_binding_is_under_way() -> None:
    sched, _ = prepared("n1")
    await sched.settle()
    found = await ui_data(sched).members_of("PodGroup/default/g", 0)

    assert found is not None
    assert [(each.pod, each.state, each.node) for each in found.pods] == [
        (f"default/{name}", "binding", "n1") for name in ("a", "b", "c")
    ]


async def test_a_group_without_pods_is_no_group() -> None:
    assert await ui_data(grouped()).members_of("PodGroup/default/none", 0) is None


async def test_a_member_that_leaves_before_the_answer_is_left_out() -> None:
    sched = grouped()

    class Late(AtOnce):
        async def answer_to(self, begin: Callable[[], Steps[Any]]) -> Any:
            sched.gone("runs-0")
            return finish(begin())

    data = ui_data(sched, questions=Late())
    found = await data.members_of("PodGroup/default/runs", 0)

    assert found is not None
    assert [each.pod for each in found.pods] == ["default/runs-1"]


async def test_a_pending_pod_names_its_group() -> None:
    sched = grouped()
    sched.pod("alone")
    data = ui_data(sched)
    groups = set()
    for cause in (await data.overview()).causes:
        found = await data.pods_of(cause.id, 9)
        assert found is not None
        groups |= {each.group for each in found.pods}

    assert groups == {"", "PodGroup/default/waits", "PodGroup/default/lost"}
