"""Known defects of upstream's device allocator, and for each the same case put so that the defect has no effect.

Where ours differs, upstream gets the case again as one of these changes it. A difference is known only if ours then agrees.
docs/spec/dra.md §4 and §11 and docs/spec/changes-1.37-devices.md have the defects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from scheduler.api.core_v1 import NodeSelector
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import selector_matches
from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import Device, ExactDeviceRequest, by_bare_name, full_name
from scheduler.core.feature_gates import BINDING_CONDITIONS, CLAIM_DEVICE_STATUS, CONSUMABLE
from tests.e2e.controlplane.build import MINOR
from tests.parity.devicecases import DeviceCase, concerns
from tests.parity.devicechanges import alternatives
from tests.parity.deviceoracle.process import ALL_BUT_STABLE
from tests.parity.words import Json
from tests.unit.plugins.dra.literal_devices import LiteralDevices, amounts, capacities

_SPARE: Final = "parity.test/nothing"
"""A capacity of which nothing can be taken."""
_SINGLES: Final = frozenset({"bool", "int", "string", "version"})
_ONE_BY_ONE: Final = "-of-many-"
_OF: Final = "-of-driver-"


class Correction(NamedTuple):
    """`put` changes a copy of the case for the node of this name, and says whether it did; `read` undoes the change in what upstream answers.

    `renames`: what ours gives cannot be found in the changed case by its names. `drops_config`: configurations come out otherwise.
    `in_parity`: whether ours has the defect too, in the mode that follows upstream.
    """

    why: str
    put: Callable[[DeviceCase, str], bool]
    read: Callable[[str], str] = str
    renames: bool = False
    drops_config: bool = False
    variants: Sequence[str] = ()
    in_parity: bool = False
    is_mended: bool = False
    """Whether v1.37.2 does not have the defect any more."""


def _pools_by_driver(case: DeviceCase, _: str) -> bool:
    """Give pools of several drivers different names, in the same order."""
    drivers: dict[str, set[str]] = {}
    for each in case.slices:
        drivers.setdefault(each["spec"]["pool"]["name"], set()).add(each["spec"]["driver"])
    shared = {name for name, some in drivers.items() if len(some) > 1}
    for each in case.slices:
        spec = each["spec"]
        spec["pool"] = spec["pool"] | {"name": _of_driver(shared, spec["driver"], spec["pool"]["name"])}
    for held in _results(case):
        held["pool"] = _of_driver(shared, held["driver"], held["pool"])
    return bool(shared)


def _of_driver(shared: set[str], driver: str, pool: str) -> str:
    return f"{pool}{_OF}{driver}" if pool in shared else pool


def _without_drivers(text: str) -> str:
    """Driver names have letters and dots."""
    before, *rest = text.split(_OF)
    return before + "".join(one.lstrip("abcdefghijklmnopqrstuvwxyz.") for one in rest)


def _shares_consume(case: DeviceCase, _: str) -> bool:
    """Let each share of a device consume something."""
    if CONSUMABLE not in case.gates:
        return False
    changed = False
    for __, device in case.devices():
        if device.get("allowMultipleAllocations"):
            device["capacity"] = (device.get("capacity") or {}) | {_SPARE: {"value": "0"}}
            changed = True
    for result in _results(case):
        if "shareID" in result:
            result["consumedCapacity"] = (result.get("consumedCapacity") or {}) | {_SPARE: "0"}
    return changed


def apart_one_by_one(case: DeviceCase, _: str) -> bool:
    """Make requests of one device each from a request for several that must be apart."""
    changed = False
    for claim in case.claims:
        devices = claim["spec"]["devices"]
        split: dict[str, list[str]] = {}
        requests = []
        for request in devices["requests"]:
            count = request.get("exactly", {}).get("count", 1)
            if count > 1 and any(
                "distinctAttribute" in one and concerns(one, request) for one in devices.get("constraints") or ()
            ):
                split[request["name"]] = [f"{request['name']}{_ONE_BY_ONE}{at}" for at in range(count)]
                one = {"exactly": request["exactly"] | {"count": 1}}
                requests += [{"name": name, **one} for name in split[request["name"]]]
            else:
                requests.append(request)
        devices["requests"] = requests
        for scoped in (*(devices.get("constraints") or ()), *(devices.get("config") or ())):
            if "requests" in scoped:
                scoped["requests"] = [new for old in scoped["requests"] for new in split.get(old, [old])]
        changed = changed or bool(split)
    return changed


def _together(text: str) -> str:
    before, *rest = text.split(_ONE_BY_ONE)
    return before + "".join(one.lstrip("0123456789") for one in rest)


def _variant_is_stable(case: DeviceCase, _: str) -> bool:
    has_conditions = case.gates >= {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}
    return not has_conditions and CONSUMABLE not in case.gates


def _counts_agree(case: DeviceCase, node: str) -> bool:
    """Let all slices of one pool and generation have one number: that of the first by name which the node sees."""
    (labels,) = (one["metadata"]["labels"] for one in case.nodes if one["metadata"]["name"] == node)

    def is_seen(spec: Json) -> bool:
        return any(_matches(where, node, labels) for where in (spec, *spec.get("devices", ())))

    changed = False
    first: dict[tuple[str, str, int], int] = {}
    for each in sorted(case.slices, key=lambda each: (not is_seen(each["spec"]), each["metadata"]["name"])):
        spec = each["spec"]
        key = spec["driver"], spec["pool"]["name"], spec["pool"].get("generation", 0)
        count = first.setdefault(key, spec["pool"]["resourceSliceCount"])
        changed = changed or count != spec["pool"]["resourceSliceCount"]
        spec["pool"] = spec["pool"] | {"resourceSliceCount": count}
    return changed


def _configs_name_several(case: DeviceCase, _: str) -> bool:
    return any(
        len(one.get("requests") or ()) > 1
        for claim in case.claims
        for one in claim["spec"]["devices"].get("config") or ()
    )


def _used_up_is_whole(case: DeviceCase, _: str) -> bool:
    """Let claims that share a device have all of it, if too little of it is left for a request for all devices."""
    every = [
        from_manifest(ExactDeviceRequest, one)
        for claim in case.claims
        for request in claim["spec"]["devices"]["requests"]
        for one in alternatives(request)
        if one.get("allocationMode") == "All"
    ]
    world = LiteralDevices({}, [], {}, case.gates, lambda *_: True)
    short = set()
    for each, device in case.devices():
        name = (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        used = _consumed(case, name)
        known = from_manifest(Device, device)
        driver = each["spec"]["driver"]
        if any(_exceeds(amounts(world, request, driver, known), used, driver, known) for request in every if used):
            short.add(name)
    changed = False
    for result in _results(case):
        if "shareID" in result and (result["driver"], result["pool"], result["device"]) in short:
            del result["shareID"]
            result.pop("consumedCapacity", None)
            changed = True
    return changed


def _consumed(case: DeviceCase, name: tuple[str, str, str]) -> Counter[str]:
    used = Counter[str]()
    for result in _results(case):
        if "shareID" in result and (result["driver"], result["pool"], result["device"]) == name:
            consumed = by_bare_name(name[0], result.get("consumedCapacity") or {})
            used.update({full_name(name[0], key): parse(value).nano for key, value in consumed.items()})
    return used


def _exceeds(wanted: dict[str, int] | None, used: Counter[str], driver: str, device: Device) -> bool:
    offered = capacities(driver, device)
    return wanted is not None and any(used[key] + amount > offered[key].value.nano for key, amount in wanted.items())


def _stores_are_near(case: DeviceCase, node: str) -> bool:
    """Remove slices with counters that are not for the node, unless the node has to look for the rest of their pool.

    If it would not find as many as it looks for, more are missing.
    """
    (labels,) = (one["metadata"]["labels"] for one in case.nodes if one["metadata"]["name"] == node)

    def is_near(spec: Json) -> bool:
        return any(_matches(where, node, labels) for where in (spec, *(spec.get("devices") or ())))

    removed: list[Json] = []
    changed = False
    for pool in {_pool(each["spec"]) for each in case.slices}:
        specs = [each["spec"] for each in _by_name(case.slices) if _pool(each["spec"]) == pool]
        near = [spec for spec in specs if is_near(spec)]
        far = [spec for spec in specs if spec.get("sharedCounters") and not is_near(spec)]
        newest = max((_generation(spec) for spec in near), default=0)
        group = [spec for spec in near if _generation(spec) == newest]
        if far and (not near or any(_generation(spec) > newest for spec in far)):
            removed += far if near and len(group) == group[0]["pool"]["resourceSliceCount"] else specs
        elif far and len(group) == group[0]["pool"]["resourceSliceCount"]:
            removed += far
        elif far:
            found = sum(_generation(spec) == newest for spec in specs)
            if any(_generation(spec) > newest for spec in specs):
                removed += specs
            elif found != group[0]["pool"]["resourceSliceCount"]:
                for spec in specs:
                    spec["pool"] = spec["pool"] | {"resourceSliceCount": found + 1}
                changed = True
    case.slices[:] = [each for each in case.slices if not any(each["spec"] is spec for spec in removed)]
    return changed or bool(removed)


def _by_name(slices: Sequence[Json]) -> list[Json]:
    return sorted(slices, key=lambda each: str(each["metadata"]["name"]))


def _generation(spec: Json) -> int:
    return int(spec["pool"].get("generation", 0))


def _pool(spec: Json) -> tuple[str, str]:
    return spec["driver"], spec["pool"]["name"]


def _matches(where: Json, node: str, labels: dict[str, str]) -> bool:
    terms = where.get("nodeSelector", {}).get("nodeSelectorTerms", ())
    is_selected = any(selector_matches(_selector(each), node, labels) for each in terms)
    return where.get("nodeName") == node or bool(where.get("allNodes")) or is_selected


def _old_shares_are_whole(case: DeviceCase, _: str) -> bool:
    """Let claims that share a device which is not to be shared any more have the whole device."""
    changed = False
    sharing = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each, device in case.devices()
        if device.get("allowMultipleAllocations")
    }
    for result in _results(case):
        if "shareID" in result and (result["driver"], result["pool"], result["device"]) not in sharing:
            del result["shareID"]
            result.pop("consumedCapacity", None)
            changed = True
    return changed


def _names_without_domain(case: DeviceCase, _: str) -> bool:
    """Let requests name capacities without a domain, of the driver that the domain is. Devices have no such names."""
    changed = False
    for claim in case.claims:
        for request in claim["spec"]["devices"]["requests"]:
            for one in alternatives(request):
                amounts = (one.get("capacity") or {}).get("requests") or {}
                for name in [name for name in amounts if "/" in name]:
                    driver, bare = name.split("/")
                    if bare in amounts or any(name in (device.get("capacity") or {}) for _, device in case.devices()):
                        continue
                    amounts[bare] = amounts.pop(name)
                    own = {"cel": {"expression": f'device.driver == "{driver}"'}}
                    one["selectors"] = [*(one.get("selectors") or ()), own]
                    changed = True
    return changed


def _without_build_metadata(case: DeviceCase, _: str) -> bool:
    changed = False
    for __, device in case.devices():
        for name, value in (device.get("attributes") or {}).items():
            if "+" in value.get("version", ""):
                device["attributes"][name] = value | {"version": value["version"].partition("+")[0]}
                changed = True
    return changed


def _one_term(case: DeviceCase, node: str) -> bool:
    """Of the terms of a device's node selector keep one that matches the node, else the first."""
    (labels,) = (one["metadata"]["labels"] for one in case.nodes if one["metadata"]["name"] == node)
    changed = False
    for __, device in case.devices():
        terms = device.get("nodeSelector", {}).get("nodeSelectorTerms", ())
        if len(terms) > 1:
            fitting = (each for each in terms if selector_matches(_selector(each), node, labels))
            device["nodeSelector"] = {"nodeSelectorTerms": [next(fitting, terms[0])]}
            changed = True
    return changed


