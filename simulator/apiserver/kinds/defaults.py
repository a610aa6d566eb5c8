"""Defaults that an API server adds to a new object, and refusals of its admission, as far as they matter to a scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from scheduler.manifests.defaults import SYSTEM_PRIORITIES, with_pod_defaults
from simulator.apiserver.kinds.fields import LABEL_SELECTOR
from simulator.apiserver.kinds.pods import pod_spec
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import Refused, check, forbidden, invalid, refuse
from simulator.apiserver.storage import Storage
from simulator.apiserver.validation import Problems, Table, missing, not_allowed, not_negative, required, wrong

Object = dict[str, Any]
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_LIMITS: Final = ("minAvailable", "maxUnavailable")
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_RULE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def with_budget_defaults(resource: ApiResource, budget: Object, _: str) -> None:
    """Return a new object without status, which only its controller writes. Raises 422."""
    budget["spec"] = budget.get("spec") or {}
    budget["status"] = dict.fromkeys(_COUNTS, 0)
    check(resource, budget, BUDGET)


def _one_limit(spec: Any, _: Any) -> Problems:
    if any(spec.get(limit) is None for limit in _LIMITS):
        return []
    names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
    shown = {f"{name[0].upper()}{name[1:]}": spec.get(name) for name in names}
    return [wrong(shown, "minAvailable and maxUnavailable cannot be both set")]


def _limit(value: Any, _: Any) -> Problems:
    if isinstance(value, int):
        return not_negative(value, None)
    if not isinstance(value, str):
        return []
    if not _PERCENT.fullmatch(value):
        return [wrong(value, _PERCENT_RULE)]
    return [wrong(value, "must not be greater than 100%")] if int(value[:-1]) > 100 else []


BUDGET: Final = Table(
    ("spec", _one_limit),
    *((f"spec.{limit}?", _limit) for limit in _LIMITS),
    ("spec.selector?", LABEL_SELECTOR),
    *((f"status.{count}?", not_negative) for count in _COUNTS),
)


def with_selector_replaced(patch: Object) -> Object:
    """Return the patch: a strategic merge patch replaces the selector of a budget as a whole."""
    spec = patch.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("selector"), dict):
        return patch
    return patch | {"spec": spec | {"selector": spec["selector"] | {"$patch": "replace"}}}


NewRule: TypeAlias = Callable[[ApiResource, Object, str], None]
"""Fills in a new object, in place, knowing the time. Raises `Refused`."""
GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
HIGHEST_PRIORITY: Final = 1_000_000_000
"""For all classes but the system's."""
PREEMPTS: Final = "PreemptLowerPriority"
_CONDITION_TIMES: Final = {
    "pods": ("lastProbeTime", "lastTransitionTime"),
    "nodes": ("lastHeartbeatTime", "lastTransitionTime"),
}
NODE_INFO: Final = dict.fromkeys(
    (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
        "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
    ),
    "",
)  # fmt: skip


