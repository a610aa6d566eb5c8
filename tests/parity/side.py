"""A scheduler that tries a pod: what kube-scheduler and ours have in common."""

import asyncio
import contextlib
import dataclasses
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeVar

from tests.parity.api import VOLUMES, ScenarioApi, put_pods, wipe
from tests.parity.deviceclaims import (
    CLAIM,
    answer,
    claims_of_devices,
    device_changes,
    hand_over_devices,
    put_device_claims,
)
from tests.parity.scenario import WAITS, Scenario, named
from tests.parity.verdict import GATED, HELD, Scores, Verdict, Way, heard
from tests.parity.volumes import Written, changes, hand_over, put_volumes, volumes
from tests.parity.words import Json

T = TypeVar("T")
IMPATIENT: Final = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
"""No controller binds or provisions, so no scheduler waits for it: the pod has its node, and all is written."""
PATIENCE_S: Final = 60.0
"""For what takes milliseconds on an idle machine."""


@dataclasses.dataclass(frozen=True)
class _Look:
    """PVs and claims, as they were."""

    volumes: Written
    claims: Mapping[str, Json]


_NO_LOOK: Final = _Look({}, {})
_NOW: Final = re.compile(r'("AllocationTimestamp":)"[^"]*"')
_NOWHERE: Final = {"nodeSelector": {"no": "where"}}