def _selector(term: Json) -> NodeSelector:
    return from_manifest(NodeSelector, {"nodeSelectorTerms": [term]})


def _results(case: DeviceCase) -> list[Json]:
    return [
        result
        for claim in case.held
        for result in claim["status"]["allocation"]["devices"].get("results", ())
        if not result.get("adminAccess")
    ]


_ALL: Final[dict[str, Correction]] = {
    "pool names": Correction(
        "upstream counts pools of one name as one, whatever their drivers",
        _pools_by_driver,
        _without_drivers,
        renames=True,
        is_mended=True,
    ),
    "empty shares": Correction(
        "upstream charges the counters again for a share of a device of which nothing is consumed",
        _shares_consume,
        is_mended=True,
    ),
    "apart": Correction(
        "upstream remembers only the last device of a request that must be apart",
        apart_one_by_one,
        _together,
        renames=True,
        drops_config=True,
        is_mended=True,
    ),
    "configs": Correction(
        "upstream gives a configuration once for each request that it names",
        _configs_name_several,
        drops_config=True,
        is_mended=True,
    ),
    "used up": Correction(
        "upstream leaves out devices that are used up where all devices are requested",
        _used_up_is_whole,
        is_mended=True,
    ),
    "stores": Correction(
        "upstream has each node look at the counters of each pool, whatever nodes they are for",
        _stores_are_near,
        is_mended=True,
    ),
    "stable": Correction(
        "upstream's stable variant, which it takes where no newer rule is on, knows no distinctAttribute and no capacity requests",
        _variant_is_stable,
        variants=ALL_BUT_STABLE,
    ),
    "slice counts": Correction(
        "slices of one pool state different numbers of slices: upstream takes any, ours takes the first by name that the node sees",
        _counts_agree,
    ),
    "several terms": Correction(
        "upstream cannot merge node selectors of several terms; ours can, but for parity", _one_term, in_parity=True
    ),
    "old shares": Correction(
        "upstream up to 1.37 gives a device away as a whole while shares of it remain from before",
        _old_shares_are_whole,
    ),
    "build metadata": Correction(
        "upstream up to 1.37 compares versions with their build metadata", _without_build_metadata
    ),
    "names": Correction(
        "upstream up to 1.37 does not find a capacity by its name with the driver's domain", _names_without_domain
    ),
}

