"""One group on a real control plane, and a daemon that is killed at a chosen write: what is drawn, what is created, and what must hold.

The daemon is behind a proxy (`FaultProxy`). `Stop` names a write: the first `after` of its kind get their answers, the next ones are held back
until the daemon is dead, and are never carried out. So the state at the death of the daemon is that after exactly `after` writes of the kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.api.resource_v1 import FINALIZER
from scheduler.api.storage_v1 import BIND_COMPLETED, NO_PROVISIONER, SELECTED_NODE
from scheduler.groups.preemption import ONGOING
from simulator.apiserver import Fault
from simulator.apiserver.faults import Request
from simulator.builders.claims import a_claim as a_device_claim, a_claim_template, a_result
from simulator.builders.devices import a_device, a_device_class, a_slice, on_node
from tests.e2e.cluster import Cluster, History, Json, collection, each, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME
from tests.e2e.controlplane.process import ServerProcess
from tests.e2e.devices import LAWS, Snapshot, a_priority
from tests.e2e.faultproxy import ProxyStage
from tests.e2e.provisioner import Provisioner
from tests.e2e.test_groups import NAMED_IN, NATIVE, group
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_pv

PATIENCE_S: Final = 90.0
FOR_EVER_S: Final = 3600
GPU: Final = "gpu.example"
MADE: Final = "made.example"
LOW, HIGH = "killed-low", "killed-high"
GROUP: Final = "g"
BINDING: Final[Json] = {"verb": "create", "resource": "pods", "subresource": "binding"}
_WRITTEN: Final = ("pods", "resourceclaims", "persistentvolumeclaims", "persistentvolumes")


def shared_objects() -> Iterator[Json]:
    """What all histories use. Create them before the controllers start: they must know each class before its first claim."""
    yield a_class("local", NO_PROVISIONER).obj()
    yield a_class("made", MADE).obj()
    yield a_device_class("gpu", f"device.driver == '{GPU}'").obj()
    yield a_priority(LOW, 0)
    yield a_priority(HIGH, 1000)


@dataclass(frozen=True)
class Stop:
    """A write at which the daemon is killed: one of these kinds, after this number of them."""

    kinds: tuple[Json, ...]
    after: int = 0

    def __repr__(self) -> str:
        first = self.kinds[0]
        what = f"{first.get('verb', 'write')} {first['resource']}/{first.get('subresource') or ''}".rstrip("/")
        return f"{what if len(self.kinds) == 1 else 'any write'} after {self.after}"


ANY_WRITE: Final = Stop(
    tuple({"verb": verb, "resource": kind} for verb in ("create", "patch", "update", "delete") for kind in _WRITTEN)
)


def patch(resource: str, subresource: str = "") -> tuple[Json]:
    return ({"verb": "patch", "resource": resource, "subresource": subresource},)


@dataclass(frozen=True)
class DrawnGroup:
    """What a history is made of, drawn from its seed."""

    places: tuple[int, ...]
    """How many pods fit on each node, by cpu. There is a device and a local volume for each place."""
    size: int
    """Pods of the group. If it is more than the places, the rest stays pending."""
    least: int
    devices: str = ""
    """`claim` or `template`: one claim for each pod, made by the test or by the controller; `shared`: one for each two pods."""
    volumes: tuple[str, ...] = ()
    """Classes of the claims of each pod: `made` or `local`."""
    grace_s: int | None = None
    """Of the pods of low priority that take all places; None: there are none."""
    is_moved: bool = False
    """After the kill, a node on which a claim is allocated is cordoned, and a new one is added."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"p{at}" for at in range(self.size))

    @property
    def bound_count(self) -> int:
        """Pods of the group that run in the end: those beyond the minimum preempt none."""
        return self.least if self.grace_s is not None else min(self.size, sum(self.places))

    def claim_of(self, at: int) -> str:
        return f"c{at - at % 2 if self.devices == 'shared' else at}"


