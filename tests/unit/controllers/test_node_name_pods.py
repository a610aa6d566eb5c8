"""Pods with `spec.nodeName` and WaitForFirstConsumer claims: the leader selects the node where the namespace opts in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import structlog

from scheduler.api.core_v1 import Namespace
from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import pod_info
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.config.types import Configuration
from scheduler.controllers.node_name_pods import (
    FIRST_PAUSE_S,
    IN_FLIGHT_MAX,
    LONGEST_PAUSE_S,
    OPT_IN_LABEL,
    TRIES,
    NodeNamePods,
)
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, Forbidden, NotFound, Unavailable
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.eventhandlers.workloads import workload_handlers
from scheduler.profiles.build import build_profiles
from simulator.builders.core import PodBuilder, node, pod
from tests.support.ports import ScriptedWriter
from tests.support.volumebuilders import ClaimBuilder, StorageClassBuilder, a_claim, a_class, a_pv
from tests.unit.controllers.controller_scene import ControllerScene
from tests.unit.harness import SchedulerHarness

CLAIM: Final = "default/c"
WRITTEN: Final = (CLAIM, "n1")


class HeldWriter(ScriptedWriter):
    """A writer whose selections wait for an event before they land."""

    def __init__(self, hold: asyncio.Event) -> None:
        super().__init__()
        self._hold = hold

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim | Broken:
        await self._hold.wait()
        return await super().select_node(claim, node_name)


class Scene(ControllerScene):
    """Nodes n1 and n2, the class `fast` with a provisioner, and a namespace that opts in."""

    def __init__(self, *, opted_in: str | None = "true", profiles: Any = None) -> None:
        super().__init__()
        self.handlers = {
            **StorageHandlers(self.cluster, lambda *_: None).handlers(),
            **workload_handlers(self.cluster, lambda *_: None),
        }
        known = build_profiles(Configuration()) if profiles is None else profiles
        self.under_test = NodeNamePods(self.shared, profiles=known)
        self.has_class(a_class("fast", "csi.example"))
        if opted_in is not None:
            self.opt_in(opted_in)

    def opt_in(self, value: str) -> None:
        space = Namespace(metadata=Metadata(name="default", labels={OPT_IN_LABEL: value}))
        self.handlers["Namespace"](Delta(None, space))

    def has_class(self, built: StorageClassBuilder) -> None:
        self.handlers["StorageClass"](Delta(None, built.typed()))

    def has(self, claim: PersistentVolumeClaim) -> None:
        """The server and the watch have the claim."""
        self.writer.claims[claim.key] = claim
        self.shows(claim)

    def shows(self, claim: PersistentVolumeClaim) -> None:
        self.handlers["PersistentVolumeClaim"](Delta(self.cluster.volumes.claims.get_api(claim.key), claim))

    def runs(self, built: PodBuilder) -> None:
        self.cluster.add_pod(pod_info(built.typed()))


def fails(*errors: ApiError) -> Callable[[PersistentVolumeClaim, str | None], None]:
    """Let the next writes fail with these errors."""
    left = list(errors)

    def on_select(_claim: PersistentVolumeClaim, _node_name: str | None) -> None:
        if left:
            raise left.pop(0)

    return on_select


def unbound(name: str = "c", storage_class: str = "fast") -> ClaimBuilder:
    return a_claim(name, "1Gi", storage_class).uid(f"uid-{name}").resource_version("7")


def on(node_name: str, name: str = "p") -> PodBuilder:
    return pod(name).uid(f"uid-{name}").bound_to(node_name)


def ready() -> Scene:
    scene = Scene()
    scene.has(unbound().typed())
    scene.runs(on("n1").pvc("c"))
    return scene


# -- which pods and claims ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "user"), [
    pytest.param(unbound(), on("n1").pvc("c"), id="a claim that the pod names is served"),
    pytest.param(unbound(), on("n1").pvc("c").scheduler("another"),
        id="the pod may name any scheduler: none of them saw it"),
    pytest.param(unbound("p-e").owned_by("p", "uid-p"), on("n1").ephemeral("e"),
        id="the claim of an ephemeral volume is served"),
])  # fmt: skip
async def test_the_node_of_a_bound_pod_is_selected_for(claim: ClaimBuilder, user: PodBuilder) -> None:
    scene = Scene()
    scene.has(claim.typed())
    scene.runs(user)
    await scene.passes(1)
    assert scene.writer.selections == [(claim.typed().key, "n1")]


@pytest.mark.parametrize(("claim", "user"), [
    pytest.param(unbound().bound_to("v"), on("n1").pvc("c"), id="a claim that is bound is left alone"),
    pytest.param(unbound().selected("n2"), on("n1").pvc("c"), id="a claim that has a selected node is left alone"),
    pytest.param(unbound().deleting(), on("n1").pvc("c"), id="a claim that is being deleted is left alone"),
    pytest.param(unbound("c", "missing"), on("n1").pvc("c"), id="a claim whose class is not there is left alone"),
    pytest.param(unbound("c", "eager"), on("n1").pvc("c"), id="a claim of an Immediate class is left alone"),
    pytest.param(unbound("c", "local"), on("n1").pvc("c"), id="a claim without a provisioner is left alone"),
    pytest.param(unbound("c", "rack"), on("n1").pvc("c"), id="a node that the class forbids is not selected"),
    pytest.param(unbound("meant"), on("n1").pvc("meant"), id="a claim whose volume is reserved is left alone"),
    pytest.param(unbound(), on("n9").pvc("c"), id="a node that does not exist is not selected"),
    pytest.param(unbound(), on("n1"), id="a claim that no pod uses is left alone"),
    pytest.param(unbound(), on("n1").ephemeral("x"), id="a claim of another name is left alone"),
    pytest.param(unbound(), on("n1").pvc("c").set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        id="a pod that is terminating is not served"),
    pytest.param(unbound("p-e").owned_by("p", "uid-before"), on("n1").ephemeral("e"),
        id="an ephemeral volume does not take the claim of another pod"),
])  # fmt: skip
async def test_nothing_is_written_where_a_selected_node_does_not_help(claim: ClaimBuilder, user: PodBuilder) -> None:
    scene = Scene()
    scene.has_class(a_class("eager", "csi.example").immediate())
    scene.has_class(a_class("local"))
    scene.has_class(a_class("rack", "csi.example").allowed("kubernetes.io/hostname", "n2"))
    scene.handlers["PersistentVolume"](Delta(None, a_pv("v9", "1Gi", "fast").claimed_by("meant").typed()))
    scene.has(claim.typed())
    scene.runs(user)
    await scene.passes(5)
    assert scene.writer.selections == []


def _loses_its_node(scene: Scene) -> None:
    scene.runs(on("n1").pvc("c"))
    scene.cluster.remove_node("n1")


IDLE: Final[dict[str, tuple[dict[str, Any], Callable[[Scene], object]]]] = {
    **{
        f"the label of the namespace is {value!r}": ({"opted_in": value}, lambda scene: scene.runs(on("n1").pvc("c")))
        for value in (None, "", "false", "True")
    },
    "no profile has VolumeBinding": ({"profiles": {}}, lambda scene: scene.runs(on("n1").pvc("c"))),
    "the node has gone": ({}, _loses_its_node),
    "this scheduler is binding the pod": ({}, lambda s: s.cluster.assume(pod_info(on("n1").pvc("c").typed()))),
}


@pytest.mark.parametrize(("options", "arrange"), IDLE.values(), ids=IDLE.keys())
async def test_nothing_is_written_while(options: dict[str, Any], arrange: Callable[[Scene], object]) -> None:
    scene = Scene(**options)
    scene.has(unbound().typed())
    arrange(scene)
    await scene.passes(3)
    assert scene.writer.selections == []


async def test_a_node_that_a_plan_of_this_scheduler_has_selected_stays_until_the_plan_is_given_up() -> None:
    scene = ready()
    planned = unbound().selected("n2").typed()
    scene.cluster.volumes.claims.assume(planned)
    await scene.passes(3)
    assert scene.writer.selections == []

    scene.cluster.volumes.claims.restore(planned)
    await scene.passes(1)
    assert scene.writer.selections == [WRITTEN]


async def test_of_two_pods_on_two_nodes_the_older_one_decides() -> None:
    scene = Scene()
    scene.has(unbound().typed())
    for name, node_name, day in (("young", "n1", "02"), ("old", "n2", "01")):
        created = {"metadata": {"creationTimestamp": f"2026-01-{day}T00:00:00Z"}}
        scene.runs(on(node_name, name).pvc("c").set(created))
    await scene.passes(1)
    assert scene.writer.selections == [(CLAIM, "n2")]


# -- changes that come later -------------------------------------------------------------------------------------------


Change = Callable[[Scene], object]


def claim_comes(scene: Scene) -> None:
    scene.has(unbound().typed())


def opted_out(scene: Scene) -> None:
    scene.opt_in("no")
    claim_comes(scene)


@pytest.mark.parametrize(("arrange", "change", "node_name"), [
    pytest.param(opted_out, lambda s: s.opt_in("true"), "n1", id="the namespace opts in"),
    pytest.param(lambda _: None, claim_comes, "n1", id="the claim is created"),
    pytest.param(lambda s: s.has(unbound("c", "late").typed()), lambda s: s.has_class(a_class("late", "csi.example")),
        "n1", id="the class is created"),
    pytest.param(claim_comes, lambda s: s.cluster.set_node(node("n3").typed()), "n3", id="the node is created"),
])  # fmt: skip
async def test_the_node_is_selected_within_a_second_after(arrange: Change, change: Change, node_name: str) -> None:
    scene = Scene()
    arrange(scene)
    scene.runs(on(node_name).pvc("c"))
    await scene.passes(3)
    assert scene.writer.selections == []

    change(scene)
    await scene.passes(1)
    assert scene.writer.selections == [(CLAIM, node_name)]


# -- writing -----------------------------------------------------------------------------------------------------------


async def test_a_claim_that_shows_its_node_is_not_written_again() -> None:
    scene = ready()
    await scene.passes(1)
    shown = scene.writer.claims[CLAIM]
    assert isinstance(shown, PersistentVolumeClaim)
    scene.shows(shown)
    await scene.passes(2 * LONGEST_PAUSE_S)
    assert scene.writer.selections == [WRITTEN]


async def test_a_selection_that_the_provisioner_removes_is_repeated_with_growing_pauses() -> None:
    """The provisioner removes the annotation when the node has no capacity."""
    scene = ready()
    scene.writer.on_select = lambda claim, _: scene.shows(claim)
    await scene.passes(1 + FIRST_PAUSE_S + 2 * FIRST_PAUSE_S)
    assert scene.writer.selections == [WRITTEN] * 3
    await scene.passes(10 * LONGEST_PAUSE_S)
    assert len(scene.writer.selections) < 20


@pytest.mark.parametrize(
    "error",
    [Conflict("modified", status=409), Ambiguous("the answer was lost")],
    ids=["a conflict", "a lost answer"],
)
async def test_after_a_failure_that_a_read_explains_the_newest_claim_is_written(error: ApiError) -> None:
    scene = ready()
    scene.writer.on_select = fails(error)
    await scene.passes(1)
    assert scene.writer.selections == [WRITTEN, WRITTEN]


async def test_conflicts_in_a_row_end_the_attempt_and_a_later_one_succeeds() -> None:
    scene = ready()
    scene.writer.on_select = fails(*[Conflict("modified", status=409)] * TRIES)
    await scene.passes(1)
    assert scene.writer.selections == [WRITTEN] * TRIES
    await scene.passes(FIRST_PAUSE_S)
    assert scene.writer.selections == [WRITTEN] * (TRIES + 1)


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(None, id="is gone"),
        pytest.param(Broken(kind="PersistentVolumeClaim", metadata=Metadata(name="c"), why="x"), id="cannot be read"),
        pytest.param(unbound().uid("another").typed(), id="is another claim of that name"),
        pytest.param(unbound().selected("n1").typed(), id="has this node: the write had arrived"),
        pytest.param(unbound().selected("n2").typed(), id="has the node of another writer"),
        pytest.param(unbound().bound_to("v").typed(), id="has a volume"),
    ],
)
@pytest.mark.parametrize("error", [Conflict("first"), Ambiguous("lost")], ids=["a conflict", "a lost answer"])
async def test_after_a_failure_nothing_more_is_written_to_a_claim_that(
    error: ApiError, live: PersistentVolumeClaim | Broken | None
) -> None:
    scene = ready()
    scene.writer.on_select = fails(error)
    scene.writer.claims.pop(CLAIM)
    if live is not None:
        scene.writer.claims[CLAIM] = live
    await scene.passes(1)
    assert scene.writer.selections == [WRITTEN]


async def test_a_pod_that_leaves_while_the_claim_is_read_is_not_served() -> None:
    scene = ready()
    scene.writer.on_select = fails(Conflict("first"))

    def leaves() -> None:
        scene.cluster.remove_pod("uid-p")

    scene.writer.on_read = leaves
    await scene.passes(1)
    assert scene.writer.selections == [WRITTEN]


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        pytest.param(Unavailable("busy", status=503), 3, id="a busy server: logged each time"),
        pytest.param(Forbidden("may not", status=403), 1, id="a missing permission: logged once"),
        pytest.param(NotFound("gone", status=404), 0, id="a claim that is gone: not logged"),
        pytest.param(Fenced("another leads"), 0, id="another replica leads: not logged"),
    ],
)
async def test_a_failed_write_is_repeated_with_growing_pauses(error: ApiError, warnings: int) -> None:
    scene = ready()
    scene.writer.on_select = fails(error, error, error)
    with structlog.testing.capture_logs() as logs:
        await scene.passes(1 + FIRST_PAUSE_S + 2 * FIRST_PAUSE_S)
        assert len(scene.writer.selections) == 3
        await scene.passes(4 * FIRST_PAUSE_S)
    assert scene.writer.selections == [WRITTEN] * 4
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "node could not be selected"
    ] * warnings


async def test_many_claims_are_written_a_few_at_a_time() -> None:
    scene = Scene()
    for i in range(IN_FLIGHT_MAX + 3):
        scene.has(unbound(f"c{i}").typed())
        scene.runs(on("n1", f"p{i}").pvc(f"c{i}"))
    await scene.passes(1)
    assert len(scene.writer.selections) == IN_FLIGHT_MAX
    await scene.passes(1)
    assert len({key for key, _ in scene.writer.selections}) == IN_FLIGHT_MAX + 3


async def test_claims_that_are_gone_are_forgotten() -> None:
    scene = ready()
    await scene.passes(1)
    scene.handlers["PersistentVolumeClaim"](Delta(unbound().typed(), None))
    await scene.passes(1)
    assert scene.under_test._attempts == {}
    assert scene.cluster.volumes.claims.unselected == {}


# -- in the scheduling loop --------------------------------------------------------------------------------------------


async def test_a_standby_writes_nothing_and_a_replica_that_begins_to_lead_does() -> None:
    sched = SchedulerHarness()
    loop, leads = sched.parts.loop, [False]
    running = asyncio.ensure_future(loop.run(lambda: leads[0]))
    space = Namespace(metadata=Metadata(name="default", labels={OPT_IN_LABEL: "true"}))
    applied = {
        "Namespace": space,
        "StorageClass": a_class("fast", "csi.example").typed(),
        "PersistentVolumeClaim": unbound().typed(),
        "Node": node("n1").typed(),
        "Pod": on("n1").pvc("c").typed(),
    }
    for kind, shown in applied.items():
        sched.parts.inbox.put(partial(sched.parts.event_handlers.apply, kind, [Delta(None, shown)]))
    sched.clock.move(5)
    await sched.turns()
    assert sched.writer.selections == []

    leads[0] = True
    sched.clock.move(5)
    sched.parts.inbox.wake()
    await sched.turns()
    assert sched.writer.selections == [WRITTEN]

    loop.stop()
    await running


async def test_a_write_under_way_ends_before_the_daemon_does() -> None:
    scene = ready()
    hold = asyncio.Event()
    scene.writer = HeldWriter(hold)
    scene.under_test._writer = scene.writer
    await scene.passes(1)
    draining = asyncio.ensure_future(scene.under_test.drain(5.0))
    await asyncio.sleep(0)
    assert not draining.done()
    hold.set()
    await draining
    assert scene.writer.selections == [WRITTEN]
