"""The few requests that a scenario needs, to a real API server or to the one in this process."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, Protocol

from aiohttp import ClientSession

from scheduler.testing.apiserver import ApiServer, Refused
from tests.e2e.cluster import each
from tests.parity.scenario import Json, Scenario, admitted
from tests.parity.suite import NAMESPACES

_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
KINDS: Final = tuple(_PATHS)
WORKLOADS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_WIPED: Final = ("Pod", "Node", *WORKLOADS)
_OWN_SERVICE: Final = "kubernetes"
"""A real API server makes it, without a selector, and again if it is deleted."""


class Api(Protocol):
    """Every write must succeed; a deletion of what is gone has."""

    async def create(self, manifest: Json) -> None: ...

    async def get(self, kind: str, name: str, namespace: str) -> Json: ...

    async def items(self, kind: str) -> list[Json]:
        """Of all namespaces."""

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        """At once, or as a user would: a pod on a node then waits for its kubelet, which there is not."""


class InProcess:
    """Plain function calls; adds the one piece of admission that this server lacks."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def create(self, manifest: Json) -> None:
        self._server.create(manifest["kind"], admitted(manifest) if manifest["kind"] == "Pod" else manifest)

    async def get(self, kind: str, name: str, namespace: str) -> Json:
        return self._server.get(kind, name, namespace)

    async def items(self, kind: str) -> list[Json]:
        return self._server.objects(kind)

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        with contextlib.suppress(Refused):
            self._server.delete(kind, name, namespace, grace_s=None if gracefully else 0)


class Remote:
    """Over HTTP. Sees to it that the server makes of new pods what `admitted` makes of them: the replay relies on it."""

    def __init__(self, http: ClientSession) -> None:
        self._http = http

    async def create(self, manifest: Json) -> None:
        path = _PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
        async with self._http.post(path, json=manifest) as answer:
            assert answer.status == 201, f"{manifest['metadata']['name']}: {await answer.text()}"
            if manifest["kind"] == "Pod":
                _check_admission(manifest, await answer.json())

    async def get(self, kind: str, name: str, namespace: str) -> Json:
        return await self._read(f"{_PATHS[kind].format(namespace)}/{name}")

    async def items(self, kind: str) -> list[Json]:
        listed = await self._read(_PATHS[kind].replace("namespaces/{}/", ""))
        return list(listed["items"] or ())

    async def _read(self, path: str) -> Json:
        async with self._http.get(path) as answer:
            assert answer.status == 200, await answer.text()
            body: Json = await answer.json()
            return body

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        # Else a ReplicationController waits for the collector of its orphans, which there is not.
        query = {"propagationPolicy": "Background"} | ({} if gracefully else {"gracePeriodSeconds": "0"})
        async with self._http.delete(f"{_PATHS[kind].format(namespace)}/{name}", params=query) as answer:
            assert answer.status in {200, 202, 404}, await answer.text()


def _check_admission(manifest: Json, created: Json) -> None:
    wanted = admitted(manifest)["spec"]
    for field in ("affinity", "topologySpreadConstraints"):
        assert created["spec"].get(field) == wanted.get(field), (
            f"{manifest['metadata']['name']}: {created['spec'][field]}"
        )


async def make_namespaces(api: Api) -> None:
    """Once per server."""
    for name, labels in NAMESPACES.items():
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


async def put(api: Api, scenario: Scenario) -> None:
    """The cluster of a scenario, without the pods that are asked. Pods last: whoever has seen them has seen all pods."""
    await each((*scenario.nodes, *scenario.workloads), api.create)
    await each((bound | {"spec": bound["spec"] | {"schedulerName": "nobody"}} for bound in scenario.pods), api.create)
    leaving = [bound["metadata"] for bound in scenario.pods if bound["metadata"]["name"] in scenario.leaving]
    for metadata in leaving:
        await api.delete("Pod", metadata["name"], metadata["namespace"], gracefully=True)


async def wipe(api: Api) -> None:
    """No nodes, no pods, no workloads; namespaces stay."""
    for kind in _WIPED:
        while left := list(_removable(await api.items(kind))):
            await each(left, lambda place, kind=kind: api.delete(kind, *place))  # type: ignore[misc]
            await asyncio.sleep(0)


def _removable(items: Iterable[Json]) -> Iterable[tuple[str, str]]:
    for item in items:
        metadata = item["metadata"]
        if metadata["name"] != _OWN_SERVICE:
            yield metadata["name"], metadata.get("namespace", "default")
