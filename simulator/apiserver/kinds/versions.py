"""Kinds that look different under another group or version: what is sent and shown there, and what is stored."""

from __future__ import annotations

from typing import Any

from simulator.apiserver.kinds import device_versions as deviceversions, events
from simulator.apiserver.resources import ApiResource

Object = dict[str, Any]


def shown(resource: ApiResource, obj: Object) -> Object:
    """Return a stored object as this group and version has it; the same object where nothing differs."""
    if resource.is_core_event:
        return events.to_core(obj)
    return deviceversions.to_v1beta1(resource.name, obj) if resource.is_flat else obj


def stored(resource: ApiResource, obj: Object) -> Object:
    """Return an object of this group and version as it is stored."""
    if resource.is_core_event:
        return events.from_core(obj)
    return deviceversions.from_v1beta1(resource.name, obj) if resource.is_flat else obj
