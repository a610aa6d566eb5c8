"""What a scenario has of devices, in short, and what its pods request.

    devices:
      classes: name: {when: cel or [cel], configs: [driver says] , extended: resource name}   # a and b are there: of these drivers
      slices:  name: {pool: driver/pool, of: how many, generation, counters: {set: {counter: amount}},
                      at: node or everywhere: true or from: {key: value} or selector: {…} or each: true,
                      devices: "d1 d2" or {d1: {an attribute: its value, capacity: {name: amount or {…}}, uses: {set: {counter: amount}},
                                taints: ["key=value:Effect"], binds: [condition], fails: [condition], shared, here, at, everywhere, from}}}
      claims:  name: {a request: "class*count" or {class, count, when: cel or [cel], admin, tolerates: [{…}], capacity: {name: amount}}
                      or [the same, {…}],   # one of these, s0 before s1
                      same: [attribute or {attribute: [request]}], apart: the same, configs: [driver says or {driver says: [request]}],
                      got: [request driver/pool/device or {…}], got_for: [term], got_at: second, got_configs: [{…}], reserved: [pod],
                      status: {driver/pool/device: {condition: "True"}}, owner: pod, controls, special, kept, leaving, namespace}
      rules:   name: {driver, pool, device, taint: "key=value:Effect"}
      drivers: claim: {driver/pool/device: {condition: "True"}}   # as soon as it is allocated

    a pod's devices: [claim] or {entry: claim or {made: claim or null} or null}

A class `count` is `1`, a number or `all`. `made` is the claim of a template, null if none is needed; an entry that is null
has a template alone. An attribute is what its value looks like in JSON, a version if it says `v1.2.3`; other values are as
they are. `here` is bindsToNode. `kept` has the finalizer. Pods that reserve
may be bound or tried pods or strangers; if it is a number, that many strangers.
The names of claims may be sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.parity.words import Json, long_key, nothing_left, slug

GROUP: Final = "resource.k8s.io"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"
_V1: Final = f"{GROUP}/v1"
_RULES: Final = f"{GROUP}/v1beta2"
_DRIVERS: Final = ("a", "b")
_ALL: Final = "all"
_WORDS: Final = frozenset(
    {"same", "apart", "configs", "got", "got_for", "got_at", "got_configs", "reserved", "status"}
    | {"owner", "controls", "special", "kept", "leaving", "namespace"}
)
"""Of a claim: what is no request."""
_STAMP: Final = "2026-01-01T{:02}:{:02}:{:02}Z"


@dataclass(frozen=True)
class Devices:
    """Manifests. Owners and reservations name pods whose uids are not known yet."""

    settings: tuple[Json, ...] = ()
    """What no trial changes: classes, slices and rules."""
    claims: tuple[Json, ...] = ()
    leaving: frozenset[str] = frozenset()
    """Names of claims that are being deleted."""
    drivers: Mapping[str, list[Json]] = field(default_factory=dict)
    """Name of a claim → what its drivers write to `status.devices` once it is allocated."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.claims)

    def meaning(self, pod: Json) -> list[Json]:
        """The claims that this pod owns or has reserved."""
        metadata = pod["metadata"]
        return [
            claim
            for claim in self.claims
            if claim["metadata"]["namespace"] == metadata["namespace"] and metadata["name"] in named_by(claim)
        ]


def named_by(claim: Json) -> set[str]:
    """Pods that own the claim or have reserved it."""
    owners = claim["metadata"].get("ownerReferences", ())
    reserved = claim.get("status", {}).get("reservedFor", ())
    return {reference["name"] for reference in (*owners, *reserved)}


def devices(short: Json) -> Devices:
    """Takes what it knows out of a scenario's short form."""
    if "devices" not in short:
        return Devices()
    given = dict(short.pop("devices") or {})
    claims: dict[str, Any] = given.pop("claims", {})
    classes = {name: {"when": f'device.driver == "{name}"'} for name in _DRIVERS} | given.pop("classes", {})
    read = Devices(
        settings=(
            *(device_class(name, dict(one or {})) for name, one in classes.items()),
            *(slice_(name, dict(one)) for name, one in given.pop("slices", {}).items()),
            *(rule(name, dict(one)) for name, one in given.pop("rules", {}).items()),
        ),
        claims=tuple(claim(name, one) for name, one in claims.items()),
        leaving=frozenset(slug(name) for name, one in claims.items() if isinstance(one, dict) and one.get("leaving")),
        drivers={slug(name): _statuses(one) for name, one in given.pop("drivers", {}).items()},
    )
    nothing_left("devices", given)
    return read


# -- what there is -----------------------------------------------------------------------------------------------------


