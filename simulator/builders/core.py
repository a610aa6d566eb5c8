"""Manifests in one line: `pod("web").cpu("1").label("app", "web").obj()`.

Builders are immutable: every call returns a new one, so a half-built pod can be the base of many.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from simulator.apiserver.patches import merge

Manifest = dict[str, Any]
_T_co = TypeVar("_T_co", covariant=True)


class Builder(Generic[_T_co]):
    """What builders of all kinds share."""

    def __init__(self, manifest: Manifest, typ: type[_T_co]) -> None:
        self._manifest = manifest
        self._typ = typ

    def obj(self) -> Manifest:
        """Return a new copy of the manifest."""
        copied: Manifest = _copied(self._manifest)
        return copied

    def typed(self) -> _T_co:
        """As `core` decodes it."""
        return from_manifest(self._typ, self._manifest)

    def set(self, patch: Manifest) -> Self:
        """Merge anything: maps merge, null removes, lists are replaced."""
        return type(self)(merge(self._manifest, patch), self._typ)

    def label(self, key: str, value: str = "") -> Self:
        """Add one label."""
        return self._metadata("labels", key, value)

    def labels(self, labels: dict[str, str]) -> Self:
        """Add labels."""
        return self.set({"metadata": {"labels": labels}})

    def annotation(self, key: str, value: str) -> Self:
        """Add one annotation."""
        return self._metadata("annotations", key, value)

    def uid(self, uid: str) -> Self:
        """For typed objects that never saw a server."""
        return self.set({"metadata": {"uid": uid}})

    def resource_version(self, version: str) -> Self:
        """For typed objects that never saw a server."""
        return self.set({"metadata": {"resourceVersion": version}})

    def _metadata(self, field: str, key: str, value: str) -> Self:
        return self.set({"metadata": {field: {key: value}}})

    def _append(self, path: str, item: Any) -> Self:
        """Append to the list at a dotted path."""
        keys = path.split(".")
        here: Any = self._manifest
        for key in keys:
            here = (here or {}).get(key)
        patch: Any = [*(here or []), item]
        for key in reversed(keys):
            patch = {key: patch}
        return self.set(patch)


class PodBuilder(Builder[Pod]):
    """One container named `main` unless `container` adds more."""

    def cpu(self, amount: str) -> Self:
        """Request of the first container."""
        return self.req("cpu", amount)

    def memory(self, amount: str) -> Self:
        """Request of the first container."""
        return self.req("memory", amount)

    def req(self, resource: str, amount: str) -> Self:
        """Any request of the first container."""
        first, *rest = self._manifest["spec"]["containers"]
        first = merge(first, {"resources": {"requests": {resource: amount}}})
        return self.set({"spec": {"containers": [first, *rest]}})

    def container(self, name: str, **requests: str) -> Self:
        """One more container."""
        return self._append("spec.containers", _container(name, requests))

    def init_container(self, name: str, *, sidecar: bool = False, **requests: str) -> Self:
        """Add an init container. A sidecar has the restart policy Always."""
        always = {"restartPolicy": "Always"} if sidecar else {}
        return self._append("spec.initContainers", _container(name, requests) | always)

    def overhead(self, **amounts: str) -> Self:
        """Set the overhead of the runtime class."""
        return self.set({"spec": {"overhead": amounts}})

    def node_selector(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Labels the node must have."""
        return self.set({"spec": {"nodeSelector": {**(labels or {}), **more}}})

    def node_affinity(self, key: str, operator: str, *values: str) -> Self:
        """One more required term, of one expression: terms are alternatives."""
        term = {"matchExpressions": [_expression(key, operator, values)]}
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        return self._append(f"spec.affinity.nodeAffinity.{rule}.nodeSelectorTerms", term)

    def preferred_node_affinity(self, weight: int, key: str, operator: str, *values: str) -> Self:
        """One more wish."""
        wish = {"weight": weight, "preference": {"matchExpressions": [_expression(key, operator, values)]}}
        return self._append("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", wish)

    def affinity(self, affinity: Manifest) -> Self:
        """`spec.affinity` as it is written in a manifest, merged."""
        return self.set({"spec": {"affinity": affinity}})

    def toleration(self, key: str = "", *, value: str = "", operator: str = "", effect: str = "") -> Self:
        """`Equal` when a value is given, else `Exists`."""
        operator = operator or ("Equal" if value else "Exists")
        parts = {"key": key, "operator": operator, "value": value, "effect": effect}
        return self._append("spec.tolerations", {name: part for name, part in parts.items() if part})

    def host_port(self, port: int, *, protocol: str = "TCP", ip: str = "") -> Self:
        """One more host port of the first container."""
        first, *rest = self._manifest["spec"]["containers"]
        added = {"containerPort": port, "hostPort": port, "protocol": protocol} | ({"hostIP": ip} if ip else {})
        first = merge(first, {"ports": [*first.get("ports", []), added]})
        return self.set({"spec": {"containers": [first, *rest]}})

    def priority(self, value: int) -> Self:
        """Set the priority. An API server accepts it only with a class of that value."""
        return self.set({"spec": {"priority": value}})

    def priority_class(self, name: str) -> Self:
        """`spec.priorityClassName`."""
        return self.set({"spec": {"priorityClassName": name}})

    def gate(self, name: str) -> Self:
        """One more scheduling gate."""
        return self._append("spec.schedulingGates", {"name": name})

    def scheduler(self, name: str) -> Self:
        """`spec.schedulerName`."""
        return self.set({"spec": {"schedulerName": name}})

    def bound_to(self, node_name: str) -> Self:
        """`spec.nodeName`."""
        return self.set({"spec": {"nodeName": node_name}})

    def nominated_to(self, node_name: str) -> Self:
        """`status.nominatedNodeName`; an API server takes it only through the status."""
        return self.set({"status": {"nominatedNodeName": node_name}})

    def phase(self, phase: str) -> Self:
        """`status.phase`; an API server takes it only through the status."""
        return self.set({"status": {"phase": phase}})

    def pvc(self, claim_name: str) -> Self:
        """One more volume, of a claim."""
        return self.volume(f"volume-{claim_name}", persistentVolumeClaim={"claimName": claim_name})

    def ephemeral(self, name: str, request: str = "1Gi", storage_class: str = "") -> Self:
        """Add an ephemeral volume. Its controller creates the claim `<pod>-<name>`."""
        spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": request}}}
        if storage_class:
            spec["storageClassName"] = storage_class
        return self.volume(name, ephemeral={"volumeClaimTemplate": {"spec": spec}})

    def claim(self, entry: str, claim: str = "", *, template: str = "") -> Self:
        """One more entry of `spec.resourceClaims`, of a claim or of a template."""
        source = {"resourceClaimName": claim} if claim else {}
        if template:
            source["resourceClaimTemplateName"] = template
        return self._append("spec.resourceClaims", {"name": entry} | source)

    def claim_made(self, entry: str, claim: str | None) -> Self:
        """Set the claim of an entry in the status. None means that no claim is needed."""
        made = {"name": entry} | ({"resourceClaimName": claim} if claim is not None else {})
        return self._append("status.resourceClaimStatuses", made)

    def extended(self, resource: str, amount: str) -> Self:
        """Request of the first container that is its limit too, as a server wants for extended resources."""
        first, *rest = self._manifest["spec"]["containers"]
        first = merge(first, {"resources": {"requests": {resource: amount}, "limits": {resource: amount}}})
        return self.set({"spec": {"containers": [first, *rest]}})

    def extended_claim(self, claim: str, *mappings: tuple[str, str, str]) -> Self:
        """Set the claim of extended resources in the status. Mappings are (container, resource, request)."""
        keys = ("containerName", "resourceName", "requestName")
        listed = [dict(zip(keys, mapping, strict=True)) for mapping in mappings]
        status = {"resourceClaimName": claim, "requestMappings": listed}
        return self.set({"status": {"extendedResourceClaimStatus": status}})

    def volume(self, name: str, **source: Manifest) -> Self:
        """One more volume of any source, as it is written in a manifest: `.volume("scratch", emptyDir={})`."""
        return self._append("spec.volumes", {"name": name} | source)


