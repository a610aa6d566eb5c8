"""Law: applied to a fresh copy of the cluster, each fix after which an attempt places a group lets the group start.

The clusters are those of `worlds`. One member is changed so that it fits nowhere. The edits of a fix come to a new scheduler as
its watches would show them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.decode import Delta
from scheduler.explain.answer import FixAnswer
from scheduler.explain.edits import complete, merged, patched, plain
from tests.examples import examples
from tests.unit.groups.test_groups_explained import group
from tests.unit.groups.worlds import GroupMember, GroupWorld, drawn, ended, has_started
from tests.unit.harness import SchedulerHarness, read_node, read_pod
from tests.unit.hints.hint_rows import shown_as

_OF_ONE: Final[dict[str, dict[str, Any]]] = {
    "zone": {"zone": "nowhere"},
    "cpu": {"cpu": 1000},
    "memory": {"memory": 1000},
    "storage": {"storage": 1000},
    "devices": {"devices": {"x": 30}},
}
"""Causes that keep one member from every node."""
_OF_ALL: Final = ("taint", "cordon", "all in a zone", "all too large")
"""Causes that keep all members from every node; they are alike."""
_CAUSES: Final = (*_OF_ONE, *_OF_ALL)
_versions = itertools.count(10**6)


def _planted(world: GroupWorld, cause: str, rng: random.Random) -> GroupWorld:
    """Return the world with two nodes for each of its nodes, and with the cause."""
    nodes = [dataclasses.replace(node, name=f"{node.name}{copy}") for node in world.nodes for copy in ("", "x")]
    at = rng.randrange(len(world.members))
    members = [
        dataclasses.replace(each, **_OF_ONE.get(cause, {}) if n == at else {}) for n, each in enumerate(world.members)
    ]
    if cause in _OF_ALL:
        zone, cpu = "nowhere" if cause == "all in a zone" else "", 1000 if cause == "all too large" else 1
        members = [GroupMember(each.name, cpu=cpu, memory=1, zone=zone) for each in members]
    return dataclasses.replace(world, nodes=nodes, members=members)


def _cluster(world: GroupWorld, cause: str) -> SchedulerHarness:
    sched = world.built()
    for name, node in list(sched.nodes.items()):
        manifest = plain(node)
        if cause == "taint":
            manifest["spec"]["taints"] = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
        manifest["spec"]["unschedulable"] = cause == "cordon"
        _show_node(sched, name, manifest)
    world.add_group(sched)
    sched.parts.inbox.apply()
    return sched


def _show_node(sched: SchedulerHarness, name: str, manifest: dict[str, Any]) -> None:
    manifest["metadata"]["resourceVersion"] = str(next(_versions))
    new = read_node(manifest)
    sched.parts.event_handlers.apply("Node", [Delta(sched.nodes.get(name), new)])
    sched.nodes[name] = new


def _apply(sched: SchedulerHarness, fix: FixAnswer, alike: Iterable[str]) -> None:
    """Let the watches show what a user has done. Changed pods are new ones."""
    edits = merged(fix.edits)
    stored: dict[tuple[str, str], Any] = sched.__dict__["stored"]
    for edit in edits:
        match edit.verb, edit.kind:
            case _, "Pod":
                continue
            case "patch", "Node":
                _show_node(sched, edit.name, patched(plain(sched.nodes[edit.name]), edit.patch))
            case "create", "Node":
                _show_node(sched, edit.name, complete(edit).manifest)
            case "patch", _:
                raw = patched(plain(stored[edit.kind, edit.name]), edit.patch)
                raw["metadata"] |= {"resourceVersion": str(next(_versions)), "name": edit.name}
                shown_as(edit.kind, edit.name, raw)(sched)
            case "create", _:
                raw = complete(edit).manifest
                raw["metadata"] |= {"resourceVersion": str(next(_versions)), "uid": f"new-{edit.name}"}
                shown_as(edit.kind, edit.name, raw)(sched)
            case _:
                raise AssertionError(edit)
    for edit in edits:
        if edit.kind != "Pod":
            continue
        assert edit.verb == "patch", edit
        for name in alike:
            raw = patched(plain(sched.seen[name]), edit.patch)
            raw["metadata"] |= {"uid": f"new-{name}", "resourceVersion": str(next(_versions)), "name": name}
            sched.gone(name)
            sched.seen[name] = new = read_pod(raw)
            sched.parts.event_handlers.apply("Pod", [Delta(None, new)])


def _alike(world: GroupWorld, name: str) -> list[str]:
    """Return the members that are made from the template of this one."""
    first = next(each for each in world.members if each.name == name)
    if first.storage or first.devices:
        return [name]
    return [each.name for each in world.members if dataclasses.replace(each, name=name) == first]


async def _failures(seed: int, cause: str) -> tuple[int, list[str]]:
    """Return how many fixes were applied, and those after which the group did not start."""
    world = _planted(drawn(seed), cause, random.Random(seed))
    sched = _cluster(world, cause)
    explained = group(sched).explanation
    await ended(sched)
    if explained is None:
        return 0, []
    failed, fixes = [], [fix for fix in explained.fixes if fix.starts_group]
    for fix in fixes:
        fresh = _cluster(world, cause)
        _apply(fresh, fix, _alike(world, explained.pod.partition("/")[2]))
        for _ in range(4):
            await fresh.later(15)
        if not has_started(fresh):
            failed.append(f"seed {seed}, {cause}: {list(fix.edits)}; {group(fresh).cause}")
        await ended(fresh)
    return len(fixes), failed


@pytest.mark.parametrize("cause", [each for each in _CAUSES if each != "all too large"])
async def test_each_cause_has_fixes_that_work(cause: str) -> None:
    """Otherwise the law below would say nothing."""
    count, failed = await _failures(1, cause)

    assert (count > 0, failed) == (True, [])


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(_CAUSES))
def test_after_each_fix_the_group_starts(seed: int, cause: str) -> None:
    async def run() -> None:
        assert (await _failures(seed, cause))[1] == []

    asyncio.run(run())
