"""A scheduler that can be asked about a pod: what kube-scheduler and ours have in common."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tests.parity.api import Api
from tests.parity.scenario import Json, Scenario
from tests.parity.verdict import GATED, Scores, Verdict

T = TypeVar("T")
PATIENCE_S: Final = 60.0
"""For what takes milliseconds on an idle machine."""
_NOWHERE: Final = {"nodeSelector": {"no": "where"}}


class Side(ABC):
    """Asks with pods of the schedulerName `<prefix>-<profile>`. `pause_s` is the time between two looks."""

    def __init__(self, api: Api, prefix: str, *, pause_s: float) -> None:
        self.api = api
        self.prefix = prefix
        self._pause_s = pause_s
        self._probes = 0

    @abstractmethod
    async def see(self, scenario: Scenario) -> None:
        """Return when the scheduler knows the cluster as it is now."""

    @abstractmethod
    def _listen(self) -> None:
        """A pod is about to be tried: forget what was heard of the scores of others."""

    @abstractmethod
    def _scores(self, pod: Json) -> Scores:
        """What was heard since, if the pod's nodes were scored."""

    async def ask(self, pod: Json, profile: str) -> Verdict:
        """Create the pod, wait for what becomes of it, and take it away again."""
        self._listen()
        pod = named(pod, f"{self.prefix}-{profile}")
        await self.api.create(pod)
        if pod["spec"].get("schedulingGates"):
            await self._pass_by(profile)
        told = await self.until(lambda: self._told(pod), f"a verdict on {pod['metadata']['name']}")
        metadata = pod["metadata"]
        await self.api.delete("Pod", metadata["name"], metadata["namespace"])
        return told

    async def until(self, read: Callable[[], Awaitable[T | None]], what: str) -> T:
        """What `read` answers once it is neither None nor empty."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := await read()):
            assert time.monotonic() < deadline, f"{self.prefix}: {what}: not within {PATIENCE_S:.0f} s"
            await asyncio.sleep(self._pause_s)
        return value

    async def probe(self, profile: str, spec: Json, metadata: Json | None = None) -> str:
        """The first message about a pod that fits nowhere; "" if it did fit."""
        self._probes += 1
        given = {"name": f"probe-{self._probes}", "namespace": "default", **(metadata or {})}
        containers = [{"name": "main", "image": "i"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": {"containers": containers, **spec}}
        return (await self.ask(pod, profile)).message

    async def _pass_by(self, profile: str) -> None:
        """A pod that came later has its verdict: the gated one was seen, and left alone."""
        await self.probe(profile, _NOWHERE)

    async def _told(self, pod: Json) -> Verdict | None:
        seen = await self.api.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        if node := seen["spec"].get("nodeName"):
            return Verdict(node=node, scores=self._scores(pod))
        for condition in seen["status"].get("conditions") or ():
            is_gate = condition.get("reason") == GATED
            if condition["type"] == "PodScheduled" and is_gate == bool(pod["spec"].get("schedulingGates")):
                return Verdict(reason=condition["reason"], message=condition["message"])
        return None


def named(pod: Json, scheduler_name: str) -> Json:
    """The pod, for this scheduler."""
    return pod | {"spec": pod["spec"] | {"schedulerName": scheduler_name}}
