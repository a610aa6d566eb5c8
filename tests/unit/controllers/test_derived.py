"""Nominations derived from claims: when they begin and end, and how long they reserve capacity (docs/adr/0012)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from scheduler.api.decode import Delta
from scheduler.api.storage_v1 import NO_PROVISIONER
from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from simulator.builders.claims import a_claim as a_device_claim, a_result
from simulator.builders.core import Builder
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_pv
from tests.unit.harness import SchedulerHarness, manifest, read_pod
from tests.unit.scenarios.device_harness import DeviceHarness
from tests.unit.scenarios.seen import OTHERS

RACK: Final = "rack"
GPU: Final = "gpu.example/n1/g0"
_versions = itertools.count(1_000_000)

Change = Callable[["Scene"], object]


class Scene:
    """Nodes n1 to n3, of which n1 and n2 are in rack a and n3 in rack b, and what the watch has shown."""

    def __init__(self, args: KubestowArgs | None = None, *, nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        profile = KubeSchedulerProfile(OUR_NAME, args={KubestowArgs.plugin: args or KubestowArgs()})
        self.sched = SchedulerHarness(Configuration(profiles=(profile,)))
        self._shown: dict[tuple[str, str], Any] = {}
        for name in nodes:
            self.node(name)
        self.shows(a_class("local", NO_PROVISIONER))
        self.shows(a_class("made", "made.example"))

    def node(self, name: str, rack: str = "", **more: Any) -> None:
        labels = {HOSTNAME: name, RACK: rack or ("b" if name == "n3" else "a")}
        self.sched.node(name, labels=labels, **more)

    def shows(self, builder: Builder[Any]) -> None:
        """The object comes or changes."""
        raw = builder.obj()
        kind, name = raw["kind"], raw["metadata"]["name"]
        new = builder.uid(f"uid-{name}").resource_version(str(next(_versions))).typed()
        self.sched.parts.event_handlers.apply(kind, [Delta(self._shown.get((kind, name)), new)])
        self._shown[kind, name] = new
        where: Any = {
            "PersistentVolume": self.sched.writer.volumes,
            "PersistentVolumeClaim": self.sched.writer.claims,
        }.get(kind)
        if where is not None:
            where[new.key] = new

    def hides(self, kind: str, name: str) -> None:
        """The object goes."""
        self.sched.parts.event_handlers.apply(kind, [Delta(self._shown.pop((kind, name)), None)])

    def pod(self, name: str = "p", *claims: str, devices: tuple[str, ...] = (), **more: Any) -> None:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        entries = [{"name": claim, "resourceClaimName": claim} for claim in devices]
        self.sched.pod(name, **({"volumes": volumes} if volumes else {}), resourceClaims=entries, **more)

    def nominated(self, name: str = "p") -> str:
        """The node of the pod's derived nomination, before any pod is tried."""
        self.sched.parts.derived.tick()
        return self.sched.parts.queue.nominator.derived_node(f"uid-{name}")

    def binds(self) -> dict[str, str]:
        return {key.removeprefix("default/"): node for key, node in self.sched.writer.binds}


def selected(name: str, node_name: str) -> Change:
    return lambda scene: scene.shows(a_claim(name, "1Gi", "made").selected(node_name))


def local(claim: str, *nodes: str, uid: str = "", name: str = "v") -> Change:
    """A local volume on these nodes whose claimRef names the claim."""
    volume = a_pv(name, "1Gi", "local").claimed_by(claim, uid=uid or f"uid-{claim}")
    return lambda scene: scene.shows(volume.where(HOSTNAME, *nodes) if nodes else volume)


def in_rack(claim: str, rack: str) -> Change:
    return lambda scene: scene.shows(a_pv("v", "1Gi", "local").claimed_by(claim, uid=f"uid-{claim}").where(RACK, rack))


def bound(name: str, volume: str = "v") -> Change:
    return lambda scene: scene.shows(a_claim(name, "1Gi", "local").bound_to(volume))


def open_(name: str, class_name: str = "local") -> Change:
    return lambda scene: scene.shows(a_claim(name, "1Gi", class_name))


def device_on(node_name: str) -> Change:
    claim = a_device_claim("d").request("gpu", "gpu").allocated(a_result("gpu", GPU), on=node_name)
    return lambda scene: scene.shows(claim)


def device_in(rack: str) -> Change:
    claim = a_device_claim("d").request("gpu", "gpu").allocated(a_result("gpu", GPU)).usable_where(RACK, rack)
    return lambda scene: scene.shows(claim)


