"""A separate namespace, nodes and names for each test, on a control plane that many tests share.

Tests use short names; the name of an object without a namespace gets the sandbox's name as a suffix, so that tests do not
affect each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from aiohttp import ClientSession

from tests.e2e.cluster import NODES, Cluster, Json, collection, each, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane
from tests.e2e.controlplane.process import ServerProcess
from tests.support.volumebuilders import HOSTNAME

THEIRS: Final = "default-scheduler"
OWNER: Final = "example.com/sandbox"


@dataclass(frozen=True)
class SharedPlane:
    """A control plane with controllers, a kube-scheduler, and a daemon."""

    plane: ControlPlane
    server: ServerProcess
    """Our daemon."""


class Sandbox:
    """A namespace, nodes that only its pods go to, and other objects that only it uses."""

    SHARED: ClassVar[frozenset[str]] = frozenset({"Node", "PriorityClass"})
    """Kinds that are in no namespace."""
    NAMING: ClassVar[frozenset[str]] = frozenset({"nodeName", HOSTNAME})
    """Fields that name such things."""

    def __init__(self, shared: SharedPlane, http: ClientSession, name: str) -> None:
        self.plane = shared.plane
        self.http = http
        self.name = name
        self.scheduler = SCHEDULER_NAME
        self.server = shared.server
        """The daemon that is expected to live."""
        self.cluster = Cluster(http, name)

    # -- what there is -------------------------------------------------------------------------------------------------

    def own(self, name: str) -> str:
        """The full name of an object that is in no namespace."""
        return f"{name}-{self.name}"

    def named(self, obj: Any, key: str = "") -> Any:
        if isinstance(obj, dict):
            return {k: self.named(v, self._place(obj, k)) for k, v in obj.items()}
        if isinstance(obj, list):
            return [self.named(item, key) for item in obj]
        if key == "namespace":
            return self.name
        return self.own(obj) if key in self.NAMING and isinstance(obj, str) and obj else obj

    @staticmethod
    def _place(obj: Json, key: str) -> str:
        """The field that the values under a key are about: those of an expression are about its key."""
        return str(obj["key"]) if key == "values" and "key" in obj else key

    def own_manifest(self, manifest: Json) -> Json:
        made: Json = self.named(manifest)
        if manifest["kind"] in self.SHARED:
            made["metadata"]["name"] = self.own(manifest["metadata"]["name"])
        else:
            made["metadata"]["namespace"] = self.name
        return made

    def node(self, name: str, *, labels: Mapping[str, str] | None = None, **allocatable: str) -> Json:
        return node(name, labels={OWNER: self.name, **(labels or {})}, spec=None, **allocatable)

    def bare_pod(self, name: str, spec: Json, *, on: str = "", **requests: str) -> Json:
        """A pod for the sandbox's scheduler; `on` pins it to a node by its label."""
        selector = {OWNER: self.name} | ({HOSTNAME: on} if on else {})
        basic: Json = {"nodeSelector": selector, "terminationGracePeriodSeconds": 0}
        built = pod(name, self.scheduler, basic | spec, **requests)
        built["metadata"]["namespace"] = self.name
        return built

    # -- where things are ----------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str) -> str:
        return f"{collection(kind, self.name)}/{self.own(name) if kind in self.SHARED else name}"

    async def get(self, kind: str, name: str) -> Json | None:
        """None while there is none."""
        async with self.http.get(self.path(kind, name)) as answer:
            assert answer.status in {200, 404}, await answer.text()
            found: Json = await answer.json()
            return found if answer.status == 200 else None

    async def all(self, kind: str) -> list[Json]:
        """Those of this sandbox, by name."""
        items = (await self.cluster.get(collection(kind, self.name)))["items"] or []
        items = [item for item in items if kind not in self.SHARED or self.is_mine(item)]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def is_mine(self, item: Json) -> bool:
        """Whether an object without a namespace is of this sandbox."""
        return bool(item["metadata"]["name"].endswith(f"-{self.name}"))

    async def merge(self, kind: str, name: str, patch: Json) -> None:
        await self.cluster.merge(self.path(kind, name), patch)

    async def delete(self, kind: str, name: str) -> None:
        await self.cluster.delete(self.path(kind, name))

    # -- what becomes of it --------------------------------------------------------------------------------------------

    async def until(self, read: Callable[[], Awaitable[Any]], what: str, *, within_s: float = 90) -> Any:
        return await until(read, what, server=self.server, within_s=within_s)

    async def bound(self, *pods: str, within_s: float = 90) -> list[str]:
        """Their nodes, in the test's names, once they are all bound."""
        found: dict[str, str] = {}

        async def read() -> bool:
            for item in await self.all("Pod"):
                if item["spec"].get("nodeName"):
                    found[item["metadata"]["name"]] = item["spec"]["nodeName"]
            return set(pods) <= found.keys()

        try:
            await self.until(read, f"nodes for {pods}", within_s=within_s)
        except AssertionError as failed:
            missing = [f"{name}: {await self.cluster.condition(name)}" for name in pods if name not in found]
            raise AssertionError(f"not bound: {missing}\n{failed}") from failed
        return [found[name].removesuffix(f"-{self.name}") for name in pods]

    async def refused(self, name: str, *words: str, reason: str = "Unschedulable") -> str:
        """The message of the pod's condition, once it has this reason and contains these words. Fails if it is bound."""

        async def read() -> str:
            condition = await self.cluster.condition(name)
            assert condition is None or condition["status"] == "False", f"{name} is bound"
            is_it = condition is not None and condition["reason"] == reason
            is_it = is_it and all(word in condition["message"] for word in words)  # type: ignore[index]
            return str(condition["message"]) if is_it and condition else ""

        try:
            return str(await self.until(read, f"{words} ({reason}) in the condition of {name}"))
        except AssertionError as failed:
            raise AssertionError(f"{name} says {await self.cluster.condition(name)}\n{failed}") from failed

    async def event_note(self, kind: str, name: str, reason: str, *words: str) -> str:
        """The note of the first event about this object with this reason and these words."""

        async def read() -> str:
            query = {"fieldSelector": f"regarding.name={name},regarding.kind={kind},reason={reason}"}
            events = (await self.cluster.get(collection("Event", self.name), **query))["items"]
            notes = [str(event["note"]) for event in events]
            return next((note for note in notes if all(word in note for word in words)), "")

        return str(await self.until(read, f"an event {reason} with {words} on {kind} {name}"))

    # -- beginning and end ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        await self.cluster.create(namespace)

    async def close(self) -> None:
        """Delete its pods and nodes; its other objects do not affect other sandboxes."""
        while pods := await self.all("Pod"):
            await each([item["metadata"]["name"] for item in pods], lambda name: self.delete("Pod", name))
        nodes = await self.cluster.get(NODES, labelSelector=f"{OWNER}={self.name}")
        names = [item["metadata"]["name"] for item in nodes["items"]]
        await each(names, lambda name: self.cluster.delete(f"{NODES}/{name}"))


_Sandbox = TypeVar("_Sandbox", bound=Sandbox)


async def together(scenario: Callable[[_Sandbox], Coroutine[Any, Any, None]], *sandboxes: _Sandbox) -> None:
    """Run the scenario in each sandbox at the same time."""
    async with asyncio.TaskGroup() as group:
        for sandbox in sandboxes:
            group.create_task(scenario(sandbox))
