"""An external provisioner for one namespace of a real API server, with simulated storage.

It makes volumes for claims whose node is selected and that the PV controller has handed to it, while the node has free
space. When it cannot, it removes the selection, as after ResourceExhausted. Its nodes have no CSINodes: like a provisioner
without a CSI driver, whose library (up to v12) looks at the Node, it also removes the selection of a node that is gone. The
CSIStorageCapacity that it publishes is as old as the last publication (docs/spec/volumes.md §6.7)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from aiohttp import ClientSession

from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import SELECTED_NODE, STORAGE_PROVISIONERS
from tests.actors.storage_space import Space
from tests.e2e.cluster import NODES, Json, collection, pod_events
from tests.support.volumebuilders import HOSTNAME, a_capacity, a_pv

_AGAIN_S: Final = 0.2
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_VOLUMES: Final = collection("PersistentVolume")


class Call(NamedTuple):
    """One request to make a volume; `number` counts from 1."""

    number: int
    claim: str
    node: str


Refuses: TypeAlias = Callable[[Call], bool]


class Provisioner:
    """`async with` runs it. `capacities` is bytes by node name; without it there is no limit.

    A call that `refuses` gives no volume. `keeps_trying`: then the selection stays, and the call is made again.
    `publishes_every_s` keeps a capacity object per node and class of this driver."""

    def __init__(
        self,
        http: ClientSession,
        namespace: str,
        driver: str,
        *,
        delay_s: float = 0,
        capacities: Mapping[str, int] | None = None,
        refuses: Refuses | None = None,
        keeps_trying: bool = False,
        publishes_every_s: float | None = None,
    ) -> None:
        self.driver = driver
        self.space = None if capacities is None else Space(capacities)
        self.calls: list[Call] = []
        self.taken_back: list[Call] = []
        self._http = http
        self._claims = collection("PersistentVolumeClaim", namespace)
        self._capacities = collection("CSIStorageCapacity", namespace)
        self._namespace = namespace
        self._delay_s = delay_s
        self._refuses = refuses
        self._keeps_trying = keeps_trying
        self._publishes_every_s = publishes_every_s
        self._newest: dict[str, Json] = {}
        """By uid, as the watch shows them."""
        self._busy: set[str] = set()
        self._made: set[str] = set()
        """Claims that have their volume, whether the PV controller has bound it yet or not."""
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._publishes_every_s is not None:
            await self.publish()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Raises the error that ended it, if any."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group, self._http.get(self._claims) as answer:
            listed = await answer.json()
            if self._publishes_every_s:
                group.create_task(self._publish_again(self._publishes_every_s))
            for claim in listed["items"]:
                self._see(claim, group)
            async for event in pod_events(self._http, listed["metadata"]["resourceVersion"], self._claims):
                if event["type"] == "DELETED":
                    self._newest.pop(event["object"]["metadata"]["uid"], None)
                else:
                    self._see(event["object"], group)

    # -- volumes -------------------------------------------------------------------------------------------------------

    def _see(self, claim: Json, group: asyncio.TaskGroup) -> None:
        uid = claim["metadata"]["uid"]
        self._newest[uid] = claim
        if self._node(claim) and uid not in self._busy | self._made:
            self._busy.add(uid)
            group.create_task(self._serve(claim["metadata"]["name"], uid, group))

    async def _serve(self, name: str, uid: str, group: asyncio.TaskGroup) -> None:
        await self._provision(name, uid)
        self._busy.discard(uid)
        if uid in self._newest:  # what was selected again in the meantime went unheard
            self._see(self._newest[uid], group)

    def _node(self, claim: Json) -> str:
        """The selected node, if the claim is for this driver."""
        given = claim["metadata"].get("annotations") or {}
        is_open = not claim["spec"].get("volumeName") and not claim["metadata"].get("deletionTimestamp")
        return (
            str(given.get(SELECTED_NODE, "")) if is_open and given.get(STORAGE_PROVISIONERS[0]) == self.driver else ""
        )

    async def _provision(self, name: str, uid: str) -> None:
        """Until the claim has a volume, or is no longer for this driver."""
        while True:
            await asyncio.sleep(self._delay_s)
            claim = await self._get(f"{self._claims}/{name}")
            is_there = claim is not None and claim["metadata"]["uid"] == uid
            if claim is None or not is_there or uid in self._made or not (node := self._node(claim)):
                return
            call = Call(len(self.calls) + 1, name, node)
            self.calls.append(call)
            found = await self._get(f"{NODES}/{node}")
            if found is not None and self._fits(claim, call):
                await self._create(claim, found)
            elif found is None or not self._keeps_trying:
                await self._take_back(claim, call)
            await asyncio.sleep(_AGAIN_S)

    def _fits(self, claim: Json, call: Call) -> bool:
        if self._refuses is not None and self._refuses(call):
            return False
        size = parse(claim["spec"]["resources"]["requests"]["storage"]).value
        return self.space is None or self.space.take(claim["metadata"]["uid"], call.node, size)

    async def _create(self, claim: Json, node: Json) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        built = a_pv(f"pvc-{metadata['uid']}", spec["resources"]["requests"]["storage"], spec["storageClassName"])
        built = built.claimed_by(metadata["name"], metadata["namespace"], uid=metadata["uid"])
        volume = built.csi(self.driver).on(node["metadata"]["labels"][HOSTNAME]).modes(*spec["accessModes"]).obj()
        async with self._http.post(_VOLUMES, json=volume) as answer:
            assert answer.status in {201, 409}, await answer.text()
        self._made.add(metadata["uid"])

    async def _take_back(self, claim: Json, call: Call) -> None:
        """Once, unless the selection has changed; after another write it is tried again."""
        version = claim["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: None}}}
        async with self._http.patch(f"{self._claims}/{call.claim}", json=patch, headers=_MERGE) as answer:
            assert answer.status in {200, 404, 409}, await answer.text()
            if answer.status == 200:
                self.taken_back.append(call)

    async def _get(self, path: str) -> Json | None:
        async with self._http.get(path) as answer:
            assert answer.status in {200, 404}, await answer.text()
            found: Json = await answer.json()
            return found if answer.status == 200 else None

    # -- capacity ------------------------------------------------------------------------------------------------------

    async def _publish_again(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.publish()

    async def publish(self) -> None:
        if self.space is None:
            return
        async with self._http.get(collection("StorageClass")) as answer:
            classes = [item for item in (await answer.json())["items"] if item["provisioner"] == self.driver]
        for storage_class in classes:
            name = storage_class["metadata"]["name"]
            for node in self.space.size_bytes:
                free = str(max(0, self.space.free_bytes(node)))
                built = a_capacity(f"{name}-{node}", name, free, ns=self._namespace).where(HOSTNAME, node).obj()
                path = f"{self._capacities}/{built['metadata']['name']}"
                async with self._http.patch(path, json={"capacity": free}, headers=_MERGE) as answer:
                    is_there = answer.status == 200
                if not is_there:
                    async with self._http.post(self._capacities, json=built) as answer:
                        assert answer.status == 201, await answer.text()
