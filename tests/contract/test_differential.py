"""The same random writes on both servers: the in-process one answers as the real one, status and body, step by step.

The writes are to pods and to claims for devices. Times are left out; uids and resourceVersions are compared by the order in which
they first appeared."""

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from simulator.apiserver import ApiServer
from tests.contract.conftest import KNOWN, MERGE, STRATEGIC, Api, Object
from tests.contract.words import condition
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import ControlPlane

TIMES = {"managedFields", "creationTimestamp", "lastTransitionTime", "deletionTimestamp"}
STEPS = 150
EACH_RUN = 4
# A shortened grace is not over yet: otherwise the answer would depend on the machine's speed.
LONG_S = 600
GRACES_S = (0, 500, 1000)
# Complete: where admission adds them to a patch, a repeated patch counts as a change in another second, to the real one.
UNREADY = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


@dataclass
class Step:
    """One request; `uid-of`, `version-of` and `old-version-of` are filled in per server."""

    method: str
    path: str
    body: Any = None
    content: str = "application/json"


@dataclass
class Side:
    """One server and the identifiers that its answers had so far."""

    api: Api
    root: str
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)

    async def answer(self, step: Step) -> tuple[int, Any]:
        body = self._filled(step.body) if step.body is not None else None
        answer = await self.api(step.method, self.root + step.path, body, content=step.content)
        self._learn(answer.body.get("metadata", {}))
        if answer.status == 422:  # a real server names all mistakes at once, ours stops after metadata and within pods
            fields = [cause["field"] for cause in answer.body["details"]["causes"]]
            fields = [name for name in fields if name.startswith("metadata.")] or fields
            is_compared = self.root != self.api.pods and MINOR == KNOWN
            return 422, (answer.body["reason"], fields if is_compared else None)
        return answer.status, self._normal(answer.body)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        what, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
        return self.seen.get(name, {}).get(what, "1") if what in {"uid-of", "version-of", "old-version-of"} else value

    def _learn(self, metadata: Object) -> None:
        for kind in ("uid", "resourceVersion"):
            if metadata.get(kind):
                self.numbers.setdefault(metadata[kind], f"<{kind} {len(self.numbers)}>")
        if "name" in metadata:
            before = self.seen.get(metadata["name"], {}).get("version-of", "1")
            now = {"uid-of": metadata["uid"], "version-of": metadata["resourceVersion"], "old-version-of": before}
            self.seen[metadata["name"]] = now

    def _normal(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._normal(item) for key, item in value.items() if key not in TIMES}
        if isinstance(value, list):
            return [self._normal(item) for item in value]
        if not isinstance(value, str):
            return value
        text = value.split("\n@@")[0].replace(self.api.ns, "<ns>")  # the real one prints what differs in a spec
        text = re.sub(r"(ResourceVersion in (?:precondition|object meta|record)):? \(?\d+\)?", r"\1 <version>", text)
        text = re.sub(r"(precondition) \(\d+\)", r"\1 <version>", text)
        return self.numbers.get(text) or re.sub(
            "[0-9a-f]{8}-[-0-9a-f]{27}", lambda m: self.numbers.get(m[0], m[0]), text
        )


def steps(rng: random.Random) -> Iterator[Step]:
    """Yield mostly valid writes to three pods by a client whose knowledge may be old."""
    while True:
        name = rng.choice("abc")
        kind = rng.choice(["create", "create", "patch", "patch", "status", "status", "delete", "bind", "get"])
        if kind == "create":
            yield Step("POST", "", {"metadata": {"name": name}, "spec": _spec(rng)})
        elif kind in {"patch", "status"}:
            content = rng.choice([MERGE, STRATEGIC])
            body = _changes(rng) if kind == "patch" else {"status": _status(rng)}
            metadata = _metadata(rng, name, is_strategic=content == STRATEGIC)
            path = f"/{name}/status" if kind == "status" else f"/{name}"
            yield Step("PATCH", path, body | {"metadata": metadata}, content)
        elif kind == "delete":
            yield Step("DELETE", f"/{name}", rng.choice([None, *_delete_options(name)]))
        elif kind == "bind":
            wanted: list[Object] = [{}, {"uid": f"uid-of:{name}"}, {"uid": "other"}, _version(rng, name)]
            metadata = {"name": name} | rng.choice(wanted)
            yield Step("POST", f"/{name}/binding", {"metadata": metadata, "target": {"kind": "Node", "name": "n"}})
        else:
            yield Step("GET", f"/{name}")