def both(*changes: Change) -> Change:
    return lambda scene: [change(scene) for change in changes]


def pod(*claims: str, devices: tuple[str, ...] = (), **more: Any) -> Change:
    return lambda scene: scene.pod("p", *claims, devices=devices, **more)


DERIVED: Final[dict[str, tuple[tuple[Change, ...], str]]] = {
    "a claim has a selected node": ((selected("c", "n1"), pod("c")), "n1"),
    "a bound claim has a volume on one node": ((local("c", "n2"), bound("c"), pod("c")), "n2"),
    "a volume on one node names an open claim": ((local("c", "n2"), open_("c"), pod("c")), "n2"),
    "a volume that a user reserved for the claim by name is on one node": (
        (lambda s: s.shows(a_pv("v", "1Gi", "local").claimed_by("c").on("n2")), open_("c"), pod("c")),
        "n2",
    ),
    "a provisioned volume that is not bound yet beats the selected node": (
        (local("c", "n2"), selected("c", "n1"), pod("c")),
        "n2",
    ),
    "an allocated resource claim can be used on one node": ((device_on("n1"), pod(devices=("d",))), "n1"),
    "an allocated resource claim can be used in a rack of one node": ((device_in("b"), pod(devices=("d",))), "n3"),
    "a volume of a rack and a device of a node meet in one node": (
        (in_rack("c", "a"), bound("c"), device_on("n2"), pod("c", devices=("d",))),
        "n2",
    ),
    "one claim of two is tied": ((selected("c", "n1"), open_("e"), pod("c", "e")), "n1"),
    "the claim comes after the pod": ((pod("c"), selected("c", "n1")), "n1"),
    "the node comes after the claim": ((pod("c"), selected("c", "n4"), lambda s: s.node("n4")), "n4"),
    "the volume comes after the claim": ((pod("c"), open_("c"), local("c", "n1")), "n1"),
    "the pod has a status nomination elsewhere": ((selected("c", "n1"), pod("c", nominated="n2")), "n1"),
    # Not derived:
    "no claim is tied": ((open_("c"), pod("c")), ""),
    "the pod has no claims": ((pod(),), ""),
    "the selected node does not exist": ((selected("c", "n9"), pod("c")), ""),
    "the volume can be used in a rack of two nodes": ((in_rack("c", "a"), bound("c"), pod("c")), ""),
    "the volume can be used everywhere": ((local("c"), bound("c"), pod("c")), ""),
    "two claims name different nodes": ((selected("c", "n1"), selected("e", "n2"), pod("c", "e")), ""),
    "another claim of the pod does not exist": ((selected("c", "n1"), pod("c", "e")), ""),
    "the volume of a bound claim does not exist": ((bound("c"), pod("c")), ""),
    "the volume names an earlier claim of that name": ((local("c", "n1", uid="before"), open_("c"), pod("c")), ""),
    "the resource claim is not allocated": (
        (lambda s: s.shows(a_device_claim("d").request("gpu", "gpu")), pod(devices=("d",))),
        "",
    ),
    "the pod is gated": ((selected("c", "n1"), pod("c", gates=("wait",))), ""),
    "the pod is terminating": ((selected("c", "n1"), pod("c", deleting=True)), ""),
    "status nominates to the same node": ((selected("c", "n1"), pod("c", nominated="n1")), ""),
}


@pytest.mark.parametrize(("steps", "node_name"), DERIVED.values(), ids=DERIVED.keys())
def test_a_pod_counts_as_nominated_to_the_one_node_that_its_claims_leave(
    steps: tuple[Change, ...], node_name: str
) -> None:
    for each in (steps, tuple(reversed(steps))):
        scene = Scene()
        for step in each:
            step(scene)
        assert scene.nominated() == node_name