class Side(ABC):
    """Tries pods of the schedulerName `<prefix>-<profile>`. `pause_s` is the time between two looks."""

    def __init__(self, api: ScenarioApi, prefix: str, *, pause_s: float) -> None:
        self.api = api
        self.prefix = prefix
        self._pause_s = pause_s
        self._probes = 0

    @abstractmethod
    async def see(self, scenario: Scenario) -> None:
        """Return when a pod that is created now is judged in the scenario's cluster, whose pods may just have been made."""

    @abstractmethod
    def _listen(self) -> None:
        """A pod is about to be tried: forget the scores of earlier pods."""

    @abstractmethod
    def _scores(self, pod: Json) -> Scores:
        """What was heard since, if the pod's nodes were scored."""

    @abstractmethod
    def _headed(self, pod: Json) -> str:
        """The node on which the pod's volumes were to be bound."""

    @abstractmethod
    async def _settle(self, pod: Json, nominated: str) -> None:
        """Return when no further pod is evicted for the pod."""

    @abstractmethod
    def _held(self, pod: Json) -> str:
        """With which words a plugin keeps the pod out of the queue; "" as long as none is known to. Further texts came later."""

    @abstractmethod
    async def _finish(self) -> None:
        """Return when nothing is being written to claims of devices any more, though the verdict is known."""

    async def try_pod(self, pod: Json, profile: str, *, among: Scenario | None = None) -> Verdict:
        """Create the pod, wait for what becomes of it and of the pods `among` which it came, and take it away again."""
        self._listen()
        created, before = await self._create(named(pod, f"{self.prefix}-{profile}"), among)
        if pod["spec"].get("schedulingGates"):
            await self._pass_by(profile)
        async with self._write_deadline(f"a verdict on {pod['metadata']['name']}"), self._drivers(among):
            if among is not None and pod["metadata"]["name"] in among.held:
                await self._pass_by(profile)
                told = Verdict(
                    reason=HELD,
                    message=await self.until(lambda: _soon(self._held(created)), "the plugin that holds it"),
                )
            else:
                told = await self.api.first(created, lambda version: self._reported(pod, version))
        if told.preempts:
            (way,) = told.ways
            await self._settle(pod, way.nominated)
            if among is not None:
                harm = await self._harm(way.nominated, among)
                told = dataclasses.replace(told, ways=(dataclasses.replace(harm, victims=way.victims),))
        if among is not None and (writes := await self._written(before, among, created)):
            told = dataclasses.replace(told, writes=writes)
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
        return (await self.try_pod(pod, profile)).message

    @contextlib.asynccontextmanager
    async def _write_deadline(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield
        except TimeoutError:
            raise AssertionError(f"{self.prefix}: {what}: not within {PATIENCE_S:.0f} s") from None

    async def _look(self, among: Scenario | None) -> "_Look":
        if among is None:
            return _NO_LOOK
        claims = await claims_of_devices(self.api) if among.devices else {}
        return _Look(await volumes(self.api) if among.storage else {}, claims)

    async def _written(self, before: "_Look", among: Scenario, pod: Json) -> tuple[str, ...]:
        await self._finish()
        after = await self._look(among)
        lines = changes(before.volumes, after.volumes) if among.storage else ()
        if not among.devices:
            return lines
        now = next(one for one in await self.api.items("Pod") if one["metadata"]["uid"] == pod["metadata"]["uid"])
        return (*lines, *device_changes(before.claims, after.claims, now))

    @contextlib.asynccontextmanager
    async def _drivers(self, among: Scenario | None) -> AsyncIterator[None]:
        """Those of the scenario's devices are at work."""
        if among is None or not among.devices.drivers:
            yield
            return

        async def answer_all() -> None:
            while not await answer(self.api, among.devices):
                await asyncio.sleep(self._pause_s)

        at_work = asyncio.create_task(answer_all())
        try:
            yield
        finally:
            at_work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await at_work

    async def _create(self, pod: Json, among: Scenario | None) -> tuple[Json, "_Look"]:
        """The pod, and what claims and PVs there were before it was tried.

        One that is nominated already, or whose claims wait for it, comes behind a gate: so it is not tried too early. Its status
        names claims once they are its: no later change of theirs would make a scheduler look again.
        """
        heir = among if among and (among.storage.owned_by(pod) or among.devices.meaning(pod)) else None
        before = await self._look(among)
        if "status" not in pod and heir is None:
            return await self.api.create(pod), before
        place = ("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        created = await self.api.create(pod | {"spec": pod["spec"] | {"schedulingGates": [{"name": WAITS}]}})
        if heir is not None:
            await hand_over(self.api, heir, created)
            await hand_over_devices(self.api, heir.devices, created)
            await self.see(heir)
            before = await self._look(heir)
        if "status" in pod:
            await self.api.patch(*place, {"status": pod["status"]})
        return await self.api.patch(*place, {"spec": {"schedulingGates": None}}), before

    async def _pass_by(self, profile: str) -> None:
        """A pod that came later has its verdict: the one that is kept back was seen, as it is now."""
        await self.probe(profile, _NOWHERE)

    def _reported(self, pod: Json, seen: Json) -> Verdict | None:
        if node := seen["spec"].get("nodeName"):
            return Verdict(node=node, scores=self._scores(pod))
        for condition in seen["status"].get("conditions") or ():
            is_gate = condition.get("reason") == GATED
            if condition.get("message") == IMPATIENT:
                return Verdict(node=self._headed(pod), scores=self._scores(pod))
            if condition["type"] == "PodScheduled" and is_gate == bool(pod["spec"].get("schedulingGates")):
                way = Way(seen["status"].get("nominatedNodeName", ""))
                message = _NOW.sub(r"\1now", condition["message"])
                return heard(Verdict(reason=condition["reason"], message=message, ways=(way,)))
        return None

    async def _harm(self, nominated: str, scenario: Scenario) -> Way:
        """What has become of the scenario's pods."""
        there = {pod["metadata"]["name"]: pod for pod in await self.api.items("Pod")}
        evicted = [
            name
            for name in (pod["metadata"]["name"] for pod in scenario.pods)
            if name not in scenario.leaving
            and (name not in there or there[name]["metadata"].get("deletionTimestamp") is not None)
        ]
        displaced = [
            pod["metadata"]["name"]
            for pod in scenario.waiting
            if "status" in pod and not there[pod["metadata"]["name"]]["status"].get("nominatedNodeName")
        ]
        return Way(nominated, tuple(sorted(evicted)), tuple(sorted(displaced)))


async def _soon(value: T) -> T:
    return value


class TrialStage:
    """`try_pod` finds them as the scenario has them, whatever was tried before.

    Nodes and all else that no trial changes must be there already.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._is_fresh_for = ""
        """The scheduler whose pods wait; "" if the pods have to be put up again."""

    async def try_pod(self, side: Side, name: str) -> Verdict:
        """The verdict of this scheduler on the tried pod of this name."""
        await self.set_for(side)
        self._is_fresh_for = ""
        told = await side.try_pod(self._scenario.asked[name], self._scenario.profile, among=self._scenario)
        if not (told.preempts or told.writes):
            self._is_fresh_for = self._waiting_for(side)
        return told

    async def set_for(self, side: Side) -> None:
        """The pods are there and the scheduler is ready for the next pod."""
        waiting_for = self._waiting_for(side)
        is_fresh = self._is_fresh_for == waiting_for or (self._is_fresh_for and not self._scenario.waiting)
        if not is_fresh:
            claims = (CLAIM,) if self._scenario.devices else ()
            await wipe(side.api, ("Pod", *(VOLUMES if self._scenario.storage else ()), *claims))
            await put_pods(side.api, self._scenario, waiting_for=waiting_for)
            await put_volumes(side.api, self._scenario)
            await put_device_claims(side.api, self._scenario)
            self._is_fresh_for = waiting_for
        await side.see(self._scenario)

    def _waiting_for(self, side: Side) -> str:
        return f"{side.prefix}-{self._scenario.profile}"
