"""Discovery of kinds and versions, stores, and kinds that move, go and come back (docs/spec/volumes.md §8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, Delta, ObjectDecoder
from scheduler.api.storage_v1 import CSIStorageCapacity
from scheduler.core.errors import ApiError, Forbidden, Unavailable
from scheduler.kube import resources
from scheduler.kube.informers import InformerLag, Informers
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import (
    CAPACITY,
    DEVICES,
    KINDS,
    NODE,
    TAINT_RULE,
    WATCHED_NOW,
    Discovery,
    DiscoveryFailed,
    KindSpec,
    ServedKind,
    discover,
    failed_pods,
    watched,
    with_capacity,
)
from scheduler.kube.store import Store
from tests.support.volumebuilders import a_capacity
from tests.unit.kube import scripted
from tests.unit.kube.scripted import (
    ABSENT,
    Answer,
    Hang,
    LeapingClock,
    ScriptedTransport,
    Step,
    picture,
    raw,
    serves,
    until,
)
from tests.unit.kube.test_reflector import Mirror

BETA = ServedKind("/apis/storage.k8s.io/v1beta1/csistoragecapacities", "v1beta1")
BETA_CLAIMS = ServedKind("/apis/resource.k8s.io/v1beta2/resourceclaims", "v1beta2")
GA_CLAIMS = ServedKind("/apis/resource.k8s.io/v1/resourceclaims", "v1")


CAPACITY_A = a_capacity("a", "s", "1Gi", ns="ns").uid("u-a").resource_version("1").obj()


class Moving(Mirror):
    """A mirror of capacity objects that starts in v1beta1, and its callbacks."""

    def __init__(self, *streams: list[Step], places: list[ServedKind | Exception | None]) -> None:
        self.places, self.told = places, list[tuple[str, str] | bool]()
        super().__init__(
            ScriptedTransport(streams=list(streams)),
            CAPACITY,
            served=BETA,
            decoder=ObjectDecoder("CSIStorageCapacity", CSIStorageCapacity),
            on_batch=self.batch,
            locate=self.locate,
            on_served=self.told.append,
        )

    def batch(self, deltas: list[Delta[CSIStorageCapacity]]) -> None:
        for delta in deltas:
            what = "add" if delta.old is None else "gone" if delta.new is None else "change"
            shown = delta.new or delta.old
            assert shown is not None
            self.told.append((what, shown.key))

    async def locate(self) -> ServedKind | None:
        place = self.places.pop(0)
        if isinstance(place, Exception):
            raise place
        return place

    def paths(self) -> list[str]:
        return [recorded.path.split("/")[3] for recorded in self.transport.recorded]


async def test_a_failed_discovery_does_not_mean_that_the_kind_is_gone() -> None:
    """D2: a discovery that fails says nothing about what is served; it is repeated soon."""
    unanswered = DiscoveryFailed({"storage.k8s.io/v1": "apiservice down"}, {})
    mirror = Moving([picture(CAPACITY_A)], [ABSENT], [ABSENT], [Hang()], places=[unanswered, BETA])
    await mirror.run_through(4)

    assert mirror.told == [("add", "ns/a"), True]
    assert mirror.paths() == ["v1beta1"] * 4
    assert "sendInitialEvents" not in mirror.transport.watches()[-1], "it is resumed, there was no new place"
    assert max(mirror.clock.slept) < 10


async def test_forbidden_is_not_absent() -> None:
    """D8: no discovery and no callback; the request is retried."""
    forbidden = Forbidden("csistoragecapacities is forbidden", status=403)
    mirror = Moving([forbidden], [forbidden], [picture(CAPACITY_A), Hang()], places=[])
    await mirror.run_through(3)

    assert mirror.told == [("add", "ns/a"), True]
    assert mirror.paths() == ["v1beta1"] * 3


@pytest.mark.parametrize(
    ("ga", "beta", "place"),
    [
        pytest.param(serves("resourceclaims"), ABSENT, GA_CLAIMS, id="the better one"),
        pytest.param(serves("resourceclaims"), Unavailable("down"), GA_CLAIMS, id="the better one; the lesser is away"),
        pytest.param(serves("deviceclasses"), serves("resourceclaims"), BETA_CLAIMS, id="the lesser one"),
        pytest.param(ABSENT, ABSENT, None, id="nowhere"),
        pytest.param(Unavailable("down"), serves("resourceclaims"), DiscoveryFailed, id="the better one is away"),
        pytest.param(Forbidden("no", status=403), ABSENT, DiscoveryFailed, id="one is forbidden"),
    ],
)
async def test_where_a_kind_is_by_now(ga: Answer, beta: Answer, place: object) -> None:
    transport = ScriptedTransport(by_path={"/apis/resource.k8s.io/v1": ga, "/apis/resource.k8s.io/v1beta2": beta})
    discovery = Discovery(transport, LeapingClock(), kinds=[CLAIM])

    if place is DiscoveryFailed:
        with pytest.raises(DiscoveryFailed):
            await discovery.locate(CLAIM)
    else:
        assert await discovery.locate(CLAIM) == place
        assert discovery.served == ({} if place is None else {"ResourceClaim": place})


@pytest.mark.parametrize(
    ("version", "kinds"), [("auto", (NODE, CAPACITY)), ("v1", (NODE, CAPACITY)), ("none", (NODE,))]
)
def test_capacity_can_be_left_out(version: str, kinds: tuple[KindSpec, ...]) -> None:
    """D1: only capacity objects are meant."""
    assert with_capacity([NODE, CAPACITY], version) == kinds


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "PersistentVolume": ({"spec": {"capacity": {"storage": "x"}}}, "$.spec.capacity"),
    "PersistentVolumeClaim": ({"spec": {"volumeName": 3}}, "$.spec.volumeName"),
    "StorageClass": ({"allowedTopologies": [{"matchLabelExpressions": 3}]}, "$.allowedTopologies[0]"),
    "CSINode": ({"spec": {"drivers": [{"allocatable": {"count": "3"}}]}}, "$.spec.drivers[0].allocatable.count"),
    "CSIDriver": ({"spec": {"storageCapacity": "yes"}}, "$.spec.storageCapacity"),
    "CSIStorageCapacity": ({"maximumVolumeSize": "1Gi!"}, "$.maximumVolumeSize"),
    "VolumeAttachment": ({"spec": {"source": {"persistentVolumeName": []}}}, "$.spec.source.persistentVolumeName"),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_that_cannot_be_read_names_its_field(kind: str) -> None:
    """It stands in its place in the mirror: tests/unit/kube/test_reflector.py."""
    manifest, field = BAD[kind]
    read = KINDS[kind].decoder().decode(raw({"metadata": {"name": "b"}} | manifest))

    assert isinstance(read, Broken)
    assert (read.kind, read.key) == (kind, "b")
    assert field in read.why


class Rows:
    """Mirrors of nodes, pods and capacity objects, not running."""

    def __init__(self, *found: str) -> None:
        clock = LeapingClock()
        self.discovery = Discovery(ScriptedTransport(), clock, kinds=[])
        self.informers = Informers([KINDS["Pod"], NODE, CAPACITY], self.discovery, clock)
        for name in found:
            self.informers.add(self.made(KINDS[name]))

    def made(self, spec: KindSpec) -> Reflector[Any]:
        decoder = ObjectDecoder(spec.name, CSIStorageCapacity)
        return Mirror(ScriptedTransport(), spec, served=BETA, decoder=decoder).reflector


def test_which_version_is_mirrored() -> None:
    """D9: nothing is said before it is known."""
    rows = Rows("Pod", "Node")
    assert rows.informers.capacity_version() is None
    rows.discovery.answered.set()
    assert rows.informers.capacity_version() == "none"
    rows.informers.add(rows.made(CAPACITY))
    assert rows.informers.capacity_version() == "v1beta1"
    rows.informers.reflectors[CAPACITY.name].stats.absent = True
    assert rows.informers.capacity_version() == "none"


def test_which_kinds_of_devices_are_served() -> None:
    """Of those that decisions go by; nothing is said before it is known (docs/spec/dra.md §6)."""
    rows = Rows("Pod", "Node")
    rows.informers.kinds = (*rows.informers.kinds, *DEVICES)
    assert rows.informers.device_kinds() == {}
    rows.informers.add(rows.made(KINDS["ResourceSlice"]))
    assert rows.informers.device_kinds() == {"ResourceSlice": 1}
    rows.discovery.answered.set()
    assert rows.informers.device_kinds() == {"ResourceClaim": 0, "ResourceSlice": 1, "DeviceClass": 0}
    rows.informers.reflectors["ResourceSlice"].stats.absent = True
    rows.informers.kinds = (*rows.informers.kinds, TAINT_RULE)
    assert rows.informers.device_kinds() == dict.fromkeys(
        ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"), 0
    )


def test_the_lag_where_devices_are_not_served() -> None:
    rows = Rows("Pod", "Node")
    rows.discovery.answered.set()
    for spec in DEVICES:
        assert rows.informers.lag(spec.name) == InformerLag("pods that need devices stay pending", False)
    assert rows.informers.lag(TAINT_RULE.name) == InformerLag("devices are allocated as if no rule tainted them", False)


LACKS = "volumes are placed without a check of the capacity"


def test_what_is_waited_for() -> None:
    """D5, D8: decisions do not wait for capacity that is not served. They wait if it may not be read."""
    rows = Rows("Pod", "Node")
    assert rows.informers.lag(CAPACITY.name) == InformerLag("discovery has not found CSIStorageCapacity", True)
    rows.discovery.answered.set()
    assert rows.informers.lag(CAPACITY.name) == InformerLag(LACKS, False)
    rows.informers.add(rows.made(CAPACITY))
    assert rows.informers.lag(CAPACITY.name) == InformerLag("not synced", True)
    stats = rows.informers.reflectors[CAPACITY.name].stats
    stats.denied = "cannot list csistoragecapacities: no"
    assert rows.informers.lag(CAPACITY.name) == InformerLag(stats.denied, True)
    stats.denied, stats.absent, stats.last_error = "", True, "not found"
    assert rows.informers.lag(CAPACITY.name) == InformerLag(f"{LACKS}: not found", False)
    stats.absent = False
    rows.informers.reflectors[CAPACITY.name].synced.set()
    assert rows.informers.lag(CAPACITY.name) is None


@pytest.mark.parametrize(
    ("kind", "matters"),
    [
        pytest.param("Pod", True, id="a kind that decisions go by"),
        pytest.param("PodDisruptionBudget", False, id="a kind that can be spared"),
    ],
)
def test_a_kind_without_a_list_and_a_watch_for_15_seconds_is_reported(kind: str, matters: bool) -> None:
    rows = Rows(kind)
    reflector = rows.informers.reflectors[kind]
    stats, clock = reflector.stats, reflector.stats.clock
    assert isinstance(clock, LeapingClock)
    reflector.synced.set()
    stats.completed(is_watching=True)
    clock.time_s += 100
    stats.watch_ended()
    clock.time_s += 14
    assert rows.informers.lag(kind) is None
    clock.time_s += 1
    stats.failed()
    stats.last_error = "list: unreadable list"
    why = "no complete list and no watch for 15 s; failures: 1, last: list: unreadable list"
    assert rows.informers.lag(kind) == InformerLag(why, matters)
    stats.completed(is_watching=True)
    assert rows.informers.lag(kind) is None


@pytest.mark.parametrize("way_out", ["absent", "synced"])
async def test_decisions_wait_for_every_kind_that_is_served(way_out: str) -> None:
    """§1.2: until the picture is there, or it turns out that there will be none."""
    rows = Rows("Pod", "Node", "CSIStorageCapacity")
    waiting = asyncio.create_task(rows.informers.complete())
    rows.discovery.answered.set()
    for name in ("Pod", "Node"):
        rows.informers.reflectors[name].synced.set()
    capacity = rows.informers.reflectors[CAPACITY.name]
    capacity.stats.denied = "cannot list"
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    if way_out == "absent":
        capacity.stats.absent = True
    else:
        capacity.synced.set()
    await asyncio.wait_for(waiting, 60)


def test_a_kind_is_synced_from_its_first_list_while_it_is_watched() -> None:
    rows = Rows("Pod")
    assert rows.informers.synced() == {"Pod": 0, "Node": 0, "CSIStorageCapacity": 0}
    rows.discovery.answered.set()
    assert rows.informers.synced() == {"Pod": 0, "Node": 0}

    rows.informers.add(rows.made(CAPACITY))
    pods, capacities = rows.informers.reflectors["Pod"], rows.informers.reflectors[CAPACITY.name]
    pods.synced.set()
    assert rows.informers.synced() == {"Pod": 1, "Node": 0, "CSIStorageCapacity": 0}
    pods.stats.denied = "cannot list pods"
    capacities.synced.set()
    assert rows.informers.synced() == {"Pod": 0, "Node": 0, "CSIStorageCapacity": 1}
    capacities.stats.absent = True
    assert rows.informers.synced() == {"Pod": 0, "Node": 0}


DECODER = ObjectDecoder("Pod", Pod)


def pod(name: str, version: str, uid: str = "u", **spec: Any) -> Pod:
    made = DECODER.decode(scripted.raw(scripted.pod(name, uid=uid, version=version, **spec)))
    assert isinstance(made, Pod)
    return made


def versions(deltas) -> list[tuple[str | None, str | None]]:
    def version_of(obj):
        return obj.metadata.resource_version if obj else None

    return [(version_of(delta.old), version_of(delta.new)) for delta in deltas]


def after(*objects: Pod) -> Store[Pod]:
    store: Store[Pod] = Store()
    store.replace(objects)
    return store


@pytest.mark.parametrize(("new", "expected"), [
    pytest.param(pod("a", "2"), [("1", "2")], id="a newer version is an update"),
    pytest.param(pod("a", "1"), [], id="the object we have is nothing"),
    pytest.param(pod("a", "1", nodeName="n"), [("1", None), (None, "1")],
        id="other content at the version we have is another object: etcd was restored"),
    pytest.param(pod("a", "2", uid="v"), [("1", None), (None, "2")], id="another uid is a deletion and an addition"),
    pytest.param(pod("a", "1", uid="v"), [("1", None), (None, "1")], id="another uid counts even at an equal version"),
    pytest.param(pod("b", "2"), [(None, "2")], id="another name is an addition"),
])  # fmt: skip
def test_set(new, expected):
    deltas: list[Delta[Pod]] = []
    after(pod("a", "1")).set(new, deltas)

    assert expected == versions(deltas)


@pytest.mark.parametrize(
    ("gone", "expected", "left"),
    [
        pytest.param(pod("a", "2"), [("1", None)], 0, id="known"),
        pytest.param(pod("b", "2"), [], 1, id="unknown"),
        pytest.param(pod("a", "2", uid="v"), [], 1, id="the name belongs to another object by now"),
    ],
)
def test_remove(gone, expected, left):
    store = after(pod("a", "1"))
    deltas: list[Delta[Pod]] = []
    store.remove(gone, deltas)

    assert expected == versions(deltas)
    assert left == len(store)


def test_replace_reports_vanished_objects_first():
    store = after(pod("same", "1"), pod("gone", "2"), pod("reused", "3"), pod("newer", "4"))

    deltas, vanished = store.replace(
        [pod("same", "1"), pod("reused", "5", uid="v"), pod("newer", "6"), pod("new", "7")]
    )

    assert [("2", None), ("3", None), (None, "5"), ("4", "6"), (None, "7")] == versions(deltas)
    assert 2 == vanished
    assert {"same", "reused", "newer", "new"} == {obj.metadata.name for obj in store}


def test_replace_compares_content():
    """After an etcd restore a version is given twice. Such an object counts as vanished, like one with another uid."""
    store = after(pod("same", "1"), pod("other", "2"))

    deltas, vanished = store.replace([pod("same", "1"), pod("other", "2", nodeName="n")])

    assert [("2", None), (None, "2")] == versions(deltas)
    assert 1 == vanished


@pytest.mark.parametrize(("new", "is_held"), [
    pytest.param(pod("a", "1"), True, id="the same content at the same version"),
    pytest.param(pod("a", "1", nodeName="n"), False, id="other content at the same version"),
    pytest.param(pod("a", "1", uid="v", nodeName="n"), False, id="another uid"),
    pytest.param(pod("a", "2"), False, id="another version"),
    pytest.param(pod("b", "1"), False, id="another name"),
])  # fmt: skip
def test_held(new, is_held):
    held = pod("a", "1")

    assert (after(held).held(new) is held) == is_held


@pytest.mark.parametrize(
    ("new", "is_news"),
    [
        pytest.param(pod("a", "10"), True, id="a larger number"),
        pytest.param(pod("a", "9"), False, id="the same"),
        pytest.param(pod("a", "8"), False, id="a smaller number"),
        pytest.param(pod("a", "x"), False, id="no number"),
        pytest.param(pod("a", "9" * 5000), False, id="more digits than any version has"),
        pytest.param(pod("b", "1"), True, id="another name"),
    ],
)
def test_is_news(new, is_news):
    assert after(pod("a", "9")).is_news(new) == is_news


CAPACITY_KIND, CLAIM, POD = KINDS["CSIStorageCapacity"], KINDS["ResourceClaim"], KINDS["Pod"]


def test_the_table_is_consistent():
    assert len({(spec.group, spec.plural) for spec in KINDS.values()}) == len(KINDS)
    assert all(spec.typ is not None for spec in WATCHED_NOW)
    assert ("", "storage.k8s.io") == (POD.group, CAPACITY_KIND.group)


def test_pods_nodes_and_the_kinds_that_plugins_read_are_watched():
    assert [spec.name for spec in watched(())] == ["Pod", "Node"]
    assert [spec.name for spec in watched(["Service", "Namespace"])] == ["Pod", "Node", "Namespace", "Service"]


async def test_a_group_version_is_requested_once_for_all_its_kinds():
    transport = ScriptedTransport(by_path={"/api/v1": serves("pods", "nodes")})

    found = await discover(transport, [KINDS["Pod"], KINDS["Node"]])

    assert {"Pod": ServedKind("/api/v1/pods", "v1"), "Node": ServedKind("/api/v1/nodes", "v1")} == found
    assert ["/api/v1"] == transport.paths("GET")


async def test_a_failing_group_does_not_affect_other_groups_or_choose_an_older_version():
    transport = ScriptedTransport(
        by_path={
            "/api/v1": serves("pods"),
            "/apis/resource.k8s.io/v1": Unavailable("apiservice down", status=503),
            "/apis/resource.k8s.io/v1beta2": b"<html>",
        }
    )

    with pytest.raises(DiscoveryFailed) as caught:
        await discover(transport, [POD, CLAIM])

    assert {"Pod": ServedKind("/api/v1/pods", "v1")} == caught.value.served
    failed = [cause.partition(":")[0] for cause in str(caught.value).split("; ")]
    assert ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"] == failed


async def test_discovery_of_missing_kinds_is_repeated():
    clock = LeapingClock()
    transport = ScriptedTransport(
        answers=[Unavailable("starting", status=503), ABSENT, ABSENT, serves("resourceclaims"), ABSENT]
    )
    discovery = Discovery(transport, clock, kinds=[CLAIM])
    found: list[tuple[str, str]] = []
    transport.answers[1:1] = [Unavailable("starting")]

    task = asyncio.create_task(discovery.run(lambda spec, served: found.append((spec.name, served.version))))
    await until(lambda: len(clock.slept) == 1)
    assert not discovery.answered.is_set()
    assert "starting" in discovery.last_error
    await until(lambda: len(clock.slept) == 2)
    assert discovery.answered.is_set()
    assert ["ResourceClaim"] == list(discovery.missing)
    await task

    assert [1.0, 60.0] == clock.slept
    assert [("ResourceClaim", "v1")] == found
    assert not list(discovery.missing)


PARTLY = "resource.k8s.io/v1: overloaded; resource.k8s.io/v1beta2: connection refused"


async def test_an_unreachable_server_is_logged_once_a_minute(monkeypatch):
    refused, overloaded = Unavailable("connection refused"), Unavailable("overloaded", status=503)
    answers: list[bytes | ApiError] = [*[refused] * 24, *[overloaded] * 3, refused]  # two in each round
    transport = ScriptedTransport(answers=[*answers, serves("resourceclaims"), ABSENT])
    clock = LeapingClock()
    discovery = Discovery(transport, clock, kinds=[CLAIM], server="https://10.0.0.1:6443")
    with structlog.testing.capture_logs() as said:
        monkeypatch.setattr(resources, "_log", structlog.get_logger())
        await discovery.run(lambda spec, served: None)

    assert [(line["event"], line.get("error", "")) for line in said] == [
        ("the API server does not answer", "connection refused"),
        ("the API server does not answer", "connection refused"),
        ("the API server does not answer", "overloaded"),
        ("API discovery is incomplete", PARTLY),
        ("the API server answers again", ""),
    ]
    assert {line["server"] for line in said} == {"https://10.0.0.1:6443"}


async def test_a_server_that_is_away_for_long_is_found_soon_after_it_is_back():
    clock, transport = LeapingClock(), ScriptedTransport(answers=[*[Unavailable("away")] * 8, serves("pods")])
    await Discovery(transport, clock, kinds=[POD]).run(lambda spec, served: None)

    assert [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0] == clock.slept


@pytest.mark.parametrize(
    ("profile", "selector"),
    [
        pytest.param("kubestow", "status.phase=Failed,spec.schedulerName=kubestow", id="a plain name"),
        pytest.param("a,b=c", r"status.phase=Failed,spec.schedulerName=a\,b\=c", id="a name with the selector's signs"),
        pytest.param("a\\b", r"status.phase=Failed,spec.schedulerName=a\\b", id="a name with a backslash"),
    ],
)
def test_failed_pods_are_watched_by_profile(profile, selector):
    """Where pods are served, each row with its own name."""
    spec = failed_pods(profile)

    assert (selector, "pods", ("v1",)) == (spec.field_selector, spec.plural, spec.group_versions)
    assert spec.name == f"FailedPod/{profile}"
