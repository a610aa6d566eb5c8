"""Rules of the in-process API server for volumes, devices and budgets, applied to a manifest without storing it.

CEL expressions of devices are compiled. A server also estimates what they cost, which is not done here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from scheduler.cache.devices.selectors import DeviceSelectors
from scheduler.core.cooperative import finish
from simulator.apiserver import LIKE_1_37, Refused
from simulator.apiserver.kinds import devices, opaque, volumes
from simulator.apiserver.kinds.claims import requested
from simulator.apiserver.kinds.defaults import NewRule, with_budget_defaults
from simulator.apiserver.kinds.device_versions import from_v1beta1
from simulator.apiserver.kinds.fields import LONGEST_EXPRESSION
from simulator.apiserver.resources import DEVICES, ApiResource, Served
from simulator.simulate.input import schema
from simulator.simulate.input.schema import Mistake, Object, invalid, nested, objects

_DEVICE_KINDS: Final = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_SELECTING: Final = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")


class ServerRules:
    """The rules, with compiled expressions, which many claims have in common."""

    def __init__(self, version: str) -> None:
        self._served = Served(LIKE_1_37)
        self._served.upgrade(f"v{version}.0")
        self._rules = {**_RULES, **dict.fromkeys(_DEVICE_KINDS, self._check_device_kind)}
        self._selectors = DeviceSelectors(list_attributes=False)
        self._refusals: dict[str, str] = {}
        """Expression → text after its path; "" if the server accepts it."""

    def _check_device_kind(self, resource: ApiResource, obj: dict[str, Any], _: str) -> None:
        devices.check_new(resource, obj, self._served.minor)

    def mistakes(self, value: Object) -> Iterator[Mistake]:
        """Yield the mistakes that a server would name, with its texts. The fields have the right types."""
        kind = value["kind"]
        rule = self._rules.get(kind)
        if rule is None or schema.find(value["apiVersion"], kind) is None:
            return
        resource = self._served.named(kind)
        if not self._served.knows(value["apiVersion"]):
            why = f'no matches for kind "{kind}" in version "{value["apiVersion"]}"'
            yield Mistake("kind", f"{why}; Kubernetes 1.{self._served.minor} serves {resource.group_version}")
            return
        obj = opaque.decoded(msgspec.json.encode(value))
        if value["apiVersion"] == f"{DEVICES}/v1beta1":
            obj = from_v1beta1(resource.name, obj)
        try:
            rule(resource, obj, "")
        except Refused as refused:
            causes = (refused.details or {}).get("causes") or [{"field": "spec", "message": refused.message}]
            yield from (Mistake(each["field"], each["message"]) for each in causes)
        if kind in _SELECTING:
            for path, expression in _expressions(kind, obj):
                if why := self._refusal(expression):
                    yield Mistake(path, why)

    def _refusal(self, expression: str) -> str:
        known = self._refusals.get(expression)
        if known is None:
            compiled = finish(self._selectors.compiling(expression))
            known = invalid("", expression, compiled).text if isinstance(compiled, str) else ""
            self._refusals[expression] = known
        return known


def _expressions(kind: str, obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each expression of a class, a claim or a template."""
    spec, path = nested(obj, "spec"), "spec"
    if kind == "DeviceClass":
        yield from _selectors(spec, path)
        return
    if kind == "ResourceClaimTemplate":
        spec, path = nested(spec, "spec"), "spec.spec"
    for at, request in enumerate(objects(nested(spec, "devices"), "requests")):
        place = f"{path}.devices.requests[{at}]"
        places = [f"{place}.exactly"] if request.get("exactly") is not None else []
        places += [f"{place}.firstAvailable[{i}]" for i in range(len(request.get("firstAvailable") or ()))]
        for one, of_one in zip(requested(dict(request)), places, strict=True):
            yield from _selectors(one, of_one)


def _selectors(holder: Object, path: str) -> Iterator[tuple[str, str]]:
    for at, selector in enumerate(objects(holder, "selectors")):
        expression = nested(selector, "cel").get("expression")
        if (
            isinstance(expression, str) and len(expression.encode()) <= LONGEST_EXPRESSION
        ):  # a longer one is refused for its length
            yield f"{path}.selectors[{at}].cel.expression", expression


def _claim(resource: ApiResource, claim: dict[str, Any], _: str) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    volumes.check_claim(resource, claim)


_RULES: Final[Mapping[str, NewRule]] = {
    "CSINode": volumes.with_csi_node,
    "CSIStorageCapacity": volumes.with_capacity,
    "PersistentVolume": volumes.with_volume,
    "PersistentVolumeClaim": _claim,
    "PodDisruptionBudget": with_budget_defaults,
    "StorageClass": volumes.with_class,
    "VolumeAttachment": volumes.with_attachment,
}