def _version(rng: random.Random, name: str) -> Object:
    return {"resourceVersion": f"{rng.choice(['version-of', 'old-version-of'])}:{name}"}


def _delete_options(name: str) -> list[Object]:
    wanted = [{"uid": f"uid-of:{name}"}, {"uid": "other"}, {"resourceVersion": f"old-version-of:{name}"}]
    return [{"gracePeriodSeconds": s} for s in GRACES_S] + [{"preconditions": each} for each in wanted]


def _metadata(rng: random.Random, name: str, *, is_strategic: bool) -> Object:
    metadata: Object = rng.choice([{}, {}, {}, _version(rng, name), {"uid": f"uid-of:{name}"}, {"uid": "other"}])
    if rng.random() < 0.3:
        metadata = metadata | {"labels": {rng.choice("xy"): rng.choice(["1", "2", None])}}
    if rng.random() < 0.1:
        metadata = metadata | {"finalizers": rng.choice([["e.x/a"], ["e.x/b", "e.x/a"], [], None])}
    elif is_strategic and rng.random() < 0.2:
        metadata = metadata | {"$deleteFromPrimitiveList/finalizers": [rng.choice(["e.x/a", "e.x/b"])]}
    return metadata


def _spec(rng: random.Random) -> Object:
    image = rng.choice(["x", "x:1", "a/b:latest", "h:5000/x", "h/x@sha256:" + "0" * 64])
    limits, requests = {"cpu": "1", "memory": "1Gi"}, {"cpu": "100m"}
    resources = rng.choice([{}, {"requests": requests}, {"limits": limits}, {"limits": limits, "requests": requests}])
    spec: Object = {"containers": [{"name": "c", "image": image, "resources": resources}]}
    spec |= rng.choice([{}, {"nodeName": "n"}, {"schedulingGates": [{"name": "g1"}, {"name": "g2"}]}])
    spec |= rng.choice(
        [{}, {}, {"terminationGracePeriodSeconds": LONG_S}, {"initContainers": [{"name": "i", "image": "y"}]}]
    )
    own = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 5}
    return spec | rng.choice([{}, {}, {"tolerations": [own]}, {"nodeSelector": {"a": "b"}}])


def _changes(rng: random.Random) -> Object:
    specs: list[Object] = [
        {"schedulingGates": rng.choice([None, [{"name": "g2"}]])},
        {"tolerations": [{"key": "k", "operator": "Exists"}, *UNREADY]},
        {"containers": [{"name": "c", "image": "z:9"}]},
        {"nodeName": "m"},
        {"schedulerName": "other"},
        {"activeDeadlineSeconds": 100},
    ]
    return rng.choice([{}, {"status": {"phase": "Running"}}, *({"spec": spec} for spec in specs)])


def _status(rng: random.Random) -> Object:
    status: Object = {}
    if rng.random() < 0.7:
        types = rng.sample(["PodScheduled", "A", "B", "Ready"], rng.randint(1, 2))
        texts = {"reason": rng.choice(["r1", "r2"]), "message": rng.choice(["m", ""])}
        status["conditions"] = [{"type": t, "status": rng.choice(["True", "False"])} | texts for t in types]
    if rng.random() < 0.3:
        status["phase"] = rng.choice(["Running", "Failed", "Succeeded", "Pending"])
    if rng.random() < 0.3:
        status["nominatedNodeName"] = rng.choice(["m", None, ""])
    return status


def claim_steps(rng: random.Random) -> Iterator[Step]:
    """Yield mostly valid writes to two claims by schedulers, drivers and users whose knowledge may be old."""
    while True:
        name = rng.choice("ab")
        kind = rng.choice(["create", "create", "patch", *["status"] * 6, "delete", "get"])
        if kind == "create":
            yield Step("POST", "", {"metadata": {"name": name}, "spec": _claim_spec(rng)})
        elif kind == "patch":
            content = rng.choice([MERGE, STRATEGIC])
            spec: Object = rng.choice([{}, {}, {}, {"spec": _claim_spec(rng)}])
            metadata = _metadata(rng, name, is_strategic=content == STRATEGIC)
            yield Step("PATCH", f"/{name}", spec | {"metadata": metadata}, content)
        elif kind == "status":
            content = rng.choice([MERGE, STRATEGIC])
            body: Object = {"status": _claim_status(rng, is_strategic=content == STRATEGIC)}
            metadata = _metadata(rng, name, is_strategic=False)
            yield Step("PATCH", f"/{name}/status", body | {"metadata": metadata}, content)
        elif kind == "delete":
            yield Step("DELETE", f"/{name}", rng.choice([None, *_delete_options(name)]))
        else:
            yield Step("GET", f"/{name}")


