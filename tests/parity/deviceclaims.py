"""Claims of devices on some API server: put up as a scenario has them, and what a trial has written to them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.e2e.cluster import each
from tests.parity.api import ScenarioApi, create_whole
from tests.parity.devices import Devices
from tests.parity.scenario import Scenario
from tests.parity.storage import uid_to_come
from tests.parity.words import Json

CLAIM: Final = "ResourceClaim"
_GENERATED: Final = re.compile(r"^(.*-extended-resources-)[a-z0-9]+$")
_DEVICE: Final = frozenset({"request", "driver", "pool", "device"})
_CHANCE: Final = {"shareID": "any"}
"""Fields of a result that are drawn."""


async def put_device_claims(api: ScenarioApi, scenario: Scenario) -> None:
    """With the uids of the bound pods, which exist; those of tried pods come with `hand_over_devices`."""
    kept = scenario.devices
    if not kept.claims:
        return
    there = {_place(pod): str(pod["metadata"]["uid"]) for pod in await api.items("Pod")}
    await each(kept.claims, lambda claim: create_whole(api, _with_uids(claim, there)))
    for name in sorted(kept.leaving):
        namespace = next(_place(claim)[0] for claim in kept.claims if claim["metadata"]["name"] == name)
        await api.delete(CLAIM, name, namespace, gracefully=True)


async def hand_over_devices(api: ScenarioApi, devices: Devices, pod: Json) -> None:
    """The claims that are owned or reserved by the name of this pod, which was just created, are its own."""
    uids = {_place(item): str(item["metadata"]["uid"]) for item in (*await api.items("Pod"), pod)}
    for claim in devices.meaning(pod):
        namespace, name = _place(claim)
        known = _with_uids(claim, uids)
        if owners := known["metadata"].get("ownerReferences"):
            await api.patch(CLAIM, name, namespace, {"metadata": {"ownerReferences": owners}})
        if reserved := known.get("status", {}).get("reservedFor"):
            await api.patch(CLAIM, name, namespace, {"status": {"reservedFor": reserved}})


async def answer(api: ScenarioApi, devices: Devices) -> bool:
    """The drivers say what they have to say of claims that are allocated; whether all of them have."""
    there = {claim["metadata"]["name"]: claim for claim in await api.items(CLAIM)}
    waiting = [name for name in devices.drivers if name in there and not there[name]["status"].get("devices")]
    for name in waiting:
        if there[name]["status"].get("allocation"):
            patch = {"status": {"devices": devices.drivers[name]}}
            await api.patch(CLAIM, name, there[name]["metadata"]["namespace"], patch)
    return not waiting


async def claims_of_devices(api: ScenarioApi) -> Mapping[str, Json]:
    """As they are now, by namespace and name."""
    return {"/".join(_place(claim)): claim for claim in await api.items(CLAIM)}


def device_changes(before: Mapping[str, Json], after: Mapping[str, Json], pod: Json) -> tuple[str, ...]:
    """What was written between two looks, in words that are the same on every server: without uids, times and chance.

    `pod` is the tried pod as it is now.
    """
    keys = sorted(before.keys() | after.keys())
    lines = [line for key in keys for line in _changed(key, before, after, pod)]
    if status := pod.get("status", {}).get("extendedResourceClaimStatus"):
        mappings = [" ".join(row[word] for word in _MAPPING) for row in status["requestMappings"]]
        lines.append(f"pod: {_unnumbered(status['resourceClaimName'])} serves {', '.join(mappings)}")
    return tuple(lines)


_MAPPING: Final = ("containerName", "resourceName", "requestName")


def _changed(key: str, before: Mapping[str, Json], after: Mapping[str, Json], pod: Json) -> Iterator[str]:
    what = f"devices {_unnumbered(key)}"
    if key not in after:
        yield f"{what}: gone"
        return
    old = _telling(before[key], pod) if key in before else {}
    new = _telling(after[key], pod)
    if key not in before:
        yield f"{what}: made"
    for field in sorted(old.keys() | new.keys()):
        if old.get(field) != new.get(field):
            yield f"{what}: {field} {new[field]}" if field in new else f"{what}: no {field}"


def _telling(claim: Json, pod: Json) -> Mapping[str, str]:
    """What a scheduler may write, under the names of the report."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    told: dict[str, object] = {
        "finalizers": metadata.get("finalizers"),
        "annotations": metadata.get("annotations"),
        "owners": ", ".join(_whose(owner, pod) for owner in metadata.get("ownerReferences", ())),
        "requests": claim["spec"].get("devices", {}).get("requests"),
        "reserved for": ", ".join(sorted(_whose(consumer, pod) for consumer in status.get("reservedFor", ()))),
        "status": status.get("devices"),
    }
    if allocation := status.get("allocation"):
        inner = allocation.get("devices", {})
        told |= {
            f"result {i:02}": _result(result | {key: _CHANCE[key] for key in _CHANCE.keys() & result.keys()})
            for i, result in enumerate(inner.get("results", ()))
        }
        told["config"] = inner.get("config")
        told["allocated for"] = _where(allocation.get("nodeSelector"))
        told["stamped"] = "yes" if allocation.get("allocationTimestamp") else "no"
    return {
        field: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for field, value in told.items()
        if value
    }


def _result(result: Json) -> str:
    rest = {key: value for key, value in result.items() if key not in _DEVICE}
    device = f"{result['request']} {result['driver']}/{result['pool']}/{result['device']}"
    return f"{device} {json.dumps(rest, sort_keys=True)}" if rest else device


def _where(selector: Json | None) -> str:
    """Its one term, fields first."""
    if selector is None:
        return "all nodes"
    terms = [
        ", ".join(
            f"{word} {one['key']} {one['operator']} {' '.join(one.get('values', ()))}"
            for word, rows in (("field", term.get("matchFields")), ("label", term.get("matchExpressions")))
            for one in rows or ()
        )
        for term in selector["nodeSelectorTerms"]
    ]
    return " or ".join(terms)


def _whose(reference: Json, pod: Json) -> str:
    """In words; of the uid only whether it is the tried pod's."""
    is_own = reference.get("uid") == pod["metadata"]["uid"]
    words = [f"{key}={value}" for key, value in sorted(reference.items()) if key != "uid"]
    return " ".join((*words, "its uid" if is_own else "another uid"))


def _unnumbered(name: str) -> str:
    return _GENERATED.sub(r"\1…", name)


# -- owners that do not exist yet --------------------------------------------------------------------------------------


def _place(item: Json) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata["namespace"], metadata["name"]


def _with_uids(claim: Json, uids: Mapping[tuple[str, str], str]) -> Json:
    """Without the uid of an owner that does not exist yet, or is gone."""
    metadata, namespace = claim["metadata"], _place(claim)[0]

    def known(references: list[Json]) -> list[Json]:
        return [one | {"uid": uids.get((namespace, one["name"])) or uid_to_come(one["name"])} for one in references]

    made = claim
    if owners := metadata.get("ownerReferences"):
        made = made | {"metadata": metadata | {"ownerReferences": known(owners)}}
    if reserved := claim.get("status", {}).get("reservedFor"):
        made = made | {"status": claim["status"] | {"reservedFor": known(reserved)}}
    return made
