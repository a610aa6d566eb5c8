"""Fixes that are shown as verified, applied to an API server: the pods of the suite that no node fits must then run."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation, FixAnswer
from scheduler.explain.edits import Edit, merged, patched
from simulator.apiserver import ApiServer
from tests.explained.edited import refusals
from tests.parity.api import InProcess
from tests.parity.ours import Ours
from tests.parity.recordings import Recording
from tests.parity.replay import daemon_for, put_cluster
from tests.parity.scenario import Scenario, named
from tests.parity.side import TrialStage
from tests.parity.words import Json

_PATIENCE_S: Final = 20.0
_VERSIONS: Final = {
    "Node": "v1",
    "CSINode": "storage.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
}


@dataclass
class Applied:
    """What became of the fixes: `scenario/pod: texts` of those after which the pod runs, and of those after which it does not."""

    explained: int = 0
    without_fix: list[str] = field(default_factory=list)
    works: list[str] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)


async def apply_fixes(
    scenarios: Iterable[Scenario], recorded: Mapping[str, Recording], version: str, *, most: int = 3
) -> Applied:
    """Explain each pod that kube-scheduler found unschedulable, and try each of its fixes on a cluster as it was."""
    out = Applied()
    async with daemon_for(version) as we:
        side = we.by_default()
        assert isinstance(side.api, InProcess)
        for scenario in scenarios:
            verdicts = recorded[scenario.key].verdicts
            for name, pod in scenario.asked.items():
                is_refused = verdicts[name].reason == "Unschedulable"
                if is_refused and name not in scenario.held and "status" not in pod:
                    await _explained(side, side.api.server, scenario, name, out, most)
    return out


async def _explained(side: Ours, server: ApiServer, scenario: Scenario, name: str, out: Applied, most: int) -> None:
    for number in range(most):
        place = f"{scenario.key}/{name}"
        pod = await _tried(side, scenario, name)
        if pod is None:
            return
        found = _drive(side, f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        if number == 0:
            out.explained += 1
        if found is None or found.verdict != "doesNotFit":
            return
        fixes = [fix for fix in found.fixes if fix.verified]
        if not fixes and number == 0:
            out.without_fix.append(f"{place}: {found.cause}")
        if number >= len(fixes):
            return
        texts = "; ".join(change.text for change in fixes[number].changes)
        await _apply(side, server, pod, fixes[number])
        into = out.works if await _runs(side, pod) else out.fails
        into.append(f"{place}: {texts}")


async def _tried(side: Ours, scenario: Scenario, name: str) -> Json | None:
    """Put up the cluster with the pod; return the pod as it was created, if it fits nowhere."""
    await put_cluster(scenario, side)
    await TrialStage(scenario).set_for(side)
    wanted = named(scenario.asked[name], f"{side.prefix}-{scenario.profile}")
    created = await side.api.create(wanted)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        await asyncio.sleep(0.005)
        now = await _pod(side, created)
        if now is None or now["spec"].get("nodeName"):
            return None
        if now["status"].get("conditions") and side.daemon.idle():
            return created
    return None


async def _pod(side: Ours, pod: Json) -> Json | None:
    wanted = (pod["metadata"]["namespace"], pod["metadata"]["name"])
    for each in await side.api.items("Pod"):
        if (each["metadata"]["namespace"], each["metadata"]["name"]) == wanted:
            return each
    return None


def _drive(side: Ours, key: str) -> Explanation | None:
    return finish(side.daemon.scheduler.explainer.explain(key))


async def _apply(side: Ours, server: ApiServer, pod: Json, fix: FixAnswer) -> None:
    edits = merged(edit for change in fix.changes for edit in change.edits)
    own = [edit for edit in edits if edit.kind == "Pod" and edit.verb == "patch"]
    await side.api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    for edit in edits:
        match edit.verb, edit.kind:
            case "delete", _:
                await side.api.delete(edit.kind, edit.name, edit.namespace)
                await _release_devices(side, edit)
            case "create", _:
                await side.api.create(_manifest(edit, edit.manifest))
            case "patch", "Node":
                server.update("Node", patched(server.get("Node", edit.name, ""), edit.patch))
            case "patch", "PersistentVolumeClaim" | "ResourceClaim":
                before = server.get(edit.kind, edit.name, edit.namespace)
                server.update(edit.kind, before | {"metadata": before["metadata"] | {"finalizers": []}})
                await side.api.delete(edit.kind, edit.name, edit.namespace)
                await side.api.create(_manifest(edit, patched({"spec": before["spec"]}, edit.patch)))
            case _:
                pass
    metadata = {
        key: value for key, value in pod["metadata"].items() if key in {"name", "namespace", "labels", "annotations"}
    }
    fresh = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}
    for edit in own:
        fresh = patched(fresh, edit.patch)
    assert refusals(fresh) == []
    await side.api.create(fresh)


async def _release_devices(side: Ours, deleted: Edit) -> None:
    """Deallocate the claims that only this pod had reserved, as the resource claim controller does."""
    for claim in await side.api.items("ResourceClaim"):
        metadata, consumers = claim["metadata"], claim.get("status", {}).get("reservedFor") or []
        if metadata["namespace"] == deleted.namespace and [each["name"] for each in consumers] == [deleted.name]:
            released = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            await side.api.patch("ResourceClaim", metadata["name"], deleted.namespace, released)


def _manifest(edit: Edit, body: Json) -> Json:
    metadata = {key: value for key, value in body.get("metadata", {}).items() if key in {"labels", "annotations"}}
    place = {"name": edit.name} | ({"namespace": edit.namespace} if edit.namespace else {})
    if edit.kind == "CSINode":  # what the kubelet of the new node would write
        drivers = [each | {"nodeID": edit.name} for each in body["spec"]["drivers"]]
        body = body | {"spec": body["spec"] | {"drivers": drivers}}
    return body | {"apiVersion": _VERSIONS[edit.kind], "kind": edit.kind, "metadata": metadata | place}


async def _runs(side: Ours, pod: Json) -> bool:
    """Return whether the pod gets a node, or has one and waits there for the controllers of its volumes."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        await asyncio.sleep(0.005)
        now = await _pod(side, pod)
        if now is None:
            continue
        uid = now["metadata"]["uid"]
        if now["spec"].get("nodeName") or side.daemon.scheduler.binder.has(uid):
            side.daemon.scheduler.binder.preempt(uid, "test")
            return True
        said = now["status"].get("conditions") or [{}]
        if "binding volumes" in said[-1].get("message", ""):  # it has waited, and no controller came
            return True
        if side.daemon.idle() and now["status"].get("conditions"):
            return False
    return False
