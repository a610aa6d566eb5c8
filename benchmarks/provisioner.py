"""A separate process that provisions volumes as an external provisioner does, with as little CPU as can be.

It watches claims. One that the PV controller has handed to it and whose node is selected gets a volume on that node
for that claim, if the node has capacity; if not, the selection is taken back, as for a driver that answers ResourceExhausted,
and a line `failed <claim> <node>` is printed. What a node has left is published as its CSIStorageCapacity, `--stale-s` after
the first volume that was requested and at each interval later, if it changed. Before all that it prints `ready`.
"""

import argparse
import asyncio
import time
from collections import deque
from pathlib import Path

import msgspec
from aiohttp import ClientSession

from benchmarks.observer import session
from benchmarks.storage import Storage, csi_volume_body
from benchmarks.volumes import DRIVER
from benchmarks.watching import changes, listed
from benchmarks.workload import NAMESPACE, Workload, node_name
from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import SELECTED_NODE, STORAGE_PROVISIONERS

CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CAPACITIES = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"
IN_FLIGHT = 64
_MERGE = {"Content-Type": "application/merge-patch+json"}
_JSON = {"Content-Type": "application/json"}
_MIB = 1024**2


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}


class _Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    volume_name: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Claim(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def node(self) -> str:
        """The node that was selected for us; empty while there is nothing to do."""
        annotations = self.metadata.annotations
        is_ours = annotations.get(STORAGE_PROVISIONERS[0]) == DRIVER
        if not is_ours or self.spec.volume_name or self.metadata.deletion_timestamp:
            return ""
        return annotations.get(SELECTED_NODE, "")

    @property
    def request(self) -> str:
        return self.spec.resources.requests["storage"]


class _Event(msgspec.Struct):
    type: str
    object: _Claim


class _Claims(msgspec.Struct):
    metadata: _Metadata
    items: list[_Claim]


_decode_claim = msgspec.json.Decoder(_Claim).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_claims = msgspec.json.Decoder(_Claims).decode


class Provisioner:
    """Keeps the real free capacity of nodes."""

    def __init__(self, http: ClientSession, storage: Storage, *, takes_s: float, stale_s: float) -> None:
        self._http = http
        self._takes_s = takes_s
        self._stale_s = stale_s
        self._left = {node_name(at): storage.free_mib(at) * _MIB for at in range(storage.workload.nodes)}
        self._told = dict(self._left)
        self._taken_up: set[str] = set()
        """Uids of claims with the selection that they have."""
        self._todo: deque[tuple[_Claim, str]] = deque()
        self._news = asyncio.Semaphore(0)
        self._begun = asyncio.Event()
        self.version = ""

    async def run(self) -> None:
        """Until killed."""
        claims = _decode_claims(await listed(self._http, CLAIMS))
        self.version = claims.metadata.resource_version
        for claim in claims.items:
            self._see(claim)
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            for _ in range(IN_FLIGHT):
                group.create_task(self._work())
            async for lines in changes(self._http, CLAIMS, lambda: self.version):
                for line in lines:
                    event = _decode_event(line)
                    if event.type == "ERROR":
                        raise RuntimeError("the watch ended with an error: too old, or refused")
                    self.version = event.object.metadata.resource_version
                    if event.type in {"ADDED", "MODIFIED"}:
                        self._see(event.object)

    def _see(self, claim: _Claim) -> None:
        uid, node = claim.metadata.uid, claim.node
        if not node:
            self._taken_up.discard(uid)  # the next selection is a new one, whatever the node
        elif uid not in self._taken_up:
            self._taken_up.add(uid)
            self._todo.append((claim, node))
            self._begun.set()
            self._news.release()

    async def _work(self) -> None:
        while True:
            await self._news.acquire()
            claim, node = self._todo.popleft()
            size = int(parse(claim.request).value)
            has_room = self._left.get(node, 0) >= size
            if has_room:
                self._left[node] -= size
            if self._takes_s:
                await asyncio.sleep(self._takes_s)
            if has_room:
                await self._create(claim, node)
            else:
                print(f"failed {claim.metadata.name} {node}", flush=True)
                await self._take_back(claim, node)

    async def _create(self, claim: _Claim, node: str) -> None:
        name, uid = claim.metadata.name, claim.metadata.uid
        body = csi_volume_body(f"pvc-{uid}", claim.request, claim_name=name, claim_uid=uid, node=node)
        async with self._http.post(VOLUMES, data=body, headers=_JSON) as answer:
            if answer.status not in {201, 409}:
                raise RuntimeError(f"POST {VOLUMES}: {answer.status} {(await answer.text())[:500]}")

    async def _take_back(self, claim: _Claim, node: str) -> None:
        """Remove this selection, unless it is another one by now."""
        path = f"{CLAIMS}/{claim.metadata.name}"
        while claim.node == node:
            change = {"resourceVersion": claim.metadata.resource_version, "annotations": {SELECTED_NODE: None}}
            body = msgspec.json.encode({"metadata": change})
            async with self._http.patch(path, data=body, headers=_MERGE) as answer:
                if answer.status in {200, 404}:
                    return
                if answer.status != 409:
                    raise RuntimeError(f"PATCH {path}: {answer.status} {(await answer.text())[:500]}")
            async with self._http.get(path) as answer:
                if answer.status == 404:
                    return
                claim = _decode_claim(await answer.read())

    async def _publish(self) -> None:
        await self._begun.wait()
        due = time.monotonic()
        while True:
            due += self._stale_s
            await asyncio.sleep(due - time.monotonic())
            for node, left in list(self._left.items()):
                if left != self._told[node]:
                    self._told[node] = left
                    body = msgspec.json.encode({"capacity": f"{left // _MIB}Mi"})
                    async with self._http.patch(f"{CAPACITIES}/{node}", data=body, headers=_MERGE) as answer:
                        answer.raise_for_status()


async def run(arguments: argparse.Namespace) -> None:
    """Until killed."""
    workload = Workload(arguments.workload, arguments.nodes, arguments.pods)
    async with session(arguments.kubeconfig) as http:
        await Provisioner(http, Storage(workload), takes_s=arguments.takes_s, stale_s=arguments.stale_s).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.provisioner", description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--takes-s", type=float, default=0.0, help="how long a volume takes, or to find no capacity")
    parser.add_argument("--stale-s", type=float, default=60.0, help="between publications of the free capacity")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