@dataclass(eq=False)
class Killed:
    """The history: create everything, kill daemons, and wait for the end."""

    stage: ProxyStage
    ns: str
    path: str
    """The kind of the group's object: a collection in the default namespace."""
    plan: DrawnGroup
    rng: random.Random
    history: History = field(default_factory=History)
    prepared: list[int] = field(default_factory=list)
    """How many pods were prepared or bound when a Binding arrived."""

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.stage.admin, self.ns)
        self.stage.proxy.meanwhile = self._look
        self.stops: list[Stop] = []

    # -- objects -------------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Everything, pods last, and wait until the controllers have done their part."""
        await self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.ns}})
        for at, places in enumerate(self.plan.places):
            await self.cluster.create(*self._node_with(self._node(at), places))
        await until(self._volumes_are_available, "volumes that the PV controller knows")
        if self.plan.grace_s is not None:
            await each(range(sum(self.plan.places)), self._add_victim)
        await self.cluster.create(*self._claims())
        await self._post(self.path.replace("default", self.ns), self._group())
        await self.cluster.create(*(self._pod(at) for at in range(self.plan.size)))
        await until(self._claims_are_made, "claims from the template")

    def _node(self, at: int) -> str:
        return f"{self.ns}-n{at}"

    def _node_with(self, name: str, places: int) -> Iterator[Json]:
        yield node(name, cpu=str(places))
        yield a_slice(name, GPU, *(a_device(f"g{at}") for at in range(places))).obj()
        if "local" in self.plan.volumes:
            yield from (a_pv(f"{name}-v{at}", "1Gi", "local").on(name).obj() for at in range(places))

    def _group(self) -> Json:
        made = group(self.path, GROUP, self.plan.least)
        if self.plan.grace_s is not None and self.path == NATIVE:
            made["spec"]["priorityClassName"] = HIGH
        return made

    def _claims(self) -> Iterator[Json]:
        for name, at in zip(self.plan.names, range(self.plan.size), strict=True):
            yield from (a_claim(f"{name}-{kind}", "1Gi", kind, ns=self.ns).obj() for kind in self.plan.volumes)
            if self.plan.devices == "claim" or (self.plan.devices == "shared" and at % 2 == 0):
                yield a_device_claim(self.plan.claim_of(at), ns=self.ns).request("r", "gpu").obj()
        if self.plan.devices == "template":
            yield a_claim_template("t", ns=self.ns).request("r", "gpu").obj()

    def _pod(self, at: int) -> Json:
        name = self.plan.names[at]
        spec: Json = {"terminationGracePeriodSeconds": 0}
        spec["volumes"] = [
            {"name": kind, "persistentVolumeClaim": {"claimName": f"{name}-{kind}"}} for kind in self.plan.volumes
        ]
        if self.plan.devices:
            named = {"resourceClaimName": self.plan.claim_of(at)}
            spec["resourceClaims"] = [
                {"name": "gpu", **({"resourceClaimTemplateName": "t"} if self.plan.devices == "template" else named)}
            ]
        if self.plan.grace_s is not None:
            spec["priorityClassName"] = HIGH
        if self.path == NATIVE:
            spec["schedulingGroup"] = {"podGroupName": GROUP}
        made = pod(name, SCHEDULER_NAME, spec, cpu="1")
        made["metadata"]["namespace"] = self.ns
        if self.path != NATIVE:
            where, key = NAMED_IN[self.path]
            made["metadata"][where] = {key: GROUP}
        return made

    async def _add_victim(self, at: int) -> None:
        """A running pod of low priority at the place of this number, with the device of the place if the group wants devices."""
        places = [(n, place) for n, places in enumerate(self.plan.places) for place in range(places)]
        on, place = self._node(places[at][0]), places[at][1]
        name, spec = f"v{at}", {"priorityClassName": LOW, "nodeName": on}
        claims = [{"name": "gpu", "resourceClaimName": name}] if self.plan.devices else []
        made = pod(
            name,
            "other",
            spec | {"terminationGracePeriodSeconds": self.plan.grace_s, "resourceClaims": claims},
            cpu="1",
        )
        made["metadata"]["namespace"] = self.ns
        if not claims:
            await self.cluster.create(made)
            return
        claim = a_device_claim(name, ns=self.ns).request("r", "gpu").finalizer(FINALIZER)
        await self.cluster.create(claim.obj(), made)
        uid = (await self.cluster.get(f"{self.cluster.pods}/{name}"))["metadata"]["uid"]
        results = [a_result("r", f"{GPU}/{on}/g{place}")]
        status = {
            "allocation": {"devices": {"results": results}, "nodeSelector": on_node(on)},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        await self.cluster.merge(f"{collection('ResourceClaim', self.ns)}/{name}/status", {"status": status})

    async def _post(self, path: str, item: Json) -> None:
        async with self.stage.admin.post(path, json=item) as answer:
            assert answer.status == 201, await answer.text()

    async def _volumes_are_available(self) -> bool:
        volumes = await self._all("PersistentVolume")
        mine = [each for each in volumes if each["metadata"]["name"].startswith(f"{self.ns}-")]
        return all(each["status"].get("phase") == "Available" for each in mine)

    async def _claims_are_made(self) -> bool:
        if self.plan.devices != "template":
            return True
        return all(each["status"].get("resourceClaimStatuses") for each in (await self.members()).values())

    async def move(self) -> None:
        """Take away a node on which a device is allocated, and add one of the same size."""
        used = {at for claim in await self._all("ResourceClaim") for at in _nodes_of(claim)}
        name = self.rng.choice(sorted(used))
        await self.cluster.merge(f"{collection('Node')}/{name}", {"spec": {"unschedulable": True}})
        at = len(self.plan.places)
        await self.cluster.create(*self._node_with(self._node(at), max(self.plan.places)))

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Create everything, with a provisioner and a watch on the pods. In the end, what no later write can mend must hold."""
        await self.create()
        admin, pods = self.stage.admin, self.cluster.pods
        version = (await self.cluster.get(pods))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(self.history.follow(admin, version, pods))
        async with Provisioner(admin, self.ns, MADE, delay_s=self.rng.choice((0.0, 0.2))):
            yield

            async def is_seen() -> bool:
                return set(self.history.nodes_of) >= await self.bound()

            await until(is_seen, "the Bindings in the watch")
            if self.plan.grace_s is not None:
                leaving = await self.leaving_count()
                assert leaving == self.plan.least, f"{leaving} victims for {self.plan.least} pods"
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        self._hold()

    async def wipe(self) -> None:
        """The pods, the nodes and their devices; what else is left is used by no other history."""
        await self.cluster.wipe()
        names = [each["metadata"]["name"] for each in await self._all("ResourceSlice")]
        await each(names, lambda name: self.cluster.delete(f"{collection('ResourceSlice')}/{name}"))

    # -- what there is -------------------------------------------------------------------------------------------------

    async def _all(self, kind: str) -> list[Json]:
        return list((await self.cluster.get(collection(kind, self.ns)))["items"] or [])

    async def members(self) -> dict[str, Json]:
        items = await self._all("Pod")
        return {item["metadata"]["name"]: item for item in items if item["metadata"]["name"] in self.plan.names}

    async def bound(self) -> set[str]:
        return {name for name, item in (await self.members()).items() if item["spec"].get("nodeName")}

    async def reserved(self) -> set[str]:
        """Pods of the group for which a claim is reserved."""
        users = [user["name"] for claim in await self._all("ResourceClaim") for user in _users(claim)]
        return {name for name in users if name in self.plan.names}

    async def leaving_count(self) -> int:
        """How many pods of low priority are terminating or gone."""
        victims = [each for each in await self._all("Pod") if each["metadata"]["name"] not in self.plan.names]
        return sum(self.plan.places) - sum("deletionTimestamp" not in each["metadata"] for each in victims)

    async def selected(self) -> set[str]:
        """Claims for which a node is selected."""
        claims = await self._all("PersistentVolumeClaim")
        return {
            each["metadata"]["name"] for each in claims if SELECTED_NODE in (each["metadata"].get("annotations") or {})
        }

    async def claimed(self) -> set[str]:
        """Volumes that are for a claim of the group, and were not made for it."""
        volumes = await self._all("PersistentVolume")
        mine = (each for each in volumes if (each["spec"].get("claimRef") or {}).get("namespace") == self.ns)
        return {each["metadata"]["name"] for each in mine if each["spec"]["storageClassName"] == "local"}

    async def ready(self) -> set[str]:
        """Pods whose claims are reserved for them, and whose volumes are bound; bound pods are among them."""
        reserved = await self.reserved()
        volumes = await self._all("PersistentVolumeClaim")
        open_claims = {each["metadata"]["name"].partition("-")[0] for each in volumes if not _is_fully_bound(each)}
        return {
            name for name in self.plan.names if name not in open_claims and (name in reserved or not self.plan.devices)
        }

    async def versions(self) -> dict[str, str]:
        """Of all objects that a daemon writes for its pods."""
        kinds = ("Pod", "ResourceClaim", "PersistentVolumeClaim", "PersistentVolume")
        items = [item["metadata"] for kind in kinds for item in await self._all(kind)]
        mine = (each for each in items if each.get("namespace") or each["name"].startswith(f"{self.ns}-"))
        return {each["name"]: each["resourceVersion"] for each in mine}

    # -- daemons -------------------------------------------------------------------------------------------------------

    async def _look(self, request: Request) -> None:
        if request.subresource == "binding":
            self.prepared.append(len(await self.ready()))

    async def kill(self, stop: Stop, *, may_end: bool = False) -> bool:
        """Start a daemon and kill it at this write. With `may_end`, or when all is done: returns False then."""
        proxy = self.stage.proxy
        proxy.faults.clear()
        self.stops.append(stop)
        passed = [Fault(**kind, times=stop.after) for kind in stop.kinds] if stop.after else []
        held = [Fault(**kind, delay_s=FOR_EVER_S, times=None) for kind in stop.kinds]
        proxy.add(*passed, *held, Fault(**BINDING))  # the last one for `_look`
        before = self._answers(stop)
        with self.stage.daemon() as server:

            async def is_there() -> bool:
                is_held = any(rule.hits for rule in held)
                if is_held and self._answers(stop) - before >= stop.after:
                    return True
                if may_end:
                    await self._end_victims()
                return may_end and not is_held and not await self.broken()

            await self._until(is_there, f"the write: {stop}", server)
            server.kill()
        await until(proxy.is_idle, "the end of what the daemon sent before it died")
        proxy.faults.clear()
        return any(rule.hits for rule in held)

    def _answers(self, stop: Stop) -> int:
        """How many writes of these kinds have their answers."""
        count = 0
        for kind in stop.kinds:
            sub = f"/{kind['subresource']}" if kind.get("subresource") else ""
            start = f"{kind['resource']}{sub} "
            for text, number in self.stage.proxy.seen.items():
                verb, _, written = text.partition(" ")
                if kind.get("verb", verb) == verb and written.startswith(start):
                    count += number
        return count

    async def finish(self) -> None:
        """Start a daemon, and wait until everything holds."""
        self.stage.proxy.add(Fault(**BINDING))  # for `_look`
        with self.stage.daemon() as server:

            async def is_over() -> bool:
                await self._end_victims()
                return not await self.broken()

            await self._until(is_over, "a whole group", server)
            assert "Traceback" not in server.output(), server.output()

    async def _end_victims(self) -> None:
        """As kubelets do: pods that are terminating end. They linger until the daemon waits for them."""
        if self.plan.grace_s is None or not await self._is_waited_for():
            return
        for item in await self._all("Pod"):
            name = item["metadata"]["name"]
            if name not in self.plan.names and item["metadata"].get("deletionTimestamp"):
                await self.cluster.delete(f"{self.cluster.pods}/{name}")

    async def _is_waited_for(self) -> bool:
        notes = [event.get("note", "") for event in await self._all("Event")]
        return any(ONGOING in note for note in notes) or await self.leaving_count() >= self.plan.least

    async def _until(self, read: Callable[[], Any], what: str, server: ServerProcess) -> None:
        try:
            await until(read, what, server=server, within_s=PATIENCE_S)
        except AssertionError as failed:
            conditions = {
                name: [c.get("message") for c in item["status"].get("conditions") or ()]
                for name, item in (await self.members()).items()
            }
            raise AssertionError(f"{failed}\nbroken: {await self.broken()}\nconditions: {conditions}") from failed

    # -- laws ----------------------------------------------------------------------------------------------------------

    async def broken(self) -> list[str]:
        """What does not hold yet. All of it must hold in the end."""
        members = await self.members()
        on = {name: item["spec"]["nodeName"] for name, item in members.items() if item["spec"].get("nodeName")}
        broken = [] if len(on) == self.plan.bound_count else [f"{len(on)} pods bound, not {self.plan.bound_count}"]
        for name, item in members.items():
            if nominated := item["status"].get("nominatedNodeName"):
                broken.append(f"{name} is nominated to {nominated}")
        broken += await self._broken_devices(on)
        broken += await self._broken_volumes(on)
        if self.path == NATIVE:
            broken += await self._broken_status()
        return broken

    async def _broken_devices(self, on: dict[str, str]) -> list[str]:
        kinds = {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice", "pods": "Pod", "nodes": "Node"}
        stored = Snapshot({name: await self._all(kind) for name, kind in kinds.items()})
        broken = [sentence for law in LAWS for sentence in law(stored)]
        for claim in stored.objects("resourceclaims"):
            waiting = {user["name"] for user in _users(claim)} & set(self.plan.names) - on.keys()
            broken += [f"{claim['metadata']['name']} is reserved for {user}" for user in sorted(waiting)]
        return broken

    async def _broken_volumes(self, on: dict[str, str]) -> list[str]:
        volumes = {each["metadata"]["name"]: each for each in await self._all("PersistentVolume")}
        claims = {each["metadata"]["name"]: each for each in await self._all("PersistentVolumeClaim")}
        broken = []
        for name, node_name in on.items():
            for kind in self.plan.volumes:
                claim = claims[f"{name}-{kind}"]
                volume = volumes.get(claim["spec"].get("volumeName", ""))
                if claim["status"].get("phase") != "Bound" or volume is None:
                    broken.append(f"{name} runs without its volume {kind}")
                elif volume["spec"]["claimRef"]["uid"] != claim["metadata"]["uid"] or _host(volume) != node_name:
                    broken.append(f"{name} is on {node_name}, and its volume is {volume['spec']}")
        return broken

    async def _broken_status(self) -> list[str]:
        found = await self.cluster.get(f"{self.path.replace('default', self.ns)}/{GROUP}")
        conditions = found.get("status", {}).get("conditions") or []
        is_told = [(each["type"], each["status"]) for each in conditions] == [("PodGroupInitiallyScheduled", "True")]
        return [] if is_told else [f"the group says {conditions}"]

    def _hold(self) -> None:
        """What no later write can mend: no pod was on two nodes or bound twice, and no Binding came too early."""
        moved = {name: nodes for name, nodes in self.history.nodes_of.items() if len(nodes) > 1}
        assert not moved, moved
        seen = self.stage.proxy.seen
        sent = {text: count for text, count in seen.items() if text.startswith("create pods/binding ")}
        assert sent == {"create pods/binding 201": self.plan.bound_count}, sent
        assert min(self.prepared) >= self.plan.least, f"prepared when a Binding came: {self.prepared}"


def _is_fully_bound(claim: Json) -> bool:
    """As kube-scheduler sees it. The PV controller writes `status.phase` after this, and a Binding may come in between.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/binder.go isPVCFullyBound
    """
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def _users(claim: Json) -> list[Json]:
    return list(claim.get("status", {}).get("reservedFor") or [])


def _nodes_of(claim: Json) -> set[str]:
    """The pools of its devices, which have the names of nodes."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return {each["pool"] for each in allocation.get("devices", {}).get("results") or ()}


def _host(volume: Json) -> str:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert expression["key"] == HOSTNAME
    return str(expression["values"][0])