class Defaults:
    """Applies the defaults of a kind to a new object, in place."""

    def __init__(self, storage: Storage, priority_classes: ApiResource, more: Mapping[str, NewRule]) -> None:
        """`more` are rules of other resources."""
        self._storage = storage
        self._priority_classes = priority_classes
        self._of: dict[str, NewRule] = {
            **more,
            "pods": self._pod,
            "nodes": _node,
            "namespaces": _namespace,
            "poddisruptionbudgets": with_budget_defaults,
            "priorityclasses": self._priority_class,
            "events": _event,
        }

    def apply(self, resource: ApiResource, obj: Object, now: str) -> None:
        """Raise `Refused` if admission or validation refuses the object."""
        if resource.has_generation:
            obj["metadata"]["generation"] = 1
        rule = self._of.get(resource.name)
        if rule is not None:
            rule(resource, obj, now)

    def _pod(self, resource: ApiResource, pod: Object, now: str) -> None:
        name, spec = pod["metadata"]["name"], pod.setdefault("spec", {})
        if not spec.get("containers"):
            raise invalid(resource, name, missing(at="spec.containers"))
        self._priority(resource, name, spec)
        refuse(resource, name, [each.below("spec") for each in pod_spec(spec)])
        spec = pod["spec"] = with_pod_defaults(spec)
        pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
        if spec.get("schedulingGates"):
            pod["status"]["conditions"] = [_gated(now)]

    def _priority(self, resource: ApiResource, name: str, spec: Object) -> None:
        given, class_name = spec.get("priority"), spec.get("priorityClassName", "")
        value, policy = 0, PREEMPTS
        classes = self._storage.bucket(self._priority_classes).entries
        if class_name:
            if class_name not in classes:
                raise forbidden(resource, name, f"no PriorityClass with name {class_name} was found")
            chosen: Object | None = classes[class_name].obj
        else:
            defaults = [entry.obj for entry in classes.values() if entry.obj.get("globalDefault")]
            chosen = min(defaults, key=lambda c: int(c["value"]), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
            value, policy = chosen["value"], chosen["preemptionPolicy"]
        if given is not None and given != value:
            why = (
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise forbidden(resource, name, why)
        if spec.get("preemptionPolicy", policy) != policy:
            why = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise forbidden(resource, name, why)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def _priority_class(self, resource: ApiResource, priority_class: Object, _: str) -> None:
        fill(priority_class, preemptionPolicy=PREEMPTS)
        name, value = priority_class["metadata"]["name"], priority_class.setdefault("value", 0)
        if value > HIGHEST_PRIORITY and name not in SYSTEM_PRIORITIES:
            why = f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
            raise invalid(resource, name, not_allowed(why, at="value"))
        if priority_class.get("globalDefault"):
            for entry in self._storage.bucket(resource).entries.values():
                if entry.obj.get("globalDefault"):
                    other = entry.obj["metadata"]["name"]
                    why = f"PriorityClass {other} is already marked as default. Only one default can exist"
                    raise forbidden(resource, name, why)


def with_condition_times(resource: ApiResource, obj: Object) -> None:
    """Write unset times of a condition as null. Replaces the list, never edits it."""
    times = _CONDITION_TIMES.get(resource.name)
    conditions = (obj.get("status") or {}).get("conditions")
    if times and conditions and any(t not in c for c in conditions for t in times):
        filled = [{"type": c.get("type"), "status": c.get("status")} | dict.fromkeys(times) | c for c in conditions]
        obj["status"] = obj["status"] | {"conditions": filled}


def fill(into: Object, **defaults: Any) -> None:
    """Set what is missing or empty."""
    for key, value in defaults.items():
        if into.get(key) in (None, ""):
            into[key] = value


def _quality(spec: Object) -> str:
    resources = [c["resources"] for c in (*spec["containers"], *(spec.get("initContainers") or []))]
    if spec.get("resources"):
        resources = [spec["resources"]]
    counted = [
        {kind: {n: q for n, q in (r.get(kind) or {}).items() if n in {"cpu", "memory"}} for kind in _KINDS}
        for r in resources
    ]
    if not any(c["requests"] or c["limits"] for c in counted):
        return "BestEffort"
    guaranteed = all(c["limits"].keys() == {"cpu", "memory"} and c["requests"] == c["limits"] for c in counted)
    return "Guaranteed" if guaranteed else "Burstable"


_KINDS: Final = ("requests", "limits")


def _gated(now: str) -> Object:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": GATED,
    }


def _node(_: ApiResource, node: Object, __: str) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = NODE_INFO | status.get("nodeInfo", {})
    for taint in node["spec"].get("taints") or []:
        if not taint.get("effect"):
            raise Refused(422, "Invalid", f'Node "{node["metadata"]["name"]}" is invalid: spec.taints: Required value')


def _namespace(_: ApiResource, namespace: Object, __: str) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _event(resource: ApiResource, event: Object, _: str) -> None:
    """As events.k8s.io validates; an event of the old form (no eventTime) is taken as it is."""
    for key, value in (
        ("deprecatedSource", {}),
        ("deprecatedFirstTimestamp", None),
        ("deprecatedLastTimestamp", None),
        ("eventTime", None),
    ):
        event.setdefault(key, value)
    if event["eventTime"] is None:
        return
    check(_in_core(resource), event, _EVENT)


def _note(event: Any, _: Any) -> Problems:
    is_long = len(event.get("note") or "") > 1024
    return [wrong("", "can have at most 1024 characters", at="message")] if is_long else []


_EVENT_FIELDS: Final = ("reportingController", "reportingInstance", "action", "reason", "type")
_EVENT: Final = Table(*((field, required()) for field in _EVENT_FIELDS), ("", _note))


def _in_core(resource: ApiResource) -> ApiResource:
    return ApiResource("", "v1", resource.name, resource.kind, resource.namespaced)
