"""Claims for devices and slices of devices as the contract tests send them, whole or with parts of them changed."""

from typing import Any

import pytest

from scheduler.api.resource_v1 import ConsumerReference, ResourceClaim
from tests.contract.conftest import Answer, Api, Object
from tests.contract.words import unsupported

GROUP = "resource.k8s.io/v1"
FIRST = ConsumerReference(resource="pods", name="p", uid="u1")
SECOND = ConsumerReference(resource="pods", name="q", uid="u2")
FLAT = "v1beta1"
"""Requests of this version have no `exactly`."""
OLD = pytest.mark.until("1.37")
"""For tests of v1beta1, which 1.38 does not serve (`test_version_v1beta1_of_devices`)."""
VERSIONS = ("v1", "v1beta2", pytest.param(FLAT, marks=OLD))
SPOKEN = ("v1", "v1beta2")
"""Those that Kubestow reads and writes."""
USER: Object = {"resource": "pods", "name": "p", "uid": "u1"}
RESULT: Object = {"request": "a", "driver": "d.x", "pool": "p", "device": "d1"}
STATUS: Object = {"driver": "d.x", "pool": "p", "device": "d1"}
NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
ADMIN = (
    "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
    "containing namespace"
)


def allocation(**change: Any) -> Object:
    return {"devices": {"results": [RESULT | change]}}


def exactly(**change: Any) -> Object:
    return {"requests": [{"name": "a", "exactly": {"deviceClassName": "x"} | change}]}


def first(*options: Object) -> Object:
    return {"requests": [{"name": "a", "firstAvailable": list(options)}]}


async def post(api: Api, devices: Object, name: str = "a") -> Answer:
    return await api(
        "POST", api.at(GROUP, "resourceclaims"), {"metadata": {"name": name}, "spec": {"devices": devices}}
    )


async def a_claim(api: Api) -> str:
    """Create a claim with request `a` and request `f` with one option `s`; return its path."""
    requests = [*exactly()["requests"], {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "x"}]}]
    assert (await post(api, {"requests": requests})).status == 201
    return f"{api.at(GROUP, 'resourceclaims')}/a"


def readable(answer: object) -> ResourceClaim:
    """Return the claim with which a write or read of the product was answered."""
    assert isinstance(answer, ResourceClaim), answer
    return answer


async def write(api: Api, path: str, **status: Any) -> Answer:
    return await api.merge(f"{path}/status", {"status": status})


async def kept(api: Api, path: str, **status: Any) -> Object:
    """Return the status after a write that must be accepted."""
    answer = await write(api, path, **status)
    assert answer.status == 200, answer.body
    found: Object = answer.body["status"]
    return found


# -- slices ------------------------------------------------------------------------------------------------------------


ROOT = "/apis/resource.k8s.io"
SLICES, CLASSES = f"{ROOT}/v1/resourceslices", f"{ROOT}/v1/deviceclasses"
SLICE: Object = {"driver": "d.x", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
POOL: Object = {"name": "p", "generation": 0, "resourceSliceCount": 1}
ONE_COUNTER: Object = {"m": {"value": "1"}}
SET: Object = {"name": "c", "counters": ONE_COUNTER}
CONSUMPTION: Object = {"counterSet": "c", "counters": ONE_COUNTER}
TAINT: Object = {"key": "k", "effect": "NoSchedule"}
NO_EFFECT = unsupported("X", "NoExecute", "NoSchedule", "None")


def device(**parts: Any) -> Object:
    return {"devices": [{"name": "d1", **parts}]}


def shared(**policy: Any) -> Object:
    return device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": policy}})


def on_selected(*expressions: Object) -> Object:
    """Return the change that makes a slice usable on the nodes of a selector."""
    return {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}


def present(change: Object) -> Object:
    """Return a slice with these parts changed; None removes a part."""
    return {key: value for key, value in (SLICE | change).items() if value is not None}


async def made(api: Api, path: str, spec: Object, name: str = "") -> Answer:
    return await api("POST", path, {"metadata": {"name": name or f"x-{api.ns}"}, "spec": spec})
