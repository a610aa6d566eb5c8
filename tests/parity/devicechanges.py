"""Changes to a random case of devices, so that each rule of the allocator matters in many cases."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from scheduler.core.feature_gates import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    TAINTS,
)
from tests.parity.generate import Dice
from tests.parity.random_slices import AMOUNTS
from tests.parity.words import Json

_GATES: Final = (ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, TAINTS, CONSUMABLE, BINDING_CONDITIONS)
_WITHOUT_SHARES_AND_CONDITIONS: Final = frozenset({CONSUMABLE, BINDING_CONDITIONS})
"""With both off, kube-scheduler takes the stable variant of its allocator."""
_SINGLE: Final = frozenset({"bool", "int", "string", "version"})
_TAINTS: Final[tuple[Json, ...]] = (
    {"key": "k", "value": "v", "effect": "NoSchedule"},
    {"key": "k", "value": "w", "effect": "NoSchedule"},
    {"key": "k", "value": "v", "effect": "NoExecute"},
    {"key": "l", "effect": "NoSchedule"},
)
_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "k", "operator": "Equal", "value": "v"},
    {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
    {"key": "k", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
)
_FRACTIONS: Final[tuple[Json, ...]] = (
    {"value": "1", "requestPolicy": {"default": "100m", "validRange": {"min": "100m", "max": "900m", "step": "100m"}}},
    {"value": "3500m", "requestPolicy": {"default": "500m", "validRange": {"min": "500m", "step": "750m"}}},
    {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}},
    {"value": "2", "requestPolicy": {"default": "250m", "validValues": ["250m", "500m", "1"]}},
)
_PARTS: Final = ("100m", "150m", "250m", "700m", "1", "1001m", "1250m", "2", "1000500u")
_Slices = list[Json]
_Claims = list[Json]


def change(dice: Dice, gates: set[str], slices: _Slices, held: _Claims, claims: _Claims) -> set[str]:
    """Change the manifests in place. Returns the feature gates that are on."""
    if dice.chance(0.2):
        gates -= set(dice.some(_GATES, 2))
    if dice.chance(0.05):
        gates -= _WITHOUT_SHARES_AND_CONDITIONS
    if dice.chance(0.03):
        gates.discard(CLAIM_DEVICE_STATUS)
    if dice.chance(0.5):
        held.clear()
    if dice.chance(0.9):
        _make_single(slices)
    for share, one in _CHANGES:
        if slices and dice.chance(share):
            one(dice, slices, held, claims)
    return gates


def alternatives(request: Json) -> list[Json]:
    """Those of a request; a request without any is its own."""
    return list(request.get("firstAvailable") or [request["exactly"]])


def requests_of(claim: Json) -> list[Json]:
    """The requests of a claim, and the alternatives of those that have any."""
    return [one for request in claim["spec"]["devices"].get("requests") or () for one in alternatives(request)]


def _all_requests(claims: Iterable[Json]) -> list[Json]:
    return [one for claim in claims for one in requests_of(claim)]


def _make_single(slices: _Slices) -> None:
    """Replace attributes that no expression can be evaluated with."""
    for each in slices:
        for device in each["spec"].get("devices") or ():
            for name, value in (device.get("attributes") or {}).items():
                if not value.keys() & _SINGLE:
                    device["attributes"][name] = {"int": sum(value.get("ints", ()))}


# -- slices ------------------------------------------------------------------------------------------------------------


def _devices(dice: Dice, slices: _Slices) -> list[Json]:
    """Those of one slice."""
    return dice.one(slices)["spec"].get("devices") or []


def _recount(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    """Make the number of slices of one pool wrong."""
    how = dice.one(("too many", "too many", "too few", "disagreeing"))
    chosen = dice.one(slices)
    spec = chosen["spec"]
    pool = [one["spec"] for one in slices if _pool(one["spec"]) == _pool(spec)]
    if how == "disagreeing":
        spec["pool"]["resourceSliceCount"] += 1
        return
    for one in pool:
        count = one["pool"]["resourceSliceCount"]
        one["pool"]["resourceSliceCount"] = max(count - 1, 1) if how == "too many" else count + 1
    if how == "too many" and len(pool) == 1:
        slices.append(chosen | {"metadata": {"name": "extra"}, "spec": spec | {"devices": []}})


def _pool(spec: Json) -> tuple[str, str]:
    return spec["driver"], spec["pool"]["name"]


def _store_twice(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    """Publish the counter sets of one pool in two slices."""
    stores = [one for one in slices if one["spec"].get("sharedCounters")]
    if stores:
        store = dice.one(stores)
        pool = store["spec"]["pool"]
        for one in slices:
            if _pool(one["spec"]) == _pool(store["spec"]):
                one["spec"]["pool"] = pool | {"resourceSliceCount": pool["resourceSliceCount"] + 1}
        slices.append(store | {"metadata": {"name": "store-again"}})


def _select_twice(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    """Give a device's node selector a second term. An API server refuses that for slices."""
    devices = [device for one in slices for device in one["spec"].get("devices") or () if "nodeSelector" in device]
    if devices:
        selector = dice.one(devices)["nodeSelector"]
        more = {"matchExpressions": [{"key": dice.one(("zone", "disk")), "operator": "Exists"}]}
        selector["nodeSelectorTerms"] = [*selector["nodeSelectorTerms"], more]


