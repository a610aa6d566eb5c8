"""What admission makes of a new pod besides what the in-process API server does: LimitRanges and RuntimeClasses.

Only what a scheduler can tell is done: amounts that are asked for, overhead, node selectors and tolerations. Nothing is
refused for its size: that is not a matter of where a pod goes. A pod that a server has seen already stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.core.meta import Frozen
from scheduler.core.pod import ResourceMap, Toleration
from scheduler.testing.apiserver.podlevel import with_pod_level
from scheduler.testing.simulate.decoding import decoded
from scheduler.testing.simulate.manifests import Found, Manifest

ADMITTING: Final = frozenset({"LimitRange", "RuntimeClass"})
"""Kinds that are done with once pods have been admitted."""


class _Limit(Frozen, frozen=True):
    type: str = ""
    default: ResourceMap = {}
    default_request: ResourceMap = {}
    max: ResourceMap = {}
    min: ResourceMap = {}


class _LimitRangeSpec(Frozen, frozen=True):
    limits: tuple[_Limit, ...] = ()


class _LimitRange(Frozen, frozen=True):
    spec: _LimitRangeSpec = _LimitRangeSpec()


class _Overhead(Frozen, frozen=True):
    pod_fixed: ResourceMap = {}


class _Scheduling(Frozen, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class _RuntimeClass(Frozen, frozen=True):
    overhead: _Overhead = _Overhead()
    scheduling: _Scheduling = _Scheduling()


class _Overheaded(Frozen, frozen=True):
    overhead: ResourceMap = {}


class Admission:
    """Made once of all objects, asked for each new pod. Raises InputError for what the scheduler could not read either."""

    def __init__(self, objects: Iterable[Found]) -> None:
        self._limits: dict[str, list[Manifest]] = {}
        self._classes: dict[str, tuple[_RuntimeClass, Manifest]] = {}
        for found in objects:
            if found.kind == "LimitRange":
                decoded(found, _LimitRange, found.value)
                self._limits.setdefault(found.namespace, []).append(_for_containers(found.value))
            elif found.kind == "RuntimeClass":
                self._classes[found.name] = decoded(found, _RuntimeClass, found.value), found.value

    def admit(self, found: Found, spec: Manifest) -> None:
        """Changes the spec, which can be decoded. Raises InputError for a class that nobody knows or that contradicts the pod."""
        if (found.value.get("status") or {}).get("phase"):
            return
        self._limit(found.namespace, spec)
        self._run(found, spec)

    def _limit(self, namespace: str, spec: Manifest) -> None:
        ranges = self._limits.get(namespace)
        if not ranges:
            return
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        for container in containers:  # a server's own defaults come first
            resources = container["resources"] = dict(container.get("resources") or {})
            resources["requests"] = (resources.get("limits") or {}) | (resources.get("requests") or {})
        if spec.get("resources"):
            spec["resources"] = with_pod_level(spec)
        for defaults in ranges:
            for container in containers:
                resources = container["resources"]
                for kind in ("limits", "requests"):
                    resources[kind] = defaults[kind] | (resources.get(kind) or {})

    def _run(self, found: Found, spec: Manifest) -> None:
        name = spec.get("runtimeClassName")
        if not name:
            return
        if not isinstance(name, str) or name not in self._classes:
            raise found.wrong("spec.runtimeClassName", f"no RuntimeClass {name!r} among the objects")
        runtime, value = self._classes[name]
        if runtime.overhead.pod_fixed:
            own = decoded(found, _Overheaded, spec).overhead
            if own and own != runtime.overhead.pod_fixed:
                raise found.wrong("spec.overhead", "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
            spec["overhead"] = dict(value["overhead"]["podFixed"])
        selector = dict(spec.get("nodeSelector") or {})
        for key, wanted in runtime.scheduling.node_selector.items():
            if selector.setdefault(key, wanted) != wanted:
                why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}"
                raise found.wrong("spec.nodeSelector", f"{why}; pod.spec.nodeSelector[{key}] = {selector[key]}")
        if selector:
            spec["nodeSelector"] = selector
        if runtime.scheduling.tolerations:  # one that says the same twice changes nothing
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *value["scheduling"]["tolerations"]]


def _for_containers(limit_range: Manifest) -> Manifest:
    """The `limits` and `requests` of containers that have none, with a server's defaults: max for a limit, limit or min for a request."""
    limits: Manifest = {}
    requests: Manifest = {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            usual = (item.get("max") or {}) | (item.get("default") or {})
            limits |= usual
            requests |= (item.get("min") or {}) | usual | (item.get("defaultRequest") or {})
    return {"limits": limits, "requests": requests}