class NodeBuilder(Builder[Node]):
    """A ready node for 110 pods, by default without other resources."""

    def cpu(self, amount: str) -> Self:
        """Allocatable and capacity."""
        return self.resource("cpu", amount)

    def memory(self, amount: str) -> Self:
        """Allocatable and capacity."""
        return self.resource("memory", amount)

    def pods(self, count: int) -> Self:
        """How many pods fit by number."""
        return self.resource("pods", str(count))

    def resource(self, name: str, amount: str) -> Self:
        """Any resource, allocatable and capacity."""
        return self.set({"status": {"allocatable": {name: amount}, "capacity": {name: amount}}})

    def taint(self, key: str, *, value: str = "", effect: str = "NoSchedule") -> Self:
        """One more taint."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        return self._append("spec.taints", taint)

    def unschedulable(self) -> Self:
        """Cordoned."""
        return self.set({"spec": {"unschedulable": True}})

    def image(self, *names: str, size_bytes: int) -> Self:
        """One more image it has pulled."""
        return self._append("status.images", {"names": list(names), "sizeBytes": size_bytes})


def pod(name: str, ns: str = "default") -> PodBuilder:
    """Return a pod for `kubestow` without requests."""
    metadata = {"name": name, "namespace": ns}
    spec = {"schedulerName": "kubestow", "containers": [_container("main", {})]}
    return PodBuilder({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, Pod)


def node(name: str) -> NodeBuilder:
    """Return a ready node with the usual hostname label."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    status = {
        "allocatable": {"pods": "110"},
        "capacity": {"pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return NodeBuilder({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}, Node)


def _container(name: str, requests: dict[str, str]) -> Manifest:
    resources = {"resources": {"requests": dict(requests)}} if requests else {}
    return {"name": name, "image": "registry.example/app:1"} | resources


def _expression(key: str, operator: str, values: tuple[str, ...]) -> Manifest:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
