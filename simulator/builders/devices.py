"""Manifests of devices and their neighbours in one line: `a_slice("n1", "gpu.example.com", a_device("d0")).obj()`.

Immutable like those of `core`, and as small as an API server allows. A slice is the only one of its pool, which is
named as its node. Claims and their templates are in `claims`.
"""

from __future__ import annotations

from typing import Any, Final, Self

from scheduler.api.resource_v1 import Device, DeviceClass, DeviceTaintRule, ResourceSlice
from simulator.builders.core import Builder, Manifest

API_VERSION: Final = "resource.k8s.io/v1"
RULE_API_VERSION: Final = "resource.k8s.io/v1beta2"
_ON_NODES: Final[dict[str, Any]] = dict.fromkeys(("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"))
_TERMS: Final = "nodeSelectorTerms"

Attribute = bool | int | str | list[bool] | list[int] | list[str]


class DeviceBuilder(Builder[Device]):
    """One device of a slice. It is no API object, so `label` and similar methods have no effect."""

    def attr(self, name: str, value: Attribute) -> Self:
        """Add an attribute of the type of the value. A list is an attribute with many values."""
        return self._attribute(name, _typed_value(value))

    def version(self, name: str, version: str) -> Self:
        """Add an attribute that is a semantic version."""
        return self._attribute(name, {"version": version})

    def versions(self, name: str, *versions: str) -> Self:
        """Add an attribute that is a list of semantic versions."""
        return self._attribute(name, {"versions": list(versions)})

    def cap(self, name: str, amount: str, policy: Manifest | None = None) -> Self:
        """Add a capacity, with a request policy (`a_policy`)."""
        told = {"value": amount} | ({"requestPolicy": policy} if policy else {})
        return self.set({"capacity": {name: told}})

    def shared(self) -> Self:
        """`allowMultipleAllocations`: many claims may hold it, each a part of its capacity."""
        return self.set({"allowMultipleAllocations": True})

    def consumes(self, counter_set: str, counters: dict[str, str]) -> Self:
        """Add the consumption of a counter set of the pool."""
        return self._append("consumesCounters", _counter_set("counterSet", counter_set, counters))

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule", *, since: str = "") -> Self:
        """One more taint; `since` is RFC 3339 (a server fills it in)."""
        return self._append("taints", _taint(key, value, effect) | ({"timeAdded": since} if since else {}))

    def binding(self, *conditions: str) -> Self:
        """Binding conditions: all of them must be true before a pod with it is bound."""
        return self.set({"bindingConditions": list(conditions)})

    def binding_failure(self, *conditions: str) -> Self:
        """Binding failure conditions: any of them that is true gives it up."""
        return self.set({"bindingFailureConditions": list(conditions)})

    def binds_to_node(self) -> Self:
        """Let a claim with this device be used only on the node that was chosen for it."""
        return self.set({"bindsToNode": True})

    def on(self, node_name: str) -> Self:
        """Of this node; for slices that are `per_device`."""
        return self.set({"nodeName": node_name})

    def where(self, key: str, *values: str) -> Self:
        """Of the nodes with one of these values; for slices that are `per_device`."""
        return self.set({"nodeSelector": a_node_selector((key, "In", *values))})

    def everywhere(self) -> Self:
        """Of all nodes; for slices that are `per_device`."""
        return self.set({"allNodes": True})

    def _attribute(self, name: str, value: Manifest) -> Self:
        return self.set({"attributes": {name: value}})


class SliceBuilder(Builder[ResourceSlice]):
    """The whole pool of one node, in its first generation."""

    def named(self, name: str) -> Self:
        """Another name of the object; for pools of several slices."""
        return self.set({"metadata": {"name": name}})

    def pool(self, name: str) -> Self:
        """Of another pool than the node's."""
        return self.set({"spec": {"pool": {"name": name}}})

    def generation(self, generation: int) -> Self:
        """Of which generation of its pool."""
        return self.set({"spec": {"pool": {"generation": generation}}})

    def of(self, slice_count: int) -> Self:
        """How many slices its pool has."""
        return self.set({"spec": {"pool": {"resourceSliceCount": slice_count}}})

    def device(self, *devices: DeviceBuilder) -> Self:
        """More devices."""
        already = self._manifest["spec"].get("devices") or []
        return self.set({"spec": {"devices": [*already, *(each.obj() for each in devices)]}})

    def counters(self, name: str, counters: dict[str, str]) -> Self:
        """One more counter set; a server wants those in a slice without devices."""
        return self._append("spec.sharedCounters", _counter_set("name", name, counters))

    def on(self, node_name: str) -> Self:
        """For this node."""
        return self._for_nodes(nodeName=node_name)

    def where(self, key: str, *values: str) -> Self:
        """For the nodes with one of these values, in place of its node."""
        return self._for_nodes(nodeSelector=a_node_selector((key, "In", *values)))

    def selecting(self, *expressions: tuple[str, ...]) -> Self:
        """For the nodes where all of this holds; expressions are (key, operator, values…)."""
        return self._for_nodes(nodeSelector=a_node_selector(*expressions))

    def everywhere(self) -> Self:
        """For all nodes."""
        return self._for_nodes(allNodes=True)

    def per_device(self) -> Self:
        """Each device says for which nodes it is."""
        return self._for_nodes(perDeviceNodeSelection=True)

    def nowhere(self) -> Self:
        """Says of no node at all; a server refuses that."""
        return self._for_nodes()

    def _for_nodes(self, **nodes: Any) -> Self:
        return self.set({"spec": _ON_NODES | nodes})