def _wait(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    """Let devices of one slice have binding conditions."""
    for device in _devices(dice, slices):
        if dice.chance(0.6):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def _taint(dice: Dice, slices: _Slices, _: _Claims, claims: _Claims) -> None:
    """Taint devices of one slice, and let requests tolerate some taints."""
    for device in _devices(dice, slices):
        if dice.chance(0.6):
            device["taints"] = dice.some(_TAINTS, 2)
    for request in _all_requests(claims):
        if dice.chance(0.5):
            request["tolerations"] = dice.some(_TOLERATIONS, 2)


def _share(dice: Dice, slices: _Slices, _: _Claims, claims: _Claims) -> None:
    """Let devices of one slice be shared by capacity, and let requests be for amounts of it."""
    for device in _devices(dice, slices):
        if dice.chance(0.7):
            device |= {"allowMultipleAllocations": True, "capacity": {"cap": dice.one(AMOUNTS)}}
    for request in _all_requests(claims):
        if dice.chance(0.6):
            request["capacity"] = {"requests": {"cap": str(dice.number(0, 8))}}


def _share_fractions(dice: Dice, slices: _Slices, _: _Claims, claims: _Claims) -> None:
    """Let devices of one slice be shared in fractions."""
    for device in _devices(dice, slices):
        if dice.chance(0.7):
            device |= {"allowMultipleAllocations": True, "capacity": {"cap": dice.one(_FRACTIONS)}}
    for request in _all_requests(claims):
        if dice.chance(0.6):
            request["capacity"] = {"requests": {"cap": dice.one(_PARTS)}}


def _store_apart(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    """Publish the counter sets of one pool for one node, or for none."""
    stores = [one["spec"] for one in slices if one["spec"].get("sharedCounters")]
    if stores:
        store = dice.one(stores)
        for word in ("allNodes", "nodeSelector", "perDeviceNodeSelection"):
            store.pop(word, None)
        store["nodeName"] = dice.one(("n0", "n1", "n2", "nowhere"))


def _shuffle(dice: Dice, slices: _Slices, _: _Claims, __: _Claims) -> None:
    slices[:] = [slices.pop(dice.number(0, len(slices) - 1)) for _ in range(len(slices))]


# -- claims ------------------------------------------------------------------------------------------------------------


def _look_in(dice: Dice, _: _Slices, held: _Claims, claims: _Claims) -> None:
    """Access for administrators, of claims that are there and of the pod's."""
    for claim in held:
        for result in claim["status"]["allocation"]["devices"].get("results", ()):
            if dice.chance(0.7):
                result["adminAccess"] = True
    for claim in claims if dice.chance(0.6) else ():
        for request in claim["spec"]["devices"]["requests"]:
            if "exactly" in request and dice.chance(0.5):
                request["exactly"]["adminAccess"] = True


def _constrain(dice: Dice, slices: _Slices, _: _Claims, claims: _Claims) -> None:
    """Request several devices that are alike, or apart, in an attribute that some device has."""
    names = sorted(
        name if "/" in name else f"{one['spec']['driver']}/{name}"
        for one in slices
        for device in one["spec"].get("devices") or ()
        for name in device.get("attributes") or ()
    )
    if not names:
        return
    devices = dice.one(claims)["spec"]["devices"]
    word = dice.one(("matchAttribute", "distinctAttribute", "distinctAttribute"))
    devices["constraints"] = [{word: dice.one(names)}]
    for request in devices["requests"]:
        if request.get("exactly", {}).get("allocationMode") == "ExactCount":
            request["exactly"]["count"] = dice.one((1, 1, 2, 2, 3))
        for one in alternatives(request):
            one.pop("selectors", None)
            one["tolerations"] = [{"operator": "Exists"}]


def _ease(dice: Dice, _: _Slices, __: _Claims, claims: _Claims) -> None:
    """Leave one claim, of at most two requests."""
    del claims[1:]
    devices = claims[0]["spec"]["devices"]
    del devices["requests"][2:]
    devices["constraints"] = [one for one in devices.get("constraints") or () if not one.get("requests")]
    devices["config"] = [one for one in devices.get("config") or () if not one.get("requests")]


_CHANGES: Final[tuple[tuple[float, Callable[[Dice, _Slices, _Claims, _Claims], Any]], ...]] = (
    (0.3, _ease), (0.15, _recount), (0.04, _store_twice), (0.1, _select_twice), (0.12, _wait), (0.2, _taint),
    (0.15, _share), (0.15, _look_in), (0.2, _constrain), (0.3, _shuffle), (0.1, _share_fractions), (0.15, _store_apart),
)  # fmt: skip
"""With the share of cases that get each."""