TIED: Final = (in_rack("c", "b"), bound("c"), pod("c"))
SELECTED: Final = (selected("c", "n1"), pod("c"))
NO_DEVICE: Final = a_device_claim("d").request("gpu", "gpu")
ENDS: Final[dict[str, tuple[tuple[Change, ...], Change, str]]] = {
    "the selected node is cleared": (SELECTED, open_("c", "made"), ""),
    "the selected node changes": (SELECTED, selected("c", "n2"), "n2"),
    "the claim goes": (SELECTED, lambda s: s.hides("PersistentVolumeClaim", "c"), ""),
    "the node goes": (SELECTED, lambda s: s.sched.node_gone("n1"), ""),
    "the volume goes": (TIED, lambda s: s.hides("PersistentVolume", "v"), ""),
    "the volume is given to another claim": ((local("c", "n1"), open_("c"), pod("c")),
        lambda s: s.shows(a_pv("v", "1Gi", "local").claimed_by("e", uid="uid-e").on("n1")), ""),
    "a second node comes into the rack": (TIED, lambda s: s.node("n4", rack="b"), ""),
    "the rack of the volume moves to another node": (TIED,
        both(lambda s: s.node("n3", rack="c"), lambda s: s.node("n2", rack="b")), "n2"),
    "the device is given back": ((device_on("n1"), pod(devices=("d",))), lambda s: s.shows(NO_DEVICE), ""),
    "a second node comes into the rack of the device": ((device_in("b"), pod(devices=("d",))),
        lambda s: s.node("n4", rack="b"), ""),
    "the pod goes": (SELECTED, lambda s: s.sched.gone("p"), ""),
    "the pod is bound by another scheduler": (SELECTED, pod("c", on="n2"), ""),
    "the pod is deleted": (SELECTED, pod("c", deleting=True), ""),
    "the pod changes in other ways": (SELECTED, pod("c", labels={"a": "b"}), "n1"),
    "another pod of that name takes its place": (SELECTED,
        both(lambda s: s.sched.gone("p"), lambda s: s.sched.pod("p", uid="uid-q")), ""),
    "status nominates to the same node": (SELECTED, pod("c", nominated="n1"), ""),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "change", "node_name"), ENDS.values(), ids=ENDS.keys())
def test_a_derived_nomination_follows_the_objects(steps: tuple[Change, ...], change: Change, node_name: str) -> None:
    scene = Scene()
    for step in steps:
        step(scene)
    assert scene.nominated()
    change(scene)
    assert scene.nominated() == node_name
    nominator = scene.sched.parts.queue.nominator
    assert [name for name, _ in nominator.pods()] == (
        [nominator.node_of("uid-p")] if nominator.node_of("uid-p") else []
    )


@pytest.mark.parametrize(
    "args", [KubestowArgs(parity=True), KubestowArgs(derived_nominations="none")], ids=["parity", "none"]
)
def test_nothing_is_derived_where_the_switch_is_off(args: KubestowArgs) -> None:
    scene = Scene(args)
    selected("c", "n1")(scene)
    pod("c")(scene)
    assert scene.nominated() == ""


def test_a_claim_that_a_scheduler_made_for_extended_resources_ties_its_pod() -> None:
    """The pod does not name the claim. The claim's owner reference names the pod."""
    scene = Scene()
    scene.sched.pod("p", containers=[{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}])
    assert scene.nominated() == ""
    made = a_device_claim("made").for_extended_resources().owned_by("p", "uid-p").request("gpu", "gpu")
    scene.shows(made.allocated(a_result("gpu", GPU), on="n1"))
    assert scene.nominated() == "n1"
    scene.hides("ResourceClaim", "made")
    assert scene.nominated() == ""


def test_a_claim_from_a_template_ties_its_pod_once_the_status_names_it() -> None:
    scene = Scene()
    scene.shows(
        a_device_claim("made").owned_by("p", "uid-p").request("g", "gpu").allocated(a_result("g", GPU), on="n1")
    )
    spec = {"resourceClaims": [{"name": "e", "resourceClaimTemplateName": "t"}]}
    for named, node_name in ((False, ""), (True, "n1")):
        raw = manifest("p", **spec)
        raw["status"]["resourceClaimStatuses"] = [{"name": "e", "resourceClaimName": "made"}] if named else []
        new = read_pod(raw)
        scene.sched.parts.event_handlers.apply("Pod", [Delta(scene.sched.seen.get("p"), new)])
        scene.sched.seen["p"] = new
        assert scene.nominated() == node_name


def test_nothing_is_remembered_of_pods_that_have_gone() -> None:
    scene = Scene()
    for step in (in_rack("c", "b"), bound("c"), device_in("b"), pod("c", devices=("d",))):
        step(scene)
    assert scene.nominated() == "n3"
    scene.sched.gone("p")
    scene.nominated()
    derived, places = scene.sched.parts.derived, scene.sched.parts.queue.places
    left = [derived._entries, derived._uids, derived._dirty, derived._by_topic, derived._by_group, derived._checked]
    assert [each for each in (*left, places.first, places.followed) if each] == []


# -- the order of the queue ------------------------------------------------------------------------------------------

APART: Final[dict[str, Any]] = {
    "labels": {"app": "a"},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOSTNAME}
            ]
        }
    },
}