class DeviceClassBuilder(Builder[DeviceClass]):
    """Takes every device."""

    def selector(self, *cel: str) -> Self:
        """More expressions that a device must meet."""
        already = self._manifest["spec"].get("selectors") or []
        return self.set({"spec": {"selectors": [*already, *a_selector(*cel)]}})

    def config(self, driver: str, parameters: Manifest) -> Self:
        """One more configuration that goes into every allocation."""
        return self._append("spec.config", {"opaque": {"driver": driver, "parameters": parameters}})

    def extended_resource(self, name: str) -> Self:
        """Let containers request its devices as this resource."""
        return self.set({"spec": {"extendedResourceName": name}})

    def created(self, timestamp: str) -> Self:
        """When, as RFC 3339; for typed objects that never saw a server."""
        return self.set({"metadata": {"creationTimestamp": timestamp}})


class TaintRuleBuilder(Builder[DeviceTaintRule]):
    """A rule that by default taints every device."""

    def driver(self, name: str) -> Self:
        """Only devices of this driver."""
        return self._only(driver=name)

    def pool(self, name: str) -> Self:
        """Only devices of pools with this name."""
        return self._only(pool=name)

    def device(self, name: str) -> Self:
        """Only devices with this name."""
        return self._only(device=name)

    def none(self) -> Self:
        """No selector: no device at all."""
        return self.set({"spec": {"deviceSelector": None}})

    def since(self, timestamp: str) -> Self:
        """When the taint was added, as RFC 3339 (a server fills it in)."""
        return self.set({"spec": {"taint": {"timeAdded": timestamp}}})

    def _only(self, **selected: str) -> Self:
        return self.set({"spec": {"deviceSelector": selected}})


def a_device(name: str) -> DeviceBuilder:
    """Return a device without attributes."""
    return DeviceBuilder({"name": name}, Device)


def a_slice(node_name: str, driver: str, *devices: DeviceBuilder) -> SliceBuilder:
    """All devices that a driver has on a node."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    listed = {"devices": [each.obj() for each in devices]} if devices else {}
    spec = {"driver": driver, "pool": pool, "nodeName": node_name} | listed
    return SliceBuilder(a_manifest("ResourceSlice", {"name": f"{node_name}-{driver}"}) | {"spec": spec}, ResourceSlice)


def a_device_class(name: str, *cel: str) -> DeviceClassBuilder:
    """Return a class of the devices that meet all these expressions."""
    spec = {"selectors": a_selector(*cel)} if cel else {}
    return DeviceClassBuilder(a_manifest("DeviceClass", {"name": name}) | {"spec": spec}, DeviceClass)


def a_taint_rule(name: str, key: str, value: str = "", effect: str = "NoSchedule") -> TaintRuleBuilder:
    """Return a rule that taints devices."""
    manifest = a_manifest("DeviceTaintRule", {"name": name}) | {"apiVersion": RULE_API_VERSION}
    spec = {"deviceSelector": {}, "taint": _taint(key, value, effect)}
    return TaintRuleBuilder(manifest | {"spec": spec}, DeviceTaintRule)


def a_policy(default: str = "", *values: str, minimum: str = "", maximum: str = "", step: str = "") -> Manifest:
    """Return a request policy of a shared capacity: the default, and valid values or a range."""
    limits = {name: each for name, each in (("min", minimum), ("max", maximum), ("step", step)) if each}
    policy: Manifest = {"default": default} if default else {}
    if values:
        policy["validValues"] = list(values)
    return policy | ({"validRange": limits} if limits else {})


def a_selector(*cel: str) -> list[Manifest]:
    """`selectors`, as classes and requests write them."""
    return [{"cel": {"expression": each}} for each in cel]


def a_node_selector(*expressions: tuple[str, ...]) -> Manifest:
    """Return a node selector of one term; expressions are (key, operator, values…)."""
    listed = [
        {"key": key, "operator": operator} | ({"values": values} if values else {})
        for key, operator, *values in expressions
    ]
    return {_TERMS: [{"matchExpressions": listed}]}


def on_node(node_name: str) -> Manifest:
    """Return a node selector of this node alone, by its name."""
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {_TERMS: [{"matchFields": [field]}]}


def a_manifest(kind: str, metadata: Manifest) -> Manifest:
    """Return the frame of an object of this group."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}


def _typed_value(value: Attribute) -> Manifest:
    if isinstance(value, list):
        (key,) = _typed_value(value[0]) if value else {"string"}
        return {f"{key}s": value}
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def _counter_set(key: str, name: str, counters: dict[str, str]) -> Manifest:
    return {key: name, "counters": {counter: {"value": amount} for counter, amount in counters.items()}}


def _taint(key: str, value: str, effect: str) -> Manifest:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
