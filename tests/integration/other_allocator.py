"""Another scheduler that allocates devices as kube-scheduler does: in two steps, without a second check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.api.resource_v1 import FINALIZER
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.builders.devices import on_node
from simulator.controllers import Actor
from simulator.controllers.controller import Key, Object, key_of
from simulator.controllers.resource_claim import name_of

_CLAIMS: Final = "resourceclaims"
_SLICES: Final = "resourceslices"
Plan = tuple[str, dict[str, list[Object]]]
"""A node, and the results of each claim that is not allocated."""


class OtherAllocator(Actor):
    """Allocates exclusive devices only. It decides on what is stored, and writes some time later without a check.

    As kube-scheduler, it knows its own decisions, and gives up a claim that another allocator has allocated.
    """

    component = "other-allocator"
    resources = ("pods",)

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock,
        scheduler_name: str,
        drivers: Mapping[str, str],
        delay_s: float = 0.5,
        writes_after_s: float,
    ) -> None:
        self.allocated: set[str] = set()
        """Uids of claims that it has allocated."""
        self._name = scheduler_name
        self._drivers = drivers
        self._delay_s = delay_s
        self._writes_after_s = writes_after_s
        self._plans: dict[str, Plan] = {}
        """By the uid of the pod."""
        super().__init__(server, clock=clock)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "pods" and type_ != "DELETED" and self._waits(obj):
            self._note(key_of(resource, obj), self._delay_s)
        elif resource == "pods" and type_ == "DELETED":
            self._plans.pop(obj["metadata"]["uid"], None)
        elif resource in {_CLAIMS, _SLICES, "nodes"}:
            for pod in self._server.objects("pods"):
                if self._waits(pod) and pod["metadata"]["uid"] not in self._plans:
                    self._note(key_of("pods", pod), self._delay_s)

    def _waits(self, pod: Object) -> bool:
        spec = pod["spec"]
        return spec["schedulerName"] == self._name and not spec.get("nodeName") and bool(spec.get("resourceClaims"))

    def _handle(self, key: Key) -> None:
        pod = self._server.find(*key[::2], key[1])
        if pod is None or not self._waits(pod):
            return
        plan = self._plans.pop(pod["metadata"]["uid"], None)
        if plan is not None:
            self._write(pod, plan)
            return
        claims = [
            self._server.find(_CLAIMS, name_of(pod, each) or "", key[1]) for each in pod["spec"]["resourceClaims"]
        ]
        found = next(self._possible([claim for claim in claims if claim is not None]), None) if all(claims) else None
        if found is not None:
            self._plans[pod["metadata"]["uid"]] = found
            self._note(key, self._writes_after_s)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _possible(self, claims: list[Object]) -> Iterator[Plan]:
        for node in sorted(each["metadata"]["name"] for each in self._server.objects("nodes")):
            plan = self._plan(claims, node)
            if plan is not None:
                yield node, plan

    def _plan(self, claims: list[Object], node: str) -> dict[str, list[Object]] | None:
        taken, plan = self._taken(), dict[str, list[Object]]()
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation")
            if claim["metadata"].get("deletionTimestamp"):
                return None
            if allocation is not None:
                if allocation.get("nodeSelector") not in (None, on_node(node)):
                    return None
                continue
            request = claim["spec"]["devices"]["requests"][0]
            wanted = request["exactly"]
            free = [each for each in self._devices(wanted["deviceClassName"], node) if each not in taken]
            if len(free) < wanted["count"]:
                return None
            chosen = free[: wanted["count"]]
            taken.update(chosen)
            plan[claim["metadata"]["name"]] = [
                {"request": request["name"], "driver": driver, "pool": pool, "device": device}
                for driver, pool, device in chosen
            ]
        return plan

    def _taken(self) -> set[tuple[str, str, str]]:
        stored = (
            result
            for claim in self._server.objects(_CLAIMS)
            for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ())
        )
        planned = (result for _, plan in self._plans.values() for results in plan.values() for result in results)
        return {(each["driver"], each["pool"], each["device"]) for source in (stored, planned) for each in source}

    def _devices(self, class_name: str, node: str) -> list[tuple[str, str, str]]:
        """Return devices of the newest generation, complete or not."""
        driver, found = self._drivers[class_name], list[tuple[str, str, str]]()
        specs = [each["spec"] for each in self._server.objects(_SLICES) if each["spec"]["driver"] == driver]
        specs = [each for each in specs if each.get("allNodes") or each.get("nodeName") == node]
        newest = max((each["pool"]["generation"] for each in specs), default=0)
        for spec in specs:
            if spec["pool"]["generation"] == newest:
                found += [(driver, spec["pool"]["name"], each["name"]) for each in spec.get("devices") or ()]
        return sorted(found)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self, pod: Object, plan: Plan) -> None:
        """Write the finalizer, the allocation with its reservation, and the Binding, without a look at other claims."""
        node, results = plan
        metadata = pod["metadata"]
        user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        for entry in pod["spec"]["resourceClaims"]:
            claim = self._server.find(_CLAIMS, name_of(pod, entry) or "", metadata["namespace"])
            if claim is None:
                self._note(key_of("pods", pod), self._delay_s)
                return
            status = claim.get("status") or {}
            chosen = results.get(claim["metadata"]["name"])
            if (status.get("allocation") is None) != (chosen is not None):
                self._note(key_of("pods", pod), self._delay_s)
                return
            if chosen is not None:
                claim = self._allocatable(claim)
                is_local = any(each["pool"] == node for each in chosen)
                selector = {"nodeSelector": on_node(node)} if is_local else {}
                status |= {"allocation": {"devices": {"results": chosen}} | selector}
                self.allocated.add(claim["metadata"]["uid"])
            users = [each for each in status.get("reservedFor") or () if each["uid"] != user["uid"]]
            claim["status"] = status | {"reservedFor": [*users, user]}
            self._server.update(_CLAIMS, claim, subresource="status")
        self._server.bind(metadata["name"], node)

    def _allocatable(self, claim: Object) -> Object:
        finalizers = claim["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            return claim
        protected = claim["metadata"] | {"finalizers": [*finalizers, FINALIZER]}
        return self._server.update(_CLAIMS, claim | {"metadata": protected})
