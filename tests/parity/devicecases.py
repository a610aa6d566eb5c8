"""Random cases for the device allocator: what a cluster has of devices, and the claims of one pod that are to be allocated.

Even seeds take a scenario of `random_devices`, odd seeds a case of the generator for the allocator's laws. Both get the changes of
`devicechanges`, which neither generator draws, or only rarely.
"""

import copy
import dataclasses
import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import DeviceId
from scheduler.core.feature_gates import (
    CONSUMABLE,
    DEVICE_CHANGES,
    DEVICE_CHANGES_1_38,
    DEVICE_GATES_ON,
    FRACTIONAL_RANGE,
    defaults,
)
from tests.e2e.controlplane.build import MINOR
from tests.parity.devicechanges import (
    alternatives,
    change,
    requests_of,
)
from tests.parity.generate import Dice
from tests.parity.random_devices import device_seed
from tests.parity.scenario import scenario
from tests.parity.words import Json
from tests.unit.plugins.dra.literal_devices import LiteralDevices
from tests.unit.plugins.dra.random_devices import Maker

_FURTHER: Final = 10**9
_DRAWN: Final = 4
"""Cases of the generator for laws of which the one with the most devices is taken: in many there are hardly any."""
_SHARE: Final = "00000000-0000-4000-8000-{:012}"
_OWN: Final = "device.attributes[device.driver]"
_FAST: Final = f'"fast" in {_OWN} && {_OWN}.fast'
_WORDS: Final = {
    "any": "true",
    "fast": _FAST,
    "slow": f"!({_FAST})",
    "broken": f'!("broken" in {_OWN}) || {_OWN}.broken > 1',
}
"""What the words mean that the generator for laws uses as selectors. `broken` ends in an error on devices that are."""


@dataclasses.dataclass(frozen=True)
class DeviceCase:
    """Manifests. `held` are claims that have devices, `claims` those of the pod, in order."""

    id: str
    gates: frozenset[str]
    nodes: list[Json]
    slices: list[Json]
    classes: list[Json]
    held: list[Json]
    claims: list[Json]

    def copied(self) -> "DeviceCase":
        """A case whose manifests can be changed without changing this one."""
        return copy.deepcopy(self)

    def devices(self) -> Iterator[tuple[Json, Json]]:
        """Slice and device."""
        for each in self.slices:
            for device in each["spec"].get("devices") or ():
                yield each, device


def drawn(seed: int) -> DeviceCase:
    dice = Dice(_FURTHER + seed)
    case = _of_laws(seed, dice) if seed % 2 else _of_scenario(seed, dice)
    gates = change(dice, set(case.gates), case.slices, case.held, case.claims)
    gates |= {
        gate
        for gate in defaults(MINOR) - defaults("1.36")
        if gate in DEVICE_CHANGES | DEVICE_CHANGES_1_38
        or (gate == FRACTIONAL_RANGE and CONSUMABLE in gates and dice.chance(0.9))
    }
    return _speakable(dataclasses.replace(case, gates=frozenset(gates)))


# -- the two generators ------------------------------------------------------------------------------------------------


