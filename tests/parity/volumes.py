"""Claims and PVs on some API server: put up as a scenario has them, and what a trial has written to them."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from tests.e2e.cluster import each
from tests.parity.api import VOLUMES, ScenarioApi, create_whole, created_whole
from tests.parity.scenario import Scenario
from tests.parity.storage import BY_CONTROLLER, SELECTED, owner_of, uid_to_come
from tests.parity.words import Json

Written = dict[tuple[str, str], Json]
"""(kind, key) → object, of all PVs and claims."""

_SHORT: Final = {"PersistentVolume": "pv", "PersistentVolumeClaim": "claim"}


async def put_volumes(api: ScenarioApi, scenario: Scenario) -> None:
    """Claims and PVs; the bound pods that own some are there already."""
    kept = scenario.storage
    uids: dict[tuple[str, str], str] = {}

    async def put_claim(claim: Json) -> None:
        stored = await created_whole(api, _owned(claim, await _uid_of_owner(api, claim)))
        uids[_place(stored)] = stored["metadata"]["uid"]

    await each(kept.claims, put_claim)
    await each(kept.volumes, lambda volume: create_whole(api, _for_its_claim(volume, uids)))
    for kind, name in sorted(kept.leaving):
        of_kind = kept.claims if kind == "PersistentVolumeClaim" else kept.volumes
        namespace = next(_place(item)[0] for item in of_kind if item["metadata"]["name"] == name)
        await api.delete(kind, name, namespace, gracefully=True)


async def hand_over(api: ScenarioApi, scenario: Scenario, pod: Json) -> None:
    """The scenario's claims whose owner has the name of this pod, which was just created, are its own."""
    for claim in scenario.storage.owned_by(pod):
        references = _owned(claim, pod["metadata"]["uid"])["metadata"]["ownerReferences"]
        namespace, name = _place(claim)
        await api.patch("PersistentVolumeClaim", name, namespace, {"metadata": {"ownerReferences": references}})


async def volumes(api: ScenarioApi) -> Written:
    return {(kind, "/".join(_place(item))): item for kind in VOLUMES for item in await api.items(kind)}


def changes(before: Written, after: Written) -> tuple[str, ...]:
    """What was written between two looks, in words that are the same on every server: without uids and versions."""
    lines = [line for place in before.keys() & after.keys() for line in _changed(place, before, after)]
    return tuple(sorted(lines))


def will_be_for(volume: str, claim: str) -> str:
    """One of `changes`: a PV gets this claim, `namespace/name`."""
    return f"pv {volume}: claimRef PersistentVolumeClaim v1 {claim}, its uid, its version"


def will_be_marked(volume: str) -> str:
    """One of `changes`: a PV is marked as bound by a controller."""
    return f"pv {volume}: {BY_CONTROLLER} yes"


def will_be_for_node(claim: str, node: str) -> str:
    """One of `changes`: a claim is to be provisioned for this node."""
    return f"claim {claim}: {SELECTED} {node}"


def _changed(place: tuple[str, str], before: Written, after: Written) -> Iterator[str]:
    old, new, what = before[place], after[place], f"{_SHORT[place[0]]} {place[1].removeprefix('/')}"
    if old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
        return
    for field, is_now in _differing(_telling(old), _telling(new)):
        if field == "claimRef" and is_now is not None:
            yield f"{what}: claimRef {_reference(is_now, before)}"
        elif is_now is None:
            yield f"{what}: no {field}"
        else:
            yield f"{what}: {field} {is_now if isinstance(is_now, str) else json.dumps(is_now, sort_keys=True)}"


def _telling(item: Json) -> Mapping[str, object]:
    """What a scheduler may be tempted to write, under the names of the report. Owners are set by the test."""
    metadata = item["metadata"]
    return {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {}), **item["spec"]}


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for field in sorted(old.keys() | new.keys()):
        if old.get(field) != new.get(field):
            yield field, new.get(field)


def _reference(reference: object, before: Written) -> str:
    assert isinstance(reference, dict)
    key = f"{reference.get('namespace')}/{reference.get('name')}"
    meant = before["PersistentVolumeClaim", key]["metadata"]
    uid, version = reference.get("uid"), reference.get("resourceVersion")
    words = [f"{reference.get('kind')} {reference.get('apiVersion')} {key}"]
    words.append({None: "no uid", meant["uid"]: "its uid"}.get(uid, "another uid"))
    words.append({None: "no version", meant["resourceVersion"]: "its version"}.get(version, "another version"))
    return ", ".join(words)


# -- owners that do not exist yet --------------------------------------------------------------------------------------


def _place(item: Json) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


async def _uid_of_owner(api: ScenarioApi, claim: Json) -> str:
    """The uid of an existing pod; a tried pod does not exist yet."""
    owner = owner_of(claim)
    if owner is None:
        return ""
    there: dict[tuple[str, str], str] = {_place(pod): pod["metadata"]["uid"] for pod in await api.items("Pod")}
    return there.get(owner, uid_to_come(owner[1]))


def _owned(claim: Json, uid: str) -> Json:
    metadata = claim["metadata"]
    if "ownerReferences" not in metadata:
        return claim
    references = [reference | {"uid": uid} for reference in metadata["ownerReferences"]]
    return claim | {"metadata": metadata | {"ownerReferences": references}}


def _for_its_claim(volume: Json, uids: Mapping[tuple[str, str], str]) -> Json:
    """A claimRef with an empty uid gets the one of its claim."""
    reference = volume["spec"].get("claimRef")
    if reference is None or reference.get("uid") != "":
        return volume
    uid = uids[reference["namespace"], reference["name"]]
    return volume | {"spec": volume["spec"] | {"claimRef": reference | {"uid": uid}}}