def device_class(name: str, short: Json) -> Json:
    """Of all devices by default."""
    spec: Json = {}
    if conditions := _selectors(short):
        spec["selectors"] = conditions
    if configs := short.pop("configs", None):
        spec["config"] = [_opaque(text) for text in configs]
    if (resource := short.pop("extended", None)) is not None:
        spec["extendedResourceName"] = resource
    nothing_left(f"device class {name}", short)
    return _object(_V1, "DeviceClass", {"name": name}, spec)


def slice_(name: str, short: Json) -> Json:
    """By default the only one of its pool, and of the first generation."""
    driver, _, pool = short.pop("pool").partition("/")
    spec: Json = {
        "driver": driver,
        "pool": {"name": pool, "generation": short.pop("generation", 1), "resourceSliceCount": short.pop("of", 1)},
        **_place(short),
    }
    if short.pop("each", False):
        spec["perDeviceNodeSelection"] = True
    if counters := short.pop("counters", None):
        spec["sharedCounters"] = _consumed(counters, "name")
    found = short.pop("devices", None)
    if isinstance(found, str):
        found = {device_name: {} for device_name in found.split()}
    if found:
        spec["devices"] = [device(device_name, dict(one or {})) for device_name, one in found.items()]
    nothing_left(f"slice {name}", short)
    return _object(_V1, "ResourceSlice", {"name": name}, spec)


def device(name: str, short: Json) -> Json:
    """Words that are not known are attributes."""
    made: Json = {"name": name, **_place(short)}
    if amounts := short.pop("capacity", None):
        made["capacity"] = {
            key: amount if isinstance(amount, dict) else {"value": str(amount)} for key, amount in amounts.items()
        }
    if consumed := short.pop("uses", None):
        made["consumesCounters"] = _consumed(consumed, "counterSet")
    if taints := short.pop("taints", None):
        made["taints"] = [_taint(text) for text in taints]
    for word, name_of_field in (
        ("binds", "bindingConditions"),
        ("fails", "bindingFailureConditions"),
        ("shared", "allowMultipleAllocations"),
        ("here", "bindsToNode"),
    ):
        if (value := short.pop(word, None)) is not None:
            made[name_of_field] = value
    if short:
        made["attributes"] = {key: _attribute(value) for key, value in short.items()}
    return made


def rule(name: str, short: Json) -> Json:
    spec: Json = {"taint": _taint(short.pop("taint"))}
    selector = {word: short.pop(word) for word in ("driver", "pool", "device") if word in short}
    spec["deviceSelector"] = selector
    nothing_left(f"rule {name}", short)
    return _object(_RULES, "DeviceTaintRule", {"name": name}, spec)


def _place(short: Json) -> Json:
    if (node := short.pop("at", None)) is not None:
        return {"nodeName": node}
    if short.pop("everywhere", False):
        return {"allNodes": True}
    if (labels := short.pop("from", None)) is not None:
        expressions = [
            {"key": long_key(key), "operator": "In", "values": value if isinstance(value, list) else [value]}
            for key, value in labels.items()
        ]
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    if (selector := short.pop("selector", None)) is not None:
        return {"nodeSelector": {"nodeSelectorTerms": [selector]}}
    return {}


def _consumed(sets: Mapping[str, Mapping[str, object]], word: str) -> list[Json]:
    return [
        {word: name, "counters": {counter: {"value": str(amount)} for counter, amount in counters.items()}}
        for name, counters in sets.items()
    ]


def _attribute(value: object) -> Json:
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    text = str(value)
    is_version = text[:1] == "v" and text[1:2].isdigit() and text.count(".") >= 2
    return {"version": text[1:]} if is_version else {"string": text}


def _taint(text: str) -> Json:
    pair, effect = text.rsplit(":", 1)
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def _selectors(short: Json) -> list[Json]:
    wanted = short.pop("when", ())
    return [{"cel": {"expression": text}} for text in ([wanted] if isinstance(wanted, str) else wanted)]


def _opaque(text: str) -> Json:
    driver, _, says = text.partition(" ")
    return {"opaque": {"driver": driver, "parameters": {"says": says}}}


# -- what is requested ------------------------------------------------------------------------------------------------


def claim(name: str, short: Any) -> Json:
    """One request for a device of class a, r0, if nothing else is said; a text is that request."""
    given = dict(short) if isinstance(short, dict) else {"r0": short or "a"}
    requests = {word: given.pop(word) for word in list(given) if word not in _WORDS}
    inner: Json = {"requests": [_request(word, one) for word, one in requests.items()]}
    constraints = [
        _constraint(wanted, kind)
        for word, kind in (("same", "matchAttribute"), ("apart", "distinctAttribute"))
        for wanted in given.pop(word, ())
    ]
    if constraints:
        inner["constraints"] = constraints
    if configs := given.pop("configs", None):
        inner["config"] = [_config(one) for one in configs]
    manifest = _object(_V1, "ResourceClaim", _metadata(name, given), {"devices": inner})
    if status := _status(given):
        manifest["status"] = status
    given.pop("leaving", None)
    nothing_left(f"device claim {name}", given)
    return manifest


