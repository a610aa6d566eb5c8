"""Sandbox for tests with devices, on a control plane with controllers and both schedulers.

No DRA driver runs: the test publishes slices and writes the conditions of allocated devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.builders.core import Builder
from simulator.builders.devices import DeviceBuilder, DeviceClassBuilder, SliceBuilder, a_device_class, a_slice
from tests.e2e.cluster import Json, each
from tests.e2e.sandbox import Sandbox
from tests.support.deviceinvariants import (
    capacity_overdrawn,
    claims_of_pods,
    counters_overdrawn,
    devices_taken_twice,
    out_of_reach,
    reserved_for_the_gone,
    reserved_unallocated,
)

DRIVER: Final = "gpu.example.com"
"""In every manifest; each sandbox replaces it by a unique name."""
LAWS: Final = (
    *(devices_taken_twice, capacity_overdrawn, counters_overdrawn, claims_of_pods, out_of_reach),
    *(reserved_unallocated, reserved_for_the_gone),
)
_RANK: Final = {"ResourceClaimTemplate": 1, "ResourceClaim": 1, "Pod": 2}


class DeviceSandbox(Sandbox):
    SHARED = Sandbox.SHARED | {"DeviceClass", "ResourceSlice", "DeviceTaintRule"}
    NAMING = Sandbox.NAMING | {"deviceClassName", "priorityClassName"}

    @property
    def driver(self) -> str:
        return DRIVER.replace("gpu.", f"gpu.{self.name}.")

    def named(self, obj: Any, key: str = "") -> Any:
        """The sandbox's driver wherever a driver is named, in an expression too."""
        found = super().named(obj, key)
        if isinstance(found, dict):
            return {name.replace(DRIVER, self.driver): value for name, value in found.items()}
        return found.replace(DRIVER, self.driver) if isinstance(found, str) else found

    def own(self, name: str) -> str:
        return super().own(name.replace(DRIVER, self.driver))

    async def make(self, *things: Builder[Any] | Json) -> None:
        """Create them: claims after classes and slices, and pods last."""
        manifests = [self.own_manifest(thing if isinstance(thing, dict) else thing.obj()) for thing in things]
        for rank in range(3):
            await self.cluster.create(*(each for each in manifests if _RANK.get(each["kind"], 0) == rank))

    def pod(
        self, name: str, *claims: str, templates: Sequence[str] = (), on: str = "", priority: str = "", **requests: str
    ) -> Json:
        """A pod with these claims, and one claim from each of these templates; entries have the same names."""
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        entries += [{"name": template, "resourceClaimTemplateName": template} for template in templates]
        spec = {"resourceClaims": entries, "priorityClassName": priority}
        return self.bare_pod(name, {key: value for key, value in spec.items() if value}, on=on, **requests)

    # -- what has become of claims -------------------------------------------------------------------------------------

    async def claim(self, name: str) -> Json:
        found = await self.get("ResourceClaim", name)
        assert found is not None, f"no claim {name}"
        return found

    async def claim_of(self, pod: str, entry: str) -> str:
        """The name of the claim that was made for this entry of the pod."""

        async def read() -> str:
            found = await self.get("Pod", pod)
            statuses = found["status"].get("resourceClaimStatuses") or [] if found else []
            return next((each["resourceClaimName"] for each in statuses if each["name"] == entry), "")

        return str(await self.until(read, f"a claim for {entry} of {pod}"))

    async def devices_of(self, claim: str) -> list[str]:
        """Names, in the order of the results; none if it is not allocated."""
        return [each["device"] for each in results_of(await self.claim(claim))]

    async def allocated(self, claim: str) -> list[Json]:
        """Wait for results."""

        async def read() -> list[Json]:
            return results_of(await self.claim(claim))

        found: list[Json] = await self.until(read, f"devices for claim {claim}")
        return found

    async def say(self, claim: str, **conditions: str) -> None:
        """Write these conditions of all devices of the claim, as its driver does."""
        common = {"reason": "Written", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        written = [{"type": name, "status": status, **common} for name, status in conditions.items()]
        keys = ("driver", "pool", "device")
        found = [{key: each[key] for key in keys} | {"conditions": written} for each in await self.allocated(claim)]
        await self.cluster.merge(f"{self.path('ResourceClaim', claim)}/status", {"status": {"devices": found}})

    async def gone(self, *pods: str) -> None:
        await each(pods, lambda name: self.delete("Pod", name))

    async def broken_laws(self) -> list[str]:
        kinds = {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice", "pods": "Pod", "nodes": "Node"}
        stored = Snapshot({name: await self.all(kind) for name, kind in kinds.items()})
        return [sentence for law in LAWS for sentence in law(stored)]

    async def lawful(self) -> None:
        """Wait until every law holds: the claim controller may have to take a reservation back first."""
        broken: list[str] = []

        async def read() -> bool:
            broken[:] = await self.broken_laws()
            return not broken

        try:
            await self.until(read, "a sandbox without broken laws")
        except AssertionError as failed:
            raise AssertionError(f"{broken}\n{failed}") from failed

    async def close(self) -> None:
        """Also delete what may be used on other nodes."""
        await super().close()
        for kind in ("ResourceSlice", "DeviceTaintRule"):
            names = [item["metadata"]["name"] for item in await self.all(kind)]
            await each(names, lambda name, kind=kind: self.delete(kind, name.removesuffix(f"-{self.name}")))  # type: ignore[misc]


class Snapshot:
    def __init__(self, objects: Mapping[str, list[Json]]) -> None:
        self._objects = objects

    def objects(self, kind_or_resource: str, /) -> Sequence[Json]:
        return self._objects[kind_or_resource]


def results_of(claim: Json) -> list[Json]:
    allocation = claim.get("status", {}).get("allocation") or {}
    return list(allocation.get("devices", {}).get("results") or [])


def users_of(claim: Json) -> list[str]:
    return [user["name"] for user in claim.get("status", {}).get("reservedFor") or []]


def a_priority(name: str, value: int) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def gpus(name: str = "gpu", *cel: str) -> DeviceClassBuilder:
    return a_device_class(name, f"device.driver == '{DRIVER}'", *cel)


def on(node_name: str, *devices: DeviceBuilder) -> SliceBuilder:
    return a_slice(node_name, DRIVER, *devices)


GPU: Final = gpus()
