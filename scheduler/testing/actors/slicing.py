"""Which writes bring the slices of one pool from what is stored to what a driver wants, and in which generation.

As the ResourceSlice controller that drivers are built with: obsolete slices go first, then the others are rewritten, then
new ones come; the generation stays only if one write is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from scheduler.testing.actors.acting import Object

Spec = dict[str, Any]


class Write(NamedTuple):
    """One write to one slice; `spec` is empty for a deletion."""

    verb: Literal["delete", "update", "create"]
    name: str
    spec: Spec


def writes(existing: Sequence[Object], wanted: Sequence[Spec], pool: Spec, *, prefix: str) -> list[Write]:
    """What is to be done, in order. `pool` is its name, and a generation that is to be reached at least.

    Slices are named `<index>-<prefix>`, which is how they are known again.
    """
    newest = max((each["spec"]["pool"]["generation"] for each in existing), default=0)
    names = [f"{index:02x}-{prefix}" for index in range(len(wanted))]
    current = {
        each["metadata"]["name"]: each
        for each in existing
        if each["spec"]["pool"]["generation"] == newest and each["metadata"]["name"] in names
    }
    in_pool = {"name": pool["name"], "generation": newest, "resourceSliceCount": len(wanted)}
    changed = [
        name
        for name, spec in zip(names, wanted, strict=True)
        if name in current and _untimed(current[name]["spec"]) != _untimed(spec | {"pool": in_pool})
    ]
    is_new = len(current) < len(wanted) or len(changed) > 1
    generation = max(newest + is_new, pool.get("generation", 0))
    in_pool["generation"] = generation
    obsolete = [each["metadata"]["name"] for each in existing if each["metadata"]["name"] not in current]
    specs = {name: spec | {"pool": in_pool} for name, spec in zip(names, wanted, strict=True)}
    rewritten = [name for name in names if name in current and (name in changed or generation > newest)]
    return [
        *(Write("delete", name, {}) for name in obsolete),
        *(Write("update", name, with_times(specs[name], current[name]["spec"])) for name in rewritten),
        *(Write("create", name, specs[name]) for name in names if name not in current),
    ]


def with_times(spec: Spec, before: Spec) -> Spec:
    """Taints that stay keep the time at which they came."""
    times = {
        (device["name"], _taint(taint)): taint["timeAdded"]
        for device in before.get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    return spec | (
        {"devices": [_device_with_times(device, times) for device in spec["devices"]]} if spec.get("devices") else {}
    )


def _device_with_times(device: Object, times: dict[tuple[str, tuple[str, ...]], str]) -> Object:
    if not device.get("taints"):
        return device
    taints = []
    for taint in device["taints"]:
        since = times.get((device["name"], _taint(taint)))
        taints.append(taint if since is None or "timeAdded" in taint else taint | {"timeAdded": since})
    return device | {"taints": taints}


def _taint(taint: Object) -> tuple[str, ...]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _untimed(spec: Spec) -> Spec:
    devices = [
        device
        | (
            {"taints": [{key: taint[key] for key in taint if key != "timeAdded"} for taint in device["taints"]]}
            if device.get("taints")
            else {}
        )
        for device in spec.get("devices") or ()
    ]
    return {key: value for key, value in spec.items() if key != "devices"} | {"devices": devices}
