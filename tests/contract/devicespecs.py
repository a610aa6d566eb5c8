"""Slices of devices as they are sent, whole or with parts of them changed."""

from typing import Any

from tests.contract.conftest import Answer, Api, Object
from tests.contract.words import unsupported

ROOT = "/apis/resource.k8s.io"
SLICES, CLASSES = f"{ROOT}/v1/resourceslices", f"{ROOT}/v1/deviceclasses"
SLICE: Object = {"driver": "d.x", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
POOL: Object = {"name": "p", "generation": 0, "resourceSliceCount": 1}
ONE_COUNTER: Object = {"m": {"value": "1"}}
SET: Object = {"name": "c", "counters": ONE_COUNTER}
TAINT: Object = {"key": "k", "effect": "NoSchedule"}
NO_EFFECT = unsupported("X", "NoExecute", "NoSchedule", "None")


def device(**parts: Any) -> Object:
    return {"devices": [{"name": "d1", **parts}]}


def shared(**policy: Any) -> Object:
    return device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": policy}})


def present(change: Object) -> Object:
    """Return a slice with these parts changed; None removes a part."""
    return {key: value for key, value in (SLICE | change).items() if value is not None}


async def made(api: Api, path: str, spec: Object, name: str = "") -> Answer:
    return await api("POST", path, {"metadata": {"name": name or f"x-{api.ns}"}, "spec": spec})
