"""Fills and empties the cluster: many requests in flight, each repeated while the server is busy."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from aiohttp import ClientSession

from benchmarks.preempting import PREEMPTIONS, priority_classes
from benchmarks.workload import NAMESPACE, Workload

CREATORS = 30
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JSON = {"Content-Type": "application/json"}


async def spread(work: Iterable[Callable[[], Awaitable[object]]], workers: int = CREATORS) -> None:
    """Run the calls, `workers` at a time; the first failure ends all."""
    rest = iter(work)

    async def worker() -> None:
        for call in rest:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())


async def post(http: ClientSession, path: str, body: bytes) -> str:
    """Create one object; one that exists already is as good. Answers with what the server said."""
    while True:
        async with http.post(path, data=body, headers=_JSON) as answer:
            text = await answer.text()
            if answer.status == 429:
                await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
                continue
            if answer.status not in {201, 409}:
                raise RuntimeError(f"POST {path}: {answer.status} {text[:500]}")
            return text


async def patch(http: ClientSession, path: str, body: bytes) -> None:
    """Change one object by a merge patch."""
    while True:
        async with http.patch(path, data=body, headers={"Content-Type": "application/merge-patch+json"}) as answer:
            text = await answer.text()
            if answer.status == 429:
                await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
                continue
            if answer.status != 200:
                raise RuntimeError(f"PATCH {path}: {answer.status} {text[:500]}")
            return


async def create_nodes(http: ClientSession, workload: Workload) -> None:
    """The namespace, priority classes and all nodes."""
    namespace = f'{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{NAMESPACE}"}}}}'
    await post(http, "/api/v1/namespaces", namespace.encode())
    if workload.name in PREEMPTIONS:
        await spread(
            partial(post, http, "/apis/scheduling.k8s.io/v1/priorityclasses", body) for body in priority_classes()
        )
    await spread(partial(post, http, "/api/v1/nodes", workload.node_body(index)) for index in range(workload.nodes))


async def create_pods(http: ClientSession, bodies: Sequence[bytes]) -> None:
    await spread(partial(post, http, PODS, body) for body in bodies)


async def create_at_rate(http: ClientSession, bodies: Sequence[bytes], *, per_s: float) -> list[float]:
    """Create the pods at a fixed rate, whatever the server's latency; answers when each was sent (time.monotonic)."""
    sent: list[float] = []
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index, body in enumerate(bodies):
            await asyncio.sleep(max(0.0, start + index / per_s - time.monotonic()))
            sent.append(time.monotonic())
            group.create_task(post(http, PODS, body))
    return sent


async def delete_pods(http: ClientSession) -> None:
    """Delete every pod of the namespace at once and wait until all are gone."""
    while left := await names(http, PODS):
        await spread(partial(_delete, http, name) for name in left)


async def remove(http: ClientSession, path: str) -> None:
    """Delete one object whose finalizers no controller removes."""
    headers = {"Content-Type": "application/merge-patch+json"}
    async with http.patch(path, data=b'{"metadata": {"finalizers": null}}', headers=headers) as answer:
        await answer.read()
    async with http.delete(path) as answer:
        await answer.read()
        if answer.status not in {200, 404, 409, 429}:
            raise RuntimeError(f"DELETE {path}: {answer.status}")


async def names(http: ClientSession, path: str) -> list[str]:
    """Of all objects of a collection."""
    kind = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    async with http.get(path, headers={"Accept": kind}) as answer:
        answer.raise_for_status()
        return [item["metadata"]["name"] for item in (await answer.json())["items"] or ()]


async def _delete(http: ClientSession, name: str) -> None:
    async with http.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": "0"}) as answer:
        await answer.read()
        if answer.status not in {200, 404, 409, 429}:
            raise RuntimeError(f"DELETE {name}: {answer.status}")


async def items(http: ClientSession, path: str) -> list[Mapping[str, Any]]:
    """All objects of a collection."""
    async with http.get(path) as answer:
        answer.raise_for_status()
        found: list[Mapping[str, Any]] = msgspec.json.decode(await answer.read())["items"]
        return found


async def count_pods(http: ClientSession, prefix: str) -> int:
    """How many there are with this name prefix."""
    return sum(name.startswith(prefix) for name in await names(http, PODS))


async def count_events(http: ClientSession, reason: str, prefix: str) -> int:
    """How many events with this reason the pods with this name prefix got."""
    return len(await events(http, reason, prefix))


async def events(http: ClientSession, reason: str, prefix: str) -> list[float]:
    """When each event with this reason of the pods with this name prefix was stored, in whole seconds since the epoch."""
    path = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
    kind = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    async with http.get(path, params={"fieldSelector": f"reason={reason}"}, headers={"Accept": kind}) as answer:
        answer.raise_for_status()
        items = (await answer.json())["items"] or ()
    found = [item["metadata"] for item in items]
    return [
        datetime.fromisoformat(seen["creationTimestamp"]).timestamp()
        for seen in found
        if seen["name"].startswith(prefix)
    ]
