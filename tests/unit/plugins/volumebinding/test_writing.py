"""How plans are written, and what becomes of writes that fail: docs/spec/volumes.md §6.3, §12.2 B-2, rows U1–U10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, ObjectRef, PersistentVolume
from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    VolumeError,
)
from tests.support.volumebuilders import a_pv
from tests.unit.plugins.volumebinding.world import (
    CHANGED,
    CLAIM,
    D1,
    D2,
    KINDS,
    PARITY,
    U1,
    U2,
    VOLUME,
    A,
    B,
    Step,
    VolumeWorld,
    case,
    fails,
    using,
    write,
    writes,
    written,
)

# -- what is written -------------------------------------------------------------------------------------------------------


TAKES_A, TAKES_B = ("a", "default/u1", True), ("b", "default/u2", True)
SELECTS, SELECTS_TOO = ("default/d1", "n1"), ("default/d2", "n1")


@pytest.mark.parametrize(("things", "claims", "prebinds", "selections"), [
    pytest.param((U1, A), ["u1"], [TAKES_A], [], id="U3 one volume"),
    pytest.param((U1, U2, A, B), ["u2", "u1"], [TAKES_A, TAKES_B], [], id="U3 two, the smaller first"),
    pytest.param((U1, A.claimed_by("u1", uid="u1", by_controller=True)), ["u1"], [], [],
        id="U4 the server has the same"),
    pytest.param((D1,), ["d1"], [], [SELECTS], id="U6 one claim"),
    pytest.param((D1.selected("n1"),), ["d1"], [], [], id="U4 the server has that node"),
    pytest.param((U1, A, D1, D2), ["d1", "u1", "d2"], [TAKES_A], [SELECTS, SELECTS_TOO],
        id="volumes first, then claims"),
])  # fmt: skip
async def test_what_is_written(things: Any, claims: list[str], prebinds: Any, selections: Any) -> None:
    """In order; what is there already is not written again (B-15), and what was answered is kept (B-17)."""
    world = VolumeWorld(*things)
    plan = written(world, *claims)
    await write(world, plan)

    assert (prebinds, selections) == (world.writer.prebinds, world.writer.selections)
    for static in plan.static:
        assert static.written == (world.writer.volumes[static.volume.key] if static.is_dirty else None)
    for dynamic in plan.dynamic:
        assert dynamic.written == (world.writer.claims[dynamic.claim.key] if selections else None)


@pytest.mark.parametrize("kind", [VOLUME, CLAIM])
async def test_u10_what_we_do_not_know_stays(kind: str) -> None:
    """U10 Writes are patches: what the object says besides is untouched."""
    world, plan = case(kind, _labelled(kind, {"unknown": "to us"}, conflicts=True))
    await world.ends(write(world, plan))
    now = world.writer.volumes["a"] if kind == VOLUME else world.writer.claims["default/d1"]

    assert {"unknown": "to us"} == now.metadata.labels


# -- what a server can do instead -------------------------------------------------------------------------------------------


def _labelled(kind: str, labels: dict[str, str], *, conflicts: bool) -> Step:
    return _change(kind, lambda obj: replace(obj, metadata=replace(obj.metadata, labels=labels)), conflicts=conflicts)


def _change(kind: str, change: Callable[[Any], Any], *, conflicts: bool = True) -> Step:
    """Another client writes first."""

    def step(world: VolumeWorld) -> None:
        held: Any = world.writer.volumes if kind == VOLUME else world.writer.claims
        (key,) = held if kind == VOLUME else ["default/d1"]
        world.writer.newest += 1
        now = change(held[key])
        if now is None:
            del held[key]
        else:
            held[key] = replace(now, metadata=replace(now.metadata, resource_version=str(world.writer.newest)))
        if conflicts:
            raise Conflict(CHANGED.format(key))

    return step


def _carried_out(kind: str, error: ApiError) -> Step:
    """The write takes place, and its answer is lost."""

    def done(obj: Any) -> Any:
        if kind == VOLUME:
            return replace(obj, spec=replace(obj.spec, claim_ref=ObjectRef("default", "u1", "u1")))
        annotations = {**obj.metadata.annotations, "volume.kubernetes.io/selected-node": "n1"}
        return replace(obj, metadata=replace(obj.metadata, annotations=annotations))

    change = _change(kind, done, conflicts=False)

    def step(world: VolumeWorld) -> None:
        change(world)
        raise error

    return step


def _label(kind: str) -> Step:
    return _labelled(kind, {"owner": "another-client"}, conflicts=True)


@KINDS
@pytest.mark.parametrize(("steps", "count", "seconds"), [
    pytest.param(lambda kind: [_label(kind)] * 3, 4, 0.2, id="another client wrote a label, three times"),
    pytest.param(lambda kind: [fails(TooManyRequests("busy", retry_after_s=7.0))], 2, 7.0, id="429: it says when"),
    pytest.param(lambda kind: [fails(TooManyRequests("busy"))], 2, 0.1, id="429 and no more"),
    pytest.param(lambda kind: [fails(TooManyRequests("busy", retry_after_s=0.0))] * 3, 4, 0.3,
        id="429, at once: not quite"),
    pytest.param(lambda kind: [fails(Unavailable("no", status=503))] * 3, 4, 0.7, id="503 three times"),
    pytest.param(lambda kind: [fails(Ambiguous("lost"))], 2, 0.1, id="the connection was lost before"),
    pytest.param(lambda kind: [_carried_out(kind, Ambiguous("lost"))], 1, 0.1, id="the connection was lost after"),
    pytest.param(lambda kind: [_carried_out(kind, Conflict("twice"))], 1, 0.1,
        id="it was carried out, and the answer is 409"),
    pytest.param(lambda kind: [fails(Unavailable("no")), _label(kind), fails(Ambiguous("lost"))], 4, 0.55,
        id="one after the other"),
])  # fmt: skip
async def test_failures_that_end_well(
    kind: str, steps: Callable[[str], list[Step]], count: int, seconds: float
) -> None:
    """B-2 The object is written for the same node, with all changes of other clients."""
    made = steps(kind)
    world, plan = case(kind, *made)
    ended = await world.ends(write(world, plan))

    assert ended.error is None
    assert count == writes(world)
    assert ended.seconds == pytest.approx(seconds, abs=0.11)
    made_of: list[Any] = [*plan.static, *plan.dynamic]
    (step,) = made_of
    assert step.written is not None
    if kind == VOLUME:
        assert ObjectRef("default", "u1", "u1") == world.writer.volumes["a"].spec.claim_ref  # type: ignore[union-attr]
    else:
        assert "n1" == world.writer.claims["default/d1"].selected_node  # type: ignore[union-attr]


@KINDS
@pytest.mark.parametrize(
    ("ours", "error"),
    [
        pytest.param(None, Fenced("not the leader"), id="fenced"),
        pytest.param(None, Forbidden("no"), id="forbidden"),
        pytest.param(None, Invalid("odd"), id="invalid"),
        pytest.param(None, NotFound("gone"), id="not found"),
        pytest.param(PARITY, Conflict("changed"), id="parity: a conflict"),
        pytest.param(PARITY, TooManyRequests("busy", retry_after_s=1.0), id="parity: 429"),
        pytest.param(PARITY, Unavailable("no"), id="parity: 503"),
        pytest.param(PARITY, Ambiguous("lost"), id="parity: a lost answer"),
    ],
)
async def test_failures_after_which_nothing_is_tried_again(kind: str, ours: Any, error: ApiError) -> None:
    """They are passed on unchanged: no patience helps, or upstream has one try."""
    world, plan = case(kind, fails(error), ours=ours)
    ended = await world.ends(write(world, plan))

    assert (error, 0.0, 1) == (ended.error, ended.seconds, writes(world))


@KINDS
async def test_the_fourth_conflict_is_the_last(kind: str) -> None:
    """Conflicts are repeated three times."""
    world, plan = case(kind, *[_label(kind)] * 9)
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, Conflict)
    assert 4 == writes(world)
    assert 4 == len(world.metrics.conflicts)


@KINDS
@pytest.mark.parametrize(
    ("error", "at_most"),
    [(Unavailable("no"), 15), (TooManyRequests("busy", retry_after_s=20.0), 4), (Ambiguous("lost"), 60)],
    ids=["503", "429", "lost answers"],
)
async def test_there_is_no_more_time_than_the_pod_has(kind: str, error: ApiError, at_most: int) -> None:
    """The failure ends the binding before its time limit, and a busy server gets few requests."""
    world, plan = case(kind, *[fails(error)] * 10_000)
    ended = await world.ends(write(world, plan, within_s=50.0))

    assert ended.error is error
    assert ended.seconds <= 50.0
    assert writes(world) <= at_most


@KINDS
async def test_reading_is_tried_again(kind: str) -> None:
    """After a lost answer nothing is decided before the object was read."""
    world, plan = case(kind, _carried_out(kind, Ambiguous("lost")))
    errors: list[ApiError] = [Unavailable("no"), Ambiguous("lost"), Unavailable("no")]

    def on_read() -> None:
        if errors:
            raise errors.pop(0)

    world.writer.on_read = on_read
    ended = await world.ends(write(world, plan))

    assert (None, 1) == (ended.error, writes(world))
    assert ended.seconds > 0.5


@KINDS
async def test_reading_that_is_fenced_ends_it(kind: str) -> None:
    """The new leader binds the pod."""
    world, plan = case(kind, fails(Ambiguous("lost")))

    def on_read() -> None:
        raise Fenced("not the leader")

    world.writer.on_read = on_read
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, Fenced)
    assert 1 == writes(world)


@KINDS
async def test_an_answer_that_cannot_be_read(kind: str) -> None:
    """The object is named, and what is wrong with it."""
    world, plan = case(kind, _change(kind, lambda obj: obj))
    name = "a" if kind == VOLUME else "d1"
    held: Any = world.writer.volumes if kind == VOLUME else world.writer.claims
    key = "a" if kind == VOLUME else "default/d1"

    def on_read() -> None:
        held[key] = Broken(kind="Odd", metadata=Metadata(name=name), why="$.spec: odd")

    world.writer.on_read = on_read
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, VolumeError)
    assert f"Odd {name} cannot be read: $.spec: odd" == str(ended.error)


# -- what the object says must still be what was decided on -------------------------------------------------------------------


def spec(obj: Any, **changes: Any) -> Any:
    return replace(obj, spec=replace(obj.spec, **changes))


def meta(obj: Any, **changes: Any) -> Any:
    return replace(obj, metadata=replace(obj.metadata, **changes))


SMALL = a_pv("a", "1M").typed().spec.capacity
AWAY = a_pv("a").where("k", "n2").typed().spec.node_affinity


OF_U1 = ObjectRef("default", "u1", "u1")


@pytest.mark.parametrize(("change", "note"), [
    pytest.param(lambda v: meta(v, uid="new"), "is another one now", id="gate 0 another volume"),
    pytest.param(lambda v: meta(v, deletion_timestamp="2026-01-01T00:00:00Z"), "is being deleted", id="gate 6"),
    pytest.param(lambda v: meta(spec(v, claim_ref=OF_U1), deletion_timestamp="2026-01-01T00:00:00Z"),
        "is being deleted", id="gate 6, although the write was carried out"),
    pytest.param(lambda v: spec(v, claim_ref=ObjectRef("default", "x", "x")), "belongs to another claim", id="gate 2"),
    pytest.param(lambda v: spec(v, claim_ref=ObjectRef("default", "u1", "old")), "belongs to another claim",
        id="gate 2 uid"),
    pytest.param(lambda v: spec(v, capacity=SMALL), "is too small", id="gate 3"),
    pytest.param(lambda v: spec(v, volume_mode="Block"), "has another volume mode", id="gate 4"),
    pytest.param(lambda v: spec(v, volume_attributes_class_name="gold"), "has other attributes", id="gate 5"),
    pytest.param(lambda v: replace(v, status=replace(v.status, phase="Released")), "is not available", id="gate 9"),
    pytest.param(lambda v: spec(v, storage_class_name="other"), "is of another class", id="gate 11"),
    pytest.param(lambda v: spec(v, node_affinity=AWAY), "cannot be used on the node", id="gate 12"),
    pytest.param(lambda v: spec(v, access_modes=("ReadOnlyMany",)), "lacks an access mode", id="gate 13"),
])  # fmt: skip
async def test_a_volume_that_is_not_to_be_had_any_more(change: Callable[[Any], Any], note: str) -> None:
    """B-2 Nothing is forced: the conflict is what the attempt fails with, and why it was not written after all."""
    world, plan = case(VOLUME, _change(VOLUME, change))
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, Conflict)
    assert [f"persistentvolume a {note}"] == ended.error.__notes__
    assert (CHANGED.format("a"), 1) == (str(ended.error), writes(world))
    assert plan.static[0].written is None


async def test_a_volume_that_lost_the_label_it_was_selected_by() -> None:
    """Gate 10."""
    world = VolumeWorld(U1.matching({"tier": "a"}), A.label("tier", "a"))
    steps = {VOLUME: [_labelled(VOLUME, {"tier": "b"}, conflicts=True)]}
    ended = await world.ends(write(world, written(world, "u1", steps=steps)))

    assert isinstance(ended.error, Conflict)
    assert ["persistentvolume a is not selected"] == ended.error.__notes__


async def test_a_volume_that_turned_out_to_be_meant_for_the_claim() -> None:
    """Its owner wrote the claimRef before us: phase and modes do not matter, and no mark is set."""

    def change(volume: Any) -> Any:
        meant = spec(volume, claim_ref=ObjectRef("default", "u1", ""), access_modes=())
        return replace(meant, status=replace(meant.status, phase="Released"))

    world, plan = case(VOLUME, _change(VOLUME, change))
    ended = await world.ends(write(world, plan))

    assert ended.error is None
    assert [("a", "default/u1", True), ("a", "default/u1", False)] == world.writer.prebinds
    volume = world.writer.volumes["a"]
    assert isinstance(volume, PersistentVolume)
    assert BOUND_BY_CONTROLLER not in volume.metadata.annotations


@pytest.mark.parametrize(("change", "note"), [
    pytest.param(lambda c: meta(c, uid="new"), "is another one now", id="another claim"),
    pytest.param(lambda c: meta(c, deletion_timestamp="2026-01-01T00:00:00Z"), "is being deleted", id="deleting"),
    pytest.param(lambda c: spec(c, volume_name="v"), "has a volume", id="it has a volume"),
    pytest.param(lambda c: meta(c, annotations={"volume.kubernetes.io/selected-node": "n2"}), "has another node",
        id="another node"),
    pytest.param(lambda c: meta(c, annotations={"volume.kubernetes.io/selected-node": ""}), "has another node",
        id="no node"),
    pytest.param(lambda c: spec(c, storage_class_name="other"), "has another spec", id="another spec"),
])  # fmt: skip
async def test_a_claim_that_may_not_have_the_node_any_more(change: Callable[[Any], Any], note: str) -> None:
    """B-2 for claims."""
    world, plan = case(CLAIM, _change(CLAIM, change))
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, Conflict)
    assert [f"persistentvolumeclaim default/d1 {note}"] == ended.error.__notes__
    assert 1 == writes(world)


@KINDS
async def test_an_object_that_is_gone(kind: str) -> None:
    """There is nothing to look at again."""
    world, plan = case(kind, _change(kind, lambda obj: None))
    ended = await world.ends(write(world, plan))

    assert isinstance(ended.error, Conflict)
    assert 1 == writes(world)


@pytest.mark.parametrize(
    ("ours", "selections"),
    [
        pytest.param(None, [("default/d1", "n1")], id="once"),
        pytest.param(PARITY, [("default/d1", "n1")] * 2, id="twice with parity"),
    ],
)
async def test_a_claim_that_two_pods_share_is_written(ours: Any, selections: Any) -> None:
    """B-15 The first pod writes; the other one waits for it, before the watch shows it."""
    world = VolumeWorld(D1, ours=ours)
    first, second = written(world, "d1"), world.plan(using("q", "d1"))
    await write(world, first)
    await write(world, second)

    assert selections == world.writer.selections