def _of_scenario(seed: int, dice: Dice) -> DeviceCase:
    """Of its pods one that has claims to allocate; rules for taints are left out, for the allocator does not see them."""
    one = scenario("devices", device_seed(seed // 2))
    there = [_with_uid(claim) for claim in copy.deepcopy(one.devices.claims)]
    held = [claim for claim in there if claim.get("status", {}).get("allocation")]
    free = {claim["metadata"]["name"]: claim for claim in there if claim not in held}
    pods = [pod for pod in one.asked.values() if _named(pod) & free.keys()]
    names = _named(dice.one(pods)) if pods else set(dice.some(sorted(free), 2))
    return DeviceCase(
        id=f"devices {seed}",
        gates=DEVICE_GATES_ON | frozenset(one.feature_gates),
        nodes=copy.deepcopy(list(one.nodes)),
        slices=_of_kind(one.devices.settings, "ResourceSlice"),
        classes=_of_kind(one.devices.settings, "DeviceClass"),
        held=held,
        claims=[claim for name, claim in free.items() if name in names],
    )


def _named(pod: Json) -> set[str]:
    entries = (*pod["spec"].get("resourceClaims", ()), *pod.get("status", {}).get("resourceClaimStatuses", ()))
    return {entry["resourceClaimName"] for entry in entries if entry.get("resourceClaimName")}


def _of_kind(settings: tuple[Json, ...], kind: str) -> list[Json]:
    return [copy.deepcopy(one) for one in settings if one["kind"] == kind]


def _of_laws(seed: int, dice: Dice) -> DeviceCase:
    maker = Maker(random.Random(seed), is_rich=dice.chance(0.5))
    case = max(
        (maker.case() for _ in range(_DRAWN)), key=lambda one: sum(len(each.spec.devices) for each in one.world.slices)
    )
    world = case.world
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        for name, labels in world.nodes.items()
    ]
    return DeviceCase(
        id=f"devices {seed}",
        gates=world.gates,
        nodes=nodes,
        slices=[_plain(one) for one in world.slices],
        classes=[_spoken(_plain(one)) for one in world.classes.values()],
        held=[_with_uid(claim) for claim in _held(world)],
        claims=[_spoken(_with_uid(_plain(one))) for one in case.claims],
    )


def _held(world: LiteralDevices) -> Iterator[Json]:
    for number, device in enumerate(sorted(world.exclusive)):
        yield _allocated(f"held-{number}", [_result(device)])
    for at, device in enumerate(sorted(world.shares)):
        for number, share in enumerate(world.shares[device]):
            result = _result(device) | {"shareID": _SHARE.format(100 * at + number)}
            if share:
                result["consumedCapacity"] = {name: _quantity(Quantity(amount)) for name, amount in share.items()}
            yield _allocated(f"share-{at}-{number}", [result])


def _result(device: DeviceId) -> Json:
    return {"request": "r0", "driver": device.driver, "pool": device.pool, "device": device.device}


def _allocated(name: str, results: list[Json]) -> Json:
    requests = [{"name": "r0", "exactly": {"deviceClassName": "Any", "allocationMode": "ExactCount", "count": 1}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def _with_uid(claim: Json) -> Json:
    claim["metadata"]["uid"] = f"uid-{claim['metadata']['name']}"
    return claim


def _spoken(holder: Json) -> Json:
    """With expressions in the place of words."""
    for one in _askers(holder):
        for selector in one.get("selectors") or ():
            if "cel" in selector:
                word = selector["cel"]["expression"]
                driver = word.removeprefix("of ")
                selector["cel"]["expression"] = _WORDS.get(word, f'device.driver == "{driver}"')
    return holder


def _askers(holder: Json) -> list[Json]:
    """The parts of a class or a claim that have selectors."""
    return requests_of(holder) if "devices" in holder["spec"] else [holder["spec"]]


def _plain(one: object) -> Json:
    made: Json = msgspec.json.decode(msgspec.json.encode(one, enc_hook=_quantity))
    return made


def _quantity(value: Any) -> str:
    assert isinstance(value, Quantity)
    whole, rest = divmod(value.nano, 10**9)
    return f"{value.nano}n" if rest else str(whole)


# -- cases that upstream can answer ------------------------------------------------------------------------------------


def _speakable(case: DeviceCase) -> DeviceCase:
    """Write requests for devices that must be apart in a form that `devicedefects` can replace; upstream remembers one per request.

    `devicedefects.apart_one_by_one` has the other way for requests without alternatives that count their devices. For the rest
    the constraint becomes one for equal values; tests/e2e/test_device_oracle.py has cases of those.
    """
    for claim in case.claims:
        for constraint in claim["spec"]["devices"].get("constraints") or ():
            if "distinctAttribute" in constraint and any(
                one.get("allocationMode") == "All" or ("firstAvailable" in request and one.get("count", 1) > 1)
                for request in claim["spec"]["devices"]["requests"]
                if concerns(constraint, request)
                for one in alternatives(request)
            ):
                constraint["matchAttribute"] = constraint.pop("distinctAttribute")
    if MINOR == "1.36":
        _without_hidden_errors(case)
    return case


def _without_hidden_errors(case: DeviceCase) -> None:
    """Leave out errors that v1.36.3 meets, or does not meet, because of a defect.

    Of all devices it leaves out those that are used up, so where devices are shared such requests are no administrator's and
    their claims have no constraint.
    """
    if any(device.get("allowMultipleAllocations") for _, device in case.devices()):
        for claim in case.claims:
            every = [request for request in requests_of(claim) if request.get("allocationMode") == "All"]
            for request in every:
                request.pop("adminAccess", None)
            if every:
                claim["spec"]["devices"].pop("constraints", None)


def concerns(constraint: Json, request: Json) -> bool:
    """Whether the constraint has the request, or one of its alternatives, in its scope."""
    names = set(constraint.get("requests") or ())
    own = {request["name"]} | {f"{request['name']}/{one['name']}" for one in request.get("firstAvailable") or ()}
    return not names or bool(names & own)
