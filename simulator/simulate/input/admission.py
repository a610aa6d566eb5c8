"""Admission of new pods: LimitRanges, RuntimeClasses, PriorityClasses.

The in-process API server sets the other defaults. Only effects that a scheduler can see are applied: requests,
overhead, node selectors and tolerations. Sizes are never refused, because they do not change the node of a pod. Pods
of a dump stay as they are. An API server computes a pod's priority from its PriorityClass and accepts no other, so
classes are added for dumps of pods without them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.api.core_v1 import ResourceMap, Toleration
from scheduler.api.meta import Frozen
from scheduler.manifests.defaults import SYSTEM_PRIORITIES, with_requests
from simulator.simulate.input.manifests import Found, InputError, Manifest, decoded

_PREEMPTS: Final = "PreemptLowerPriority"
_POLICIES: Final = ("Never", _PREEMPTS)


class MissingClass(InputError):
    """An API server refuses the pod, because its class does not exist. `refusal` is the server's text."""

    def __init__(self, found: Found, field: str, message: str, refusal: str) -> None:
        super().__init__(str(found.wrong(field, message)))
        self.refusal = f'pods "{found.name}" is forbidden: {refusal}'


class _Class(NamedTuple):
    value: int
    policy: str = _PREEMPTS


class Classes:
    """The PriorityClasses of a simulation. Call `settle` for each pod; `made_up` then has the added classes."""

    def __init__(self, objects: Iterable[Found]) -> None:
        """Read the classes. Raises InputError for a class that no server accepts."""
        self._known = {name: _Class(value) for name, value in SYSTEM_PRIORITIES.items()}
        self._default = _Class(0)
        self._made_up: dict[str, _Class] = {}
        for found in objects:
            if found.kind == "PriorityClass":
                made = _Class(_value(found), _policy(found, found.value, "preemptionPolicy"))
                self._known[found.name] = made
                if found.value.get("globalDefault"):
                    self._default = made

    def settle(self, found: Found, spec: Manifest) -> None:
        """Make the pod's class and its priority agree. Raises InputError for an unknown class."""
        name, value = spec.get("priorityClassName"), spec.pop("priority", None)
        if name is not None and not isinstance(name, str):
            raise found.wrong("spec.priorityClassName", f"must be a text, got {name!r}")
        known = self._known.get(name) if name else self._default
        if known is None and value is None:
            why = f"no PriorityClass {name!r} among the objects{_near(str(name), self._known)}"
            raise MissingClass(found, "spec.priorityClassName", why, f"no PriorityClass with name {name} was found")
        wanted = known or _Class(0)
        wanted = _Class(
            wanted.value if value is None else value,
            _policy(found, spec, "spec.preemptionPolicy", usual=wanted.policy),
        )
        spec.pop("preemptionPolicy", None)
        if wanted != known:
            spec["priorityClassName"] = self._named(wanted, name if name and known is None else "")

    def _named(self, wanted: _Class, name: str) -> str:
        """Return a class with these values, under this name if given; add one if there is none."""
        names = [known for known, made in self._known.items() if made == wanted]
        if names and not name:
            return names[0]
        name = name or _name_of(wanted)
        self._known[name] = self._made_up[name] = wanted
        return name

    def made_up(self) -> list[Found]:
        """Return the added classes, after all pods are settled."""
        return [
            Found(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": made.value,
                    "preemptionPolicy": made.policy,
                },
                f"PriorityClass {name}, made up for pods that have its priority",
            )
            for name, made in self._made_up.items()
        ]


def _name_of(made: _Class) -> str:
    name = f"priority-{made.value}".replace("--", "-minus-")
    return name if made.policy == _PREEMPTS else f"{name}-never"


def _value(found: Found) -> int:
    value = found.value.get("value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise found.wrong("value", f"must be a number, got {value!r}")
    return value


def _policy(found: Found, of: Manifest, field: str, *, usual: str = _PREEMPTS) -> str:
    policy = of.get("preemptionPolicy", usual)
    if policy not in _POLICIES:
        raise found.wrong(field, f"must be {' or '.join(_POLICIES)}, got {policy!r}")
    return str(policy)


ADMITTING: Final = frozenset({"LimitRange", "RuntimeClass"})
"""Kinds that only matter for the admission of pods."""


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
    """Admission of pods, created from all objects.

    Raises InputError for objects that the scheduler could not read either.
    """

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
        """Change the spec, which can be decoded.

        Raises InputError for a class that is unknown or contradicts the pod.
        """
        if (found.value.get("status") or {}).get("phase"):
            return
        self._limit(found.namespace, spec)
        self._run(found, spec)

    def _limit(self, namespace: str, spec: Manifest) -> None:
        ranges = self._limits.get(namespace)
        if not ranges:
            return
        spec |= with_requests(spec)  # a server sets its own defaults first
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        for container in containers:
            container["resources"] = dict(container.get("resources") or {})
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
            why = f"no RuntimeClass {name!r} among the objects{_near(str(name), self._classes)}"
            raise MissingClass(found, "spec.runtimeClassName", why, f'pod rejected: RuntimeClass "{name}" not found')
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
        if runtime.scheduling.tolerations:  # a duplicate toleration has no effect
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *value["scheduling"]["tolerations"]]


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""


def _for_containers(limit_range: Manifest) -> Manifest:
    """Return the default `limits` and `requests` of containers.

    As a server: max for a limit, limit or min for a request.
    """
    limits: Manifest = {}
    requests: Manifest = {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            usual = (item.get("max") or {}) | (item.get("default") or {})
            limits |= usual
            requests |= (item.get("min") or {}) | usual | (item.get("defaultRequest") or {})
    return {"limits": limits, "requests": requests}
