"""Selected nodes that are gone are cleared by their owner, and events name what ties a pod to a node (§12.1 B-6, B-6b)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.controllers.stale_volumes import AGAIN_S, GONE_S, TIED_S, TRIES, StaleVolumes
from scheduler.core.errors import Conflict, Unavailable
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.framework.status import Code, Diagnosis, Rejection
from simulator.builders.claims import a_claim as a_device_claim, a_result
from simulator.builders.core import node, pod
from tests.support.volumebuilders import a_claim, a_csi_node, a_pv
from tests.unit.controllers.controller_scene import ControllerScene

CLAIM = "default/c"


class Scene(ControllerScene):
    """Nodes n1 and n2, and the controller."""

    def __init__(self, *, names: tuple[str, ...] = ("kubestow",)) -> None:
        super().__init__()
        self.storage = StorageHandlers(self.cluster, lambda *_: None)
        self.under_test = self.stale = StaleVolumes(self.shared, names=names)

    def has(self, claim: PersistentVolumeClaim, *, owner: str | None = "kubestow") -> None:
        """The server and the watch have the claim."""
        self.storage.handlers()["PersistentVolumeClaim"](Delta(None, claim))
        self.writer.claims[claim.key] = claim
        if owner is not None:
            self.writer.owners[claim.key] = owner

    def breaks(self, node_name: str) -> None:
        """Make the node unreadable."""
        broken = Broken(kind="Node", metadata=Metadata(name=node_name), why="no number")
        self.cluster.volumes.broken["Node", node_name] = broken

    def reasons(self) -> list[str]:
        return [noted.reason for noted in self.recorder.events]


def selected(node_name: str, name: str = "c") -> PersistentVolumeClaim:
    return a_claim(name, "1Gi", "fast").selected(node_name).uid(f"uid-{name}").resource_version("7").typed()


async def test_a_selected_node_of_ours_that_is_gone_is_cleared_with_an_event() -> None:
    scene = Scene()
    scene.has(selected("n9"))
    await scene.passes(GONE_S)
    assert scene.writer.selections == []
    await scene.passes(1)
    assert scene.writer.selections == [(CLAIM, None)]
    assert scene.reasons() == ["SelectedNodeCleared"]


async def test_b6b_a_node_that_comes_back_in_time_keeps_its_claim() -> None:
    scene = Scene()
    scene.has(selected("n9"))
    await scene.passes(GONE_S - 1)
    scene.cluster.set_node(node("n9").typed())
    await scene.passes(GONE_S + 2)
    assert scene.writer.selections == []


@pytest.mark.parametrize("seconds", [0, GONE_S], ids=["from the start", "at the last moment"])
async def test_b6b_a_node_that_cannot_be_read_keeps_its_claim(seconds: float) -> None:
    """The node exists, and a volume may be provisioned there."""
    scene = Scene()
    scene.has(selected("n9"))
    await scene.passes(seconds)
    scene.breaks("n9")
    await scene.passes(AGAIN_S)
    assert (scene.writer.selections, scene.reasons()) == ([], [])

    del scene.cluster.volumes.broken["Node", "n9"]
    await scene.passes(GONE_S + 1)
    assert scene.writer.selections == [(CLAIM, None)]


@pytest.mark.parametrize("owner", ["kube-scheduler", None], ids=["kube-scheduler wrote it", "the writer is unknown"])
async def test_b6b_a_selection_by_another_scheduler_stays_and_is_reported(owner: str | None) -> None:
    scene = Scene()
    scene.has(selected("n9"), owner=owner)
    await scene.passes(GONE_S + 2)
    assert scene.writer.selections == []
    assert scene.reasons() == ["StaleSelectedNode"]


async def test_b6b_a_selection_by_another_scheduler_is_not_reported_every_second() -> None:
    scene = Scene()
    scene.has(selected("n9"), owner="kube-scheduler")
    await scene.passes(GONE_S + AGAIN_S - 2)
    assert len(scene.recorder.events) == 1


def on_the_server(claim: PersistentVolumeClaim) -> Callable[[Scene], object]:
    return lambda scene: scene.writer.claims.update({CLAIM: claim})


LEFT_ALONE: Final[dict[str, Callable[[Scene], object]]] = {
    "its node comes back unreadable": lambda scene: setattr(scene.writer, "on_read", lambda: scene.breaks("n9")),
    "it is gone": lambda scene: scene.writer.claims.pop(CLAIM),
    "it is another claim of that name": on_the_server(a_claim("c").selected("n9").uid("other").typed()),
    "it has another node": on_the_server(selected("n2")),
    "it has no node": on_the_server(a_claim("c").uid("uid-c").typed()),
    "it has a volume": on_the_server(a_claim("c").selected("n9").bound_to("v").uid("uid-c").typed()),
}


@pytest.mark.parametrize("change", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
async def test_b6b_a_claim_is_left_alone_if_when_it_is_read(change: Callable[[Scene], object]) -> None:
    scene = Scene()
    scene.has(selected("n9"))
    change(scene)
    await scene.passes(GONE_S + 2)
    assert scene.writer.selections == []


@pytest.mark.parametrize("conflicts", range(1, TRIES))
async def test_b6b_after_a_conflict_it_is_read_and_tried_again_at_once(conflicts: int) -> None:
    scene = Scene()
    scene.has(selected("n9"))
    failures = [Conflict("changed")] * conflicts

    def fail(_claim: PersistentVolumeClaim, _node: str | None) -> None:
        if failures:
            raise failures.pop()

    scene.writer.on_select = fail
    await scene.passes(GONE_S + 1)
    assert scene.writer.selections == [(CLAIM, None)] * (conflicts + 1)
    assert scene.reasons() == ["SelectedNodeCleared"]


async def test_b6b_after_a_conflict_the_node_of_another_writer_stays() -> None:
    scene = Scene()
    scene.has(selected("n9"))

    def overtake(_claim: PersistentVolumeClaim, _node: str | None) -> None:
        scene.writer.claims[CLAIM], scene.writer.owners[CLAIM] = selected("n2"), "kube-scheduler"
        raise Conflict("changed")

    scene.writer.on_select = overtake
    await scene.passes(GONE_S + 2)
    assert scene.writer.selections == [(CLAIM, None)]
    assert scene.writer.claims[CLAIM] == selected("n2")
    assert scene.reasons() == []


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([Conflict("changed")] * TRIES, id="conflict after conflict"),
        pytest.param([Unavailable("down")], id="no server"),
    ],
)
async def test_b6b_the_node_is_cleared_later_after(errors: list[Exception]) -> None:
    scene = Scene()
    scene.has(selected("n9"))
    failures = list(errors)

    def fail(_claim: PersistentVolumeClaim, _node: str | None) -> None:
        if failures:
            raise failures.pop()

    scene.writer.on_select = fail
    await scene.passes(GONE_S + 2)
    assert scene.reasons() == []
    await scene.passes(AGAIN_S)
    assert scene.reasons() == ["SelectedNodeCleared"]


async def test_a_drain_lets_a_clearing_end() -> None:
    scene = Scene()
    scene.has(selected("n9"))
    await scene.passes(GONE_S)
    scene.clock.move(1.0)
    scene.stale.tick()
    await scene.stale.drain(5.0)
    assert scene.writer.selections == [(CLAIM, None)]


# -- tied pods -----------------------------------------------------------------------------------------------------------


def waiting(*claims: str) -> PodInfo:
    manifest = pod("p").uid("p").scheduler("kubestow")
    for name in claims:
        manifest = manifest.pvc(name)
    return pod_info(manifest.typed())


def tied(scene: Scene, claim: str, node_name: str) -> None:
    volume = a_pv(f"v-{claim}", "1Gi", "fast").on(node_name).claimed_by(claim, uid=f"uid-{claim}").phase("Bound")
    scene.storage.handlers()["PersistentVolume"](Delta(None, volume.typed()))
    scene.has(a_claim(claim, "1Gi", "fast").bound_to(f"v-{claim}").uid(f"uid-{claim}").typed())


FULL = Rejection("NodeResourcesFit", Code.UNSCHEDULABLE, ("Insufficient cpu",))


def notes(scene: Scene, info: PodInfo) -> list[str]:
    slot = scene.cluster.nodes.slot("n1")
    assert slot is not None
    scene.stale.unfit(info, Diagnosis(2, {FULL: 1 << slot}))
    texts = [noted.note for noted in scene.recorder.events]
    scene.recorder.events.clear()
    return texts


def test_b6_volumes_on_different_nodes_are_reported_at_once_on_the_pod_and_each_claim() -> None:
    scene = Scene()
    tied(scene, "a", "n1")
    tied(scene, "b", "n2")
    note = 'volumes of the pod cannot be used together on any node: claim "a" on n1, claim "b" on n2'
    assert notes(scene, waiting("a", "b")) == [note] * 3


def test_b6_a_pod_that_its_volume_ties_to_a_full_node_is_reported_after_a_minute() -> None:
    scene = Scene()
    tied(scene, "a", "n1")
    info = waiting("a")
    scene.pending.set(info)
    assert notes(scene, info) == []
    scene.clock.move(TIED_S)
    assert notes(scene, info) == ['volumes tie the pod to n1: Insufficient cpu (claim "a" on n1)'] * 2


def test_b6_a_pod_that_no_volume_ties_is_not_reported() -> None:
    scene = Scene()
    scene.has(a_claim("a", "1Gi", "fast").typed())
    info = waiting("a")
    scene.pending.set(info)
    notes(scene, info)
    scene.clock.move(TIED_S)
    assert notes(scene, info) == []


BETA, GA = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        pytest.param("a", [], id="every node is in its zone"),
        pytest.param("b", ["volumes of the pod cannot be used together on any node"], id="no node is"),
    ],
)
def test_b6_a_volume_of_an_in_tree_plugin_is_where_its_csi_driver_says(zone: str, expected: list[str]) -> None:
    """Its node affinity has beta labels, which nodes do not have. VolumeBinding translates them."""
    scene = Scene()
    for name in ("n1", "n2"):
        labelled = node(name).label(GA, "a").label("topology.ebs.csi.aws.com/zone", "a")
        scene.cluster.set_node(labelled.typed())
        csi_node = a_csi_node(name).migrated("kubernetes.io/aws-ebs").driver("ebs.csi.aws.com", 25)
        scene.storage.handlers()["CSINode"](Delta(None, csi_node.typed()))
    volume = a_pv("v", "1Gi", "gp2").source(awsElasticBlockStore={"volumeID": "aws://a/vol-1"}).label(BETA, zone)
    volume = volume.where(BETA, zone).claimed_by("a", uid="uid-a").phase("Bound")
    scene.storage.handlers()["PersistentVolume"](Delta(None, volume.typed()))
    scene.has(a_claim("a", "1Gi", "gp2").bound_to("v").uid("uid-a").typed())
    info = waiting("a")
    scene.pending.set(info)

    assert [note.partition(":")[0] for note in notes(scene, info)[:1]] == expected


async def test_a_pod_that_waits_no_more_is_forgotten() -> None:
    scene = Scene()
    tied(scene, "a", "n1")
    info = waiting("a")
    scene.pending.set(info)
    notes(scene, info)
    scene.pending.pop(info.key)
    await scene.passes(1)
    scene.pending.set(info)
    scene.clock.move(TIED_S - 2)
    assert notes(scene, info) == [], "the minute begins again"


def test_parity_reports_nothing_more_than_upstream() -> None:
    scene = Scene(names=())
    tied(scene, "a", "n1")
    tied(scene, "b", "n2")
    assert notes(scene, waiting("a", "b")) == []


def test_a_device_that_ties_the_pod_is_reported_with_its_claim() -> None:
    scene = Scene()
    tied(scene, "a", "n1")
    allocated = a_device_claim("d").request("gpu", "gpu").allocated(a_result("gpu", "gpu.example/n2/g"), on="n2")
    scene.cluster.devices.claims.set(allocated.uid("uid-d").resource_version("1").typed())
    info = pod_info(pod("p").uid("p").scheduler("kubestow").pvc("a").claim("gpu", "d").typed())
    note = 'volumes of the pod cannot be used together on any node: claim "a" on n1, resource claim "d" on n2'
    assert notes(scene, info) == [note] * 2, "on the pod and on the claim of the volume"


# -- selected nodes that refuse the pod -----------------------------------------------------------------------------------


async def refused(scene: Scene, *claims: str, seconds: float = TIED_S) -> None:
    """The pod with these claims is refused, and that many seconds pass."""
    info = waiting(*claims)
    scene.pending.set(info)
    notes(scene, info)
    await scene.passes(seconds)


async def test_a_selected_node_of_ours_that_refuses_the_pod_is_cleared_after_a_minute() -> None:
    scene = Scene()
    scene.has(selected("n1"))
    await refused(scene, "c", seconds=TIED_S - 1)
    assert scene.writer.selections == []
    await scene.passes(1)
    assert scene.writer.selections == [(CLAIM, None)]
    note = (
        'node "n1" does not take pod "default/p": another one can be selected. If no volume comes, delete the claim or '
        "restart the provisioner, which may still request the old node"
    )
    assert [(e.reason, e.note) for e in scene.recorder.events] == [("SelectedNodeCleared", note)]


async def test_all_selected_nodes_of_the_pod_are_cleared() -> None:
    scene = Scene()
    scene.has(selected("n1"))
    scene.has(selected("n2", "e"))
    await refused(scene, "c", "e")
    assert sorted(scene.writer.selections) == [(CLAIM, None), ("default/e", None)]


def _terminating(scene: Scene) -> None:
    scene.cluster.add_pod(pod_info(pod("old").uid("old").bound_to("n1").set(LEAVING).typed()))


LEAVING: Final = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
KEPT: Final[dict[str, Callable[[Scene], object]]] = {
    "a volume ties the pod as well": lambda scene: tied(scene, "e", "n1"),
    "a volume is there that is not bound yet": lambda scene: scene.storage.handlers()["PersistentVolume"](
        Delta(None, a_pv("v", "1Gi", "fast").on("n1").claimed_by("c", uid="uid-c").typed())
    ),
    "a pod is terminating on the node": _terminating,
    "the pod is on its way to the node": lambda scene: scene.cluster.assume(placed(waiting("c", "e"), "n1")),
    "another claim of the pod does not exist": lambda scene: scene.storage.handlers()["PersistentVolumeClaim"](
        Delta(scene.cluster.volumes.claims.get_api("default/e"), None)
    ),
    "the pod has gone": lambda scene: scene.pending.pop("default/p"),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT.keys())
async def test_a_selected_node_that_refuses_the_pod_is_kept_while(change: Callable[[Scene], object]) -> None:
    scene = Scene()
    scene.has(selected("n1"))
    scene.has(a_claim("e", "1Gi", "fast").uid("uid-e").typed())
    await refused(scene, "c", "e", seconds=1)
    change(scene)
    await scene.passes(2 * TIED_S)
    assert (scene.writer.selections, scene.reasons()) == ([], [])


async def test_a_selected_node_of_another_scheduler_that_refuses_the_pod_is_reported_once_a_minute() -> None:
    scene = Scene()
    scene.has(selected("n1"), owner="kube-scheduler")
    await refused(scene, "c", seconds=2 * TIED_S - 1)
    assert (scene.writer.selections, scene.reasons()) == ([], ["StaleSelectedNode"])


async def test_a_pod_that_came_to_its_node_while_the_claim_was_read_keeps_the_selected_node() -> None:
    scene = Scene()
    scene.has(selected("n1"))
    scene.writer.on_read = lambda: scene.cluster.assume(placed(waiting("c"), "n1"))
    await refused(scene, "c")
    assert (scene.writer.selections, scene.reasons()) == ([], [])


@pytest.mark.parametrize("node_name", ["n1", "n9"], ids=["a node that refuses the pod", "b6b a node that is gone"])
async def test_with_parity_no_selected_node_is_cleared(node_name: str) -> None:
    scene = Scene(names=())
    scene.has(selected(node_name))
    await refused(scene, "c", seconds=2 * TIED_S)
    assert (scene.writer.selections, scene.reasons()) == ([], [])