def _claim_spec(rng: random.Random) -> Object:
    asked: list[Object] = [{"deviceClassName": "x"}, {"deviceClassName": "x", "allocationMode": "All"}, {"count": 2}]
    option = {"name": "s", "deviceClassName": "x", "tolerations": [{"key": "k"}]}
    requests: list[Object] = [{"name": "a", "exactly": rng.choice(asked)}, {"name": "f", "firstAvailable": [option]}]
    devices: Object = {"requests": rng.sample(requests, rng.randint(1, 2))}
    constraint = {"matchAttribute": rng.choice(["a.b/c", "c"]), "requests": rng.choice([["a"], ["f/s"], []])}
    return {"devices": devices | rng.choice([{}, {}, {"constraints": [constraint]}, {"constraints": [], "config": []}])}


def _claim_status(rng: random.Random, *, is_strategic: bool) -> Object:
    status: Object = {}
    devices = [{"driver": "d.x", "pool": "p", "device": name} for name in ("d1", "d2")]
    if rng.random() < 0.6:
        results = [{"request": rng.choice(["a", "f/s", "f"])} | each for each in rng.sample(devices, rng.randint(1, 2))]
        parts: list[Object] = [{}, {}, {}, {"adminAccess": True}, {"bindingConditions": ["B"]}, {"shareID": "x"}]
        full = {"devices": {"results": [result | rng.choice(parts) for result in results]}}
        selector = {"nodeSelectorTerms": rng.choice([[], [{"matchFields": [_FIELD]}]])}
        status["allocation"] = rng.choice([None, full, full, full | {"nodeSelector": selector}])
    if rng.random() < 0.6:
        users: list[Object] = [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(3)]
        status["reservedFor"] = rng.choice([None, [], [{"uid": "u0"}], rng.sample(users, rng.randint(1, 3))])
        if is_strategic and rng.random() < 0.5:
            status["reservedFor"] = [{"$patch": "delete", "uid": rng.choice(["u0", "u1"])}]
    if rng.random() < 0.4:
        told = condition("R") | {"status": rng.choice(["True", "X"])}
        entries = [each | rng.choice([{}, {"conditions": [told]}]) for each in rng.sample(devices, rng.randint(1, 2))]
        status["devices"] = rng.choice([None, entries, entries])
    return status


_FIELD = {"key": "metadata.name", "operator": "In", "values": ["n"]}
PODS, CLAIMS = "/api/v1/namespaces/{}/pods", "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


@pytest.mark.e2e
@pytest.mark.parametrize("nth", range(EACH_RUN))
@pytest.mark.parametrize(
    ("root", "writes"), [pytest.param(PODS, steps, id="pods"), pytest.param(CLAIMS, claim_steps, id="claims")]
)
async def test_random_writes_are_answered_alike(
    real: ControlPlane, root: str, writes: Callable[[random.Random], Iterator[Step]], nth: int, seed: int
) -> None:
    seed = seed * EACH_RUN + nth
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(rng=random.Random(seed)))
        server.upgrade(f"v{MINOR}.0")
        ours = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        theirs = await stack.enter_async_context(real.client())
        namespace = f"random-{writes.__name__.replace('_', '-')}-{seed}"
        apis = [Api(http, is_real=http is theirs, ns=namespace) for http in (ours, theirs)]
        sides = [Side(api, root.format(namespace)) for api in apis]
        for side in sides:
            await side.api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for number, step in zip(range(STEPS), writes(random.Random(seed))):
            mine, right = [await side.answer(step) for side in sides]
            assert mine == right, (
                f"seed {seed}, step {number}: {step.method} {step.path} {step.content} {json.dumps(step.body)}"
            )