def with_volume(scene: Scene, node_name: str) -> None:
    """Claim c, bound to a volume on this node."""
    local("c", node_name)(scene)
    bound("c")(scene)


@pytest.mark.parametrize(
    ("parity", "rival", "is_first", "bound"),
    [
        pytest.param(False, {}, True, "tied", id="before an older pod of its priority"),
        pytest.param(False, {"priority": 1}, False, "rival", id="after a pod of higher priority"),
        pytest.param(True, {}, True, "rival", id="with parity after an older pod"),
    ],
)
async def test_a_tied_pod_is_tried(parity: bool, rival: dict[str, Any], is_first: bool, bound: str) -> None:
    scene = Scene(KubestowArgs(parity=parity), nodes=("n1",))
    with_volume(scene, "n1")
    shows = [lambda: scene.pod("rival", **rival, **APART), lambda: scene.pod("tied", "c", **APART)]
    for show in shows if is_first else reversed(shows):
        show()
    await scene.sched.settle()
    assert scene.binds() == {bound: "n1"}


# -- reserved capacity -----------------------------------------------------------------------------------------------


async def waiting(*, is_leaving: bool) -> Scene:
    """Pod `tied` has been refused: it requests 3 of the 4 CPUs of n1, and `holder` has 2."""
    scene = Scene(nodes=("n1",))
    scene.sched.pod("holder", cpu="2", on="n1", deleting=is_leaving)
    with_volume(scene, "n1")
    scene.pod("tied", "c", cpu="3")
    await scene.sched.settle()
    assert scene.sched.places()["tied"] == "unschedulable"
    return scene


async def test_a_refused_pod_keeps_its_capacity_until_a_terminating_pod_has_left() -> None:
    scene = await waiting(is_leaving=True)
    scene.pod("other", cpu="2")
    await scene.sched.settle()
    assert (scene.binds(), scene.nominated("tied")) == ({}, "n1")
    scene.sched.gone("holder")
    await scene.sched.later(2)
    assert scene.binds() == {"tied": "n1"}


async def test_a_pod_of_higher_priority_does_not_respect_the_capacity() -> None:
    scene = await waiting(is_leaving=True)
    scene.pod("high", cpu="2", priority=1)
    await scene.sched.settle()
    assert scene.binds() == {"high": "n1"}
    assert scene.nominated("tied") == ""


async def test_a_refused_pod_that_cannot_fit_keeps_no_capacity() -> None:
    scene = await waiting(is_leaving=False)
    scene.pod("other", cpu="2")
    await scene.sched.settle()
    assert (scene.binds(), scene.nominated("tied")) == ({"other": "n1"}, "")


async def test_a_refused_pod_keeps_capacity_again_when_a_pod_begins_to_terminate() -> None:
    scene = await waiting(is_leaving=False)
    scene.sched.pod("holder", cpu="2", on="n1", deleting=True)
    scene.pod("other", cpu="2")
    await scene.sched.settle()
    assert (scene.binds(), scene.nominated("tied")) == ({}, "n1")


async def test_the_end_of_a_derived_nomination_wakes_pods() -> None:
    """Another pod was refused because of the nomination."""
    scene = Scene(nodes=("n1",))
    scene.sched.pod("holder", cpu="2", on="n1", deleting=True)
    with_volume(scene, "n1")
    scene.pod("tied", "c", cpu="3")
    scene.pod("other", cpu="2")
    await scene.sched.settle()
    assert scene.binds() == {}
    scene.sched.gone("tied")
    await scene.sched.later(2)
    assert scene.binds() == {"other": "n1"}


async def test_a_gated_pod_keeps_no_capacity_until_its_gate_is_open() -> None:
    scene = Scene(nodes=("n1",))
    with_volume(scene, "n1")
    scene.pod("tied", "c", cpu="3", gates=("wait",))
    assert scene.nominated("tied") == ""
    scene.pod("tied", "c", cpu="3")
    assert scene.nominated("tied") == "n1"


async def test_two_pods_tied_to_one_node_do_not_block_each_other() -> None:
    """One of them is bound in its first or second attempt. The other is refused and keeps no capacity."""
    scene = Scene(nodes=("n1",))
    with_volume(scene, "n1")
    for name in ("a", "b"):
        scene.pod(name, "c", cpu="3")
    for _ in range(5):
        await scene.sched.later(2)
    assert len(scene.binds()) == 1
    left = ({"a", "b"} - scene.binds().keys()).pop()
    assert (scene.sched.places(), scene.nominated(left)) == ({left: "unschedulable"}, "")