CORRECTIONS: Final = {name: one for name, one in _ALL.items() if MINOR == "1.36" or not one.is_mended}
"""Those of the version that is compared."""


def corrected(case: DeviceCase, node: str, names: Sequence[str]) -> DeviceCase | None:
    """The case without these defects, for one node; None if one of them has nothing to do with it."""
    made = case.copied()
    return made if all(CORRECTIONS[name].put(made, node) for name in names) else None


def read(text: str, names: Sequence[str]) -> str:
    """An answer of upstream, in the words of the case itself."""
    for name in names:
        text = CORRECTIONS[name].read(text)
    return text


def without_spare(amounts: dict[str, str]) -> dict[str, str]:
    """Consumed capacities of the case itself."""
    return {name: amount for name, amount in amounts.items() if name != _SPARE}


def only(case: DeviceCase, node: str, allocations: Sequence[Json]) -> DeviceCase:
    """The case with one node, where each request can have no other devices than those that these allocations give to it.

    Upstream allocates on it exactly if it takes these allocations for right. Expressions fail on attributes of a form that is
    not understood. So these are removed where neither a constraint nor an expression of the case reads them.
    """
    made = case.copied()
    made.nodes[:] = [one for one in made.nodes if one["metadata"]["name"] == node]
    picked = {_id(result) for allocation in allocations for result in allocation["devices"].get("results", ())}
    for each, device in made.devices():
        name = f"{each['spec']['driver']}/{each['spec']['pool']['name']}/{device['name']}"
        named = _in_constraints(made, each["spec"]["driver"]) if name in picked else set()
        kept = {
            key: value
            for key, value in (device.get("attributes") or {}).items()
            if key in named or _is_understood(value)
        }
        device["attributes"] = kept | {"parity.test/id": {"string": name}}
    for claim, allocation in zip(made.claims, allocations, strict=True):
        given: dict[str, list[str]] = {}
        for result in allocation["devices"].get("results", ()):
            given.setdefault(result["request"], []).append(_id(result))
        for request in claim["spec"]["devices"]["requests"]:
            for one in alternatives(request):
                full = f"{request['name']}/{one['name']}" if "firstAvailable" in request else request["name"]
                if one.get("allocationMode") == "All" and full in given:
                    continue
                names = ", ".join(f'"{name}"' for name in given.get(full, ()))
                expression = f'device.attributes["parity.test"].id in [{names}]' if names else "false"
                one["selectors"] = [{"cel": {"expression": expression}}, *(one.get("selectors") or ())]
    return made


def _id(result: Json) -> str:
    return "/".join(result[word] for word in ("driver", "pool", "device"))


def _in_constraints(case: DeviceCase, driver: str) -> set[str]:
    """Names of attributes that constraints read on devices of this driver."""
    names = {
        constraint.get("matchAttribute") or constraint.get("distinctAttribute") or ""
        for claim in case.claims
        for constraint in claim["spec"]["devices"].get("constraints") or ()
    }
    return names | {name.removeprefix(f"{driver}/") for name in names}


def _is_understood(attribute: Json) -> bool:
    return bool(attribute.keys() & _SINGLES)