def _metadata(name: str, given: Json) -> Json:
    metadata: Json = {"name": slug(name), "namespace": given.pop("namespace", "default")}
    if given.pop("kept", False) or given.get("leaving"):
        metadata["finalizers"] = [FINALIZER]
    if given.pop("special", False):
        metadata["annotations"] = {SPECIAL: "true"}
    if owner := given.pop("owner", None):
        controls = given.pop("controls", True)
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": slug(owner), "controller": controls}]
    return metadata


def _request(name: str, short: Any) -> Json:
    if isinstance(short, list):
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **_exactly(one)} for i, one in enumerate(short)]}
    return {"name": name, "exactly": _exactly(short)}


def _exactly(short: Any) -> Json:
    if isinstance(short, str):
        class_name, _, count = short.partition("*")
        short = {"class": class_name, **({"count": count} if count else {})}
    given = dict(short)
    made: Json = {"deviceClassName": given.pop("class", "a")}
    count = given.pop("count", None)
    if count == _ALL:
        made["allocationMode"] = "All"
    elif count is not None:
        made |= {"allocationMode": "ExactCount", "count": int(count)}
    if conditions := _selectors(given):
        made["selectors"] = conditions
    if (admin := given.pop("admin", None)) is not None:
        made["adminAccess"] = admin
    if tolerations := given.pop("tolerates", None):
        made["tolerations"] = tolerations
    if capacity := given.pop("capacity", None):
        made["capacity"] = {"requests": {key: str(amount) for key, amount in capacity.items()}}
    nothing_left("device request", given)
    return made


def _constraint(wanted: object, kind: str) -> Json:
    if isinstance(wanted, dict):
        ((attribute, requests),) = wanted.items()
        return {"requests": requests, kind: attribute}
    return {kind: wanted}


def _config(one: object) -> Json:
    if isinstance(one, dict):
        ((text, requests),) = one.items()
        return {"requests": requests, **_opaque(text)}
    return _opaque(str(one))


def _status(given: Json) -> Json:
    status: Json = {}
    if (got := given.pop("got", None)) is not None:
        inner: Json = {"results": [_result(one) for one in got]}
        if configs := given.pop("got_configs", None):
            inner["config"] = configs
        status["allocation"] = {"devices": inner}
        if (terms := given.pop("got_for", None)) is not None:
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
        if (second := given.pop("got_at", None)) is not None:
            status["allocation"]["allocationTimestamp"] = _STAMP.format(second // 3600, second // 60 % 60, second % 60)
    if reserved := given.pop("reserved", None):
        pods = [f"stranger-{i}" for i in range(reserved)] if isinstance(reserved, int) else reserved
        status["reservedFor"] = [{"resource": "pods", "name": slug(pod)} for pod in pods]
    if said := given.pop("status", None):
        status["devices"] = _statuses(said)
    return status


def _result(one: Any) -> Json:
    given = dict(one) if isinstance(one, dict) else {"of": one}
    request, _, device_id = given.pop("of").partition(" ")
    driver, pool, name = device_id.split("/")
    return {"request": request, "driver": driver, "pool": pool, "device": name, **given}


def _statuses(said: Mapping[str, Mapping[str, str]]) -> list[Json]:
    found = []
    for device_id, conditions in said.items():
        driver, pool, name = device_id.split("/")
        told = [
            {
                "type": kind,
                "status": status,
                "reason": "Told",
                "message": f"{kind} is {status}",
                "lastTransitionTime": _STAMP.format(0, 0, 0),
            }
            for kind, status in conditions.items()
        ]
        found.append({"driver": driver, "pool": pool, "device": name, "conditions": told})
    return found


# -- pods --------------------------------------------------------------------------------------------------------------


def pod_devices(wanted: Any) -> tuple[list[Json], list[Json]]:
    """`spec.resourceClaims` and `status.resourceClaimStatuses`."""
    entries = dict(wanted) if isinstance(wanted, dict) else {f"e{i}": name for i, name in enumerate(wanted)}
    spec: list[Json] = []
    status: list[Json] = []
    for entry, given in entries.items():
        if isinstance(given, str):
            spec.append({"name": entry, "resourceClaimName": slug(given)})
            continue
        spec.append({"name": entry, "resourceClaimTemplateName": "t"})
        if given is not None:
            made = given["made"]
            status.append({"name": entry} | ({} if made is None else {"resourceClaimName": slug(made)}))
    return spec, status


def _object(api_version: str, kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
