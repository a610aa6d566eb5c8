"""Edits of explanations: JSON patches, and an overlay on the cache that leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import pod_info
from scheduler.explain.edits import Edit, Overlay, Step, merged, patched, pointer, strict
from scheduler.plan import NotApplicable
from tests.unit.harness import SchedulerHarness


@pytest.mark.parametrize(("steps", "expected"), [
    pytest.param([Step("add", "/a/-", 3)], {"a": [1, 2, 3], "b": {"x/y": 1}}, id="add at the end of a list"),
    pytest.param([Step("remove", "/a/0")], {"a": [2], "b": {"x/y": 1}}, id="remove from a list"),
    pytest.param([Step("replace", pointer("b", "x/y"), 2)], {"a": [1, 2], "b": {"x/y": 2}}, id="a key with a slash"),
    pytest.param([Step("add", "/c/d", 1)], {"a": [1, 2], "b": {"x/y": 1}, "c": {"d": 1}}, id="a parent that is missing"),
])  # fmt: skip
def test_patches(steps: list[Step], expected: dict[str, Any]) -> None:
    value = {"a": [1, 2], "b": {"x/y": 1}}

    assert patched(value, steps) == expected
    assert value == {"a": [1, 2], "b": {"x/y": 1}}


@pytest.mark.parametrize("step", [Step("remove", "/a/7"), Step("remove", "/z"), Step("replace", "/a/x", 1)])
def test_a_patch_that_does_not_fit_is_an_error(step: Step) -> None:
    with pytest.raises(NotApplicable):
        patched({"a": [1]}, [step])


@pytest.mark.parametrize(("steps", "expected"), [
    pytest.param([Step("add", "/a/-", 3)], [Step("add", "/a/-", 3)], id="a list that exists"),
    pytest.param(
        [Step("add", "/t/-", 1), Step("add", "/t/-", 2)],
        [Step("add", "/t", []), Step("add", "/t/-", 1), Step("add", "/t/-", 2)],
        id="a list that is added once",
    ),
    pytest.param(
        [Step("add", pointer("m", "labels", "x/y"), "v")],
        [Step("add", "/m", {}), Step("add", "/m/labels", {}), Step("add", "/m/labels/x~1y", "v")],
        id="two parents that are missing",
    ),
    pytest.param([Step("replace", "/z", 1)], [Step("add", "/z", 1)], id="a replacement of nothing"),
    pytest.param([Step("replace", "/a/0", 9)], [Step("replace", "/a/0", 9)], id="a replacement"),
])  # fmt: skip
def test_patches_are_as_the_rfc_has_them(steps: list[Step], expected: list[Step]) -> None:
    value = {"a": [1, 2]}

    assert list(strict(value, steps)) == expected
    assert patched(value, expected) == patched(value, steps)


def test_removals_of_one_object_are_applied_from_behind() -> None:
    edits = [Edit("patch", "Pod", "p", patch=(Step("remove", f"/a/{at}"),)) for at in (0, 2)]

    (edit,) = merged(edits)

    assert patched({"a": [1, 2, 3]}, edit.patch) == {"a": [2]}


def overlay() -> tuple[SchedulerHarness, Overlay]:
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    sched.pod("a", cpu="1", on="n1")
    sched.parts.inbox.apply()
    return sched, Overlay(sched.parts.cluster, pod_info)


def requested(sched: SchedulerHarness) -> int:
    return sched.cluster.nodes.requested_at(0, "cpu")


def test_an_overlay_is_undone() -> None:
    sched, edits = overlay()
    with edits.applied([Edit("delete", "Pod", "a", "default")]):
        within = requested(sched)
        with edits.suspended():
            suspended = requested(sched)

    assert (within, suspended, requested(sched)) == (0, 1000, 1000)


def test_an_edit_that_cannot_be_applied_undoes_those_before_it() -> None:
    sched, edits = overlay()
    with pytest.raises(NotApplicable, match="node n9 does not exist"):
        edits.apply([Edit("delete", "Pod", "a", "default"), Edit("patch", "Node", "n9")])

    assert requested(sched) == 1000


def test_a_pod_that_was_created_again_is_found() -> None:
    sched, edits = overlay()
    with edits.applied([Edit("delete", "Pod", "a", "default")]):
        pass
    sched.gone("a")
    sched.pod("a", uid="another", cpu="2", on="n1")
    sched.parts.inbox.apply()

    with edits.applied([Edit("delete", "Pod", "a", "default")]):
        assert requested(sched) == 0
    assert requested(sched) == 2000


def test_an_object_that_exists_is_not_created_again() -> None:
    """The undo would remove it."""
    sched, edits = overlay()
    with pytest.raises(NotApplicable, match="Node n1 exists already"):
        edits.apply([Edit("create", "Node", "n1", manifest={"status": {"allocatable": {"cpu": "9"}}})])

    assert sched.cluster.nodes.present_slot("n1") is not None
    assert requested(sched) == 1000