async def test_free_devices_are_kept_for_a_pod_that_waits_for_further_devices() -> None:
    """The pod has d0 and needs two more. d2 is free, and a terminating pod has d1."""
    cluster = DeviceHarness(3)
    cluster.holds("v", "d1", users=("v",))
    cluster.uses("v", "v", on="n1", deleting=True, **OTHERS)
    cluster.holds("own", "d0", users=("tied",))
    cluster.show(cluster.claim("c-tied", count=2))
    cluster.uses("tied", "own", "c-tied", priority=10)
    cluster.comes("other")
    await cluster.settle()
    assert (cluster.tried, cluster.writer.binds) == (["tied", "other"], [])
    cluster.gone("v")
    cluster.frees("v")
    await cluster.later(30)
    assert cluster.writer.binds == [("default/tied", "n1")]
    assert sorted(cluster.devices_of("tied")) == ["d1", "d2"]
    assert cluster.writer.nominations == []


# -- nominations of another scheduler --------------------------------------------------------------------------------


async def test_a_foreign_nomination_and_a_derived_one_on_one_node_are_both_respected() -> None:
    """Of four CPUs the foreign pod is to have one, the tied pod two, and a terminating pod still has two."""
    scene = Scene(nodes=("n1",))
    scene.sched.pod("holder", cpu="2", on="n1", deleting=True)
    scene.sched.pod("foreign", cpu="1", scheduler="other", nominated="n1")
    with_volume(scene, "n1")
    scene.pod("tied", "c", cpu="2")
    scene.pod("small", cpu="1")
    await scene.sched.settle()
    assert (scene.binds(), scene.nominated("tied")) == ({}, "n1")
    scene.sched.gone("holder")
    await scene.sched.later(2)
    assert scene.binds() == {"tied": "n1", "small": "n1"}
    assert [p.key for p in scene.sched.parts.queue.nominator.for_node("n1")] == ["default/foreign"]


async def test_a_tied_pod_yields_to_a_foreign_nomination_until_it_ends() -> None:
    """Only one of the two pods fits."""
    scene = Scene(nodes=("n1",))
    scene.sched.pod("foreign", cpu="3", scheduler="other", nominated="n1")
    with_volume(scene, "n1")
    scene.pod("tied", "c", cpu="3")
    for _ in range(5):
        await scene.sched.later(2)
    attempts = {entry.key: entry.attempts for entry in scene.sched.parts.queue.entries()}
    assert (scene.binds(), scene.nominated("tied"), attempts) == ({}, "", {"default/tied": 1})
    scene.sched.pod("foreign", cpu="3", scheduler="other")
    await scene.sched.later(2)
    assert scene.binds() == {"tied": "n1"}


# -- output ----------------------------------------------------------------------------------------------------------


async def test_the_queue_shows_the_node_and_the_source_of_a_nomination() -> None:
    scene = await waiting(is_leaving=True)
    scene.pod("status", nominated="n1", gates=("wait",))
    scene.pod("none", cpu="4")
    await scene.sched.settle()
    shown = {
        e.key.removeprefix("default/"): (e.nominated_to, e.nominated_by) for e in scene.sched.parts.queue.entries()
    }
    assert shown == {"tied": ("n1", "derived"), "status": ("n1", "status"), "none": ("", "")}


async def test_no_status_is_written_for_a_derived_nomination() -> None:
    scene = await waiting(is_leaving=True)
    assert {node for _, node in scene.sched.writer.nominations} <= {""}
    assert "nominatedNodeName" not in str(scene.sched.writer.wire)


async def test_the_worked_example() -> None:
    """The steps of the docstring of derived_nominations."""
    scene = Scene(nodes=("n1", "n2"))
    full: dict[str, Any] = {"on": "n2", "cpu": "4", **OTHERS}
    scene.pod("old", **full)
    scene.shows(a_claim("data", "1Gi", "made").selected("n2"))
    scene.shows(a_claim("logs", "1Gi", "made"))
    scene.pod("db", "data", "logs", cpu="4")
    assert scene.nominated("db") == "n2"

    await scene.sched.settle()
    assert (scene.sched.writer.binds, scene.nominated("db")) == ([], "")

    scene.pod("old", **full, deleting=True)
    assert scene.nominated("db") == "n2"

    local("logs", "n1")(scene)
    assert scene.nominated("db") == ""
    scene.hides("PersistentVolumeClaim", "logs")
    assert scene.nominated("db") == ""
