"""Random claims of devices, for `random_devices`."""

from collections.abc import Sequence
from typing import Any, Final

from tests.parity.generate import Dice
from tests.parity.random_slices import DRIVERS, NUMA, Found, Slices
from tests.parity.words import Json

_SHARE: Final = "00000000-0000-4000-8000-{:012}"
_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
    {"key": "k", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists"},
    {"key": "rule", "operator": "Exists"},
)
_GONE: Final = "a/p9/d0"


class Claims:
    """Those that are there, which pods may share, and those that are made for a pod.

    `is_wild`: requests may be such that an attempt ends on all nodes.
    """

    def __init__(self, dice: Dice, slices: Slices, classes: Sequence[str], *, is_wild: bool, namespace: str) -> None:
        self._dice = dice
        self._devices = slices.devices
        self._found = [
            name
            for name, driver in DRIVERS.items()
            if any(one["pool"].startswith(f"{driver}/") for one in slices.slices.values())
        ]
        self._classes = classes
        self._is_wild = is_wild
        self._namespace = namespace
        self.claims: dict[str, Json] = {}
        self._shares = 0
        self._free = list(self._devices)
        self._left: dict[str, int] = {}
        for _ in range(dice.number(0, 3)):
            self._add_allocated(kind="held")
        for _ in range(dice.number(0, 2)):
            self._add_allocated(kind="idle")
        for _ in range(dice.number(3, 5)):
            self._add_unallocated(f"c{len(self.claims)}")

    def of_pod(self, pod: str) -> Json | list[str]:
        """What it names. Of idle ones at most one, and one that is reserved for it counts."""
        dice = self._dice
        chosen = dice.some([name for name in self.claims if name[0] in "ch"], dice.one((1, 2, 2)))
        if dice.chance(0.15):
            idle = [name for name in self.claims if name[0] == "i"]
            if idle and dice.chance(0.5):
                chosen.append(dice.one(idle))
            elif (name := self._add_allocated(kind="mine", pod=pod)) is not None:
                chosen.append(name)
        if dice.chance(0.2):
            chosen.reverse()
        entries: Json = {f"e{i}": name for i, name in enumerate(chosen)}
        if dice.chance(0.12):
            name = f"t-{pod}"
            self._add_unallocated(name)
            self.claims[name]["owner"] = pod
            entries["t"] = {"made": name}
        if dice.chance(0.04):
            entries["n"] = {"made": None}
        return entries

    def _put(self, name: str, claim: Json) -> str:
        if self._namespace != "default":
            claim["namespace"] = self._namespace
        self.claims[name] = claim
        return name

    # -- allocated -------------------------------------------------------------------------------------------------------

    def _add_allocated(self, *, kind: str, pod: str = "") -> str | None:
        """For free devices; a shared one may have several."""
        dice = self._dice
        if dice.chance(0.1):
            got: list[Found] = [Found(_GONE, {}, (dice.one(("n0", "n7")),))]
        else:
            got = dice.some(self._free, 2) if self._free else []
            if got and got[0].nodes and any(device.nodes not in {(), got[0].nodes} for device in got):
                got = got[:1]
        if not got:
            return None
        results = [self._result(device) for device in got]
        for device in got:
            if device in self._free and not device.short.get("shared"):
                self._free.remove(device)
        claim: Json = {"r0": {"class": "any", "count": len(got)}, "got": results, "got_at": 1}
        if dice.chance(0.2) and len(got) == 1:
            results[0]["of"] = results[0]["of"].replace("r0", "r0/s1")
            claim["r0"] = [dice.one(tuple(DRIVERS)), "any"]
        nodes = [node for device in got for node in device.nodes]
        if nodes:
            claim["got_for"] = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[0]]}]}]
        elif dice.chance(0.3):
            claim["got_for"] = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        if dice.chance(0.5):
            claim["kept"] = True
        told = {device.name: self._conditions(device) for device in got if _waits(device)}
        if told and dice.chance(0.8):
            claim["status"] = told
        self._reserve(claim, kind, pod)
        return self._put(f"{kind[0]}{len(self.claims)}", claim)

    def _reserve(self, claim: Json, kind: str, pod: str) -> None:
        dice = self._dice
        if kind == "held":
            claim["reserved"] = ["stranger"] if dice.chance(0.9) else dice.number(1, 3)
        if kind == "mine":
            claim["reserved"] = [pod]

    def _result(self, device: Found) -> Json:
        dice = self._dice
        result: Json = {"of": f"r0 {device.name}"}
        if device.short.get("shared"):
            self._shares += 1
            result["shareID"] = _SHARE.format(self._shares)
            if amounts := device.short.get("capacity"):
                result["consumedCapacity"] = {key: dice.one(("1", "1", "2")) for key in amounts}
        if "binds" in device.short:
            result |= {"bindingConditions": device.short["binds"], "bindingFailureConditions": device.short["fails"]}
        return result

    def _conditions(self, device: Found) -> Json:
        said = {name: "True" for name in device.short["binds"] if self._dice.chance(0.8)}
        return said | ({"broken": "True"} if self._dice.chance(0.2) else {})

    # -- to be allocated -------------------------------------------------------------------------------------------------

    def _add_unallocated(self, name: str) -> None:
        dice = self._dice
        requests: Json = {f"r{i}": self._request() for i in range(dice.one((1, 1, 1, 1, 2, 2, 3)))}
        claim = dict(requests)
        has_all = any(_wants_all(one) for one in requests.values())
        if dice.chance(0.3) and (self._is_wild or not has_all):
            claim |= self._constraints(requests)
        if dice.chance(0.2):
            claim["configs"] = self._configs(requests)
        self._put(name, claim)

    def _request(self) -> object:
        dice = self._dice
        if dice.chance(0.2):
            return [self._exactly(is_part=True) for _ in range(dice.number(2, 3))]
        return self._exactly(is_part=False)

    def _exactly(self, *, is_part: bool) -> Json:
        dice = self._dice
        wanted: Json = {"class": dice.one((*self._classes, "any", "any", "any", *self._found))}
        if self._is_wild and dice.chance(0.02):
            wanted["class"] = "gone"
        wanted["count"] = dice.one((1, 1, 1, 1, 1, 1, 1, 2, 2, 3, "all"))
        if self._is_wild and dice.chance(0.01):
            wanted["count"] = 33
        if dice.chance(0.3):
            wanted["when"] = self._selector(wanted["class"])
        if dice.chance(0.3):
            wanted["tolerates"] = dice.some(_TOLERATIONS, 2)
        if dice.chance(0.15):
            wanted["capacity"] = {dice.one(("cap", "cap", "cap", "x.org/cap", "more")): dice.one((0, 1, 1, 2, 3, 5))}
        if not is_part and self._namespace == "admins" and dice.chance(0.5):
            wanted["admin"] = dice.chance(0.9)
        return wanted

    def _selector(self, class_name: str) -> str | list[str]:
        dice = self._dice
        domain = DRIVERS.get(class_name, "a")
        guarded = f'"m" in device.attributes["{domain}"] && device.attributes["{domain}"].m'
        choices = (
            f"{guarded} >= {dice.number(1, 3)}",
            f"{guarded} == {dice.number(1, 3)}",
            f'!("m" in device.attributes["{domain}"])',
            f'device.attributes["{domain}"].?v.orValue(semver("0.1.0")).isGreaterThan(semver("1.0.0"))',
            f'device.attributes["x.org"].?numa.orValue(7) == {dice.number(0, 1)}',
            f'"cap" in device.capacity["{domain}"] && device.capacity["{domain}"].cap.compareTo(quantity("3")) >= 0',
            "device.allowMultipleAllocations",
            f'device.driver in ["{domain}", "b"]',
            f'device.attributes["{domain}"].exists(id, id == "t")',
        )
        wild = (
            f'device.attributes["{domain}"].m >= 2',
            f'device.attributes["{domain}"].t == "x"',
            f'device.attributes["{domain}"].t',
            f'device.attributes["{domain}"].v.major() > 0',
            f'device.capacity["{domain}"].cap.isLessThan(quantity("3"))',
        )
        if self._is_wild and dice.chance(0.12):
            return dice.one(wild)
        return [dice.one(choices), dice.one(choices)] if dice.chance(0.15) else dice.one(choices)

    def _constraints(self, requests: Json) -> Json:
        dice = self._dice
        attributes = ("a/m", "a/t", "b/t", "c.example.com/m", NUMA, NUMA, NUMA)
        wanted: list[object] = [dice.one(attributes)]
        if dice.chance(0.4):
            wanted = [{dice.one(attributes): self._names(requests)}]
        if dice.chance(0.15):
            wanted.append(dice.one(attributes))
        are_single = all(_is_single(one) for one in requests.values())
        return {"apart" if are_single and dice.chance(0.45) else "same": wanted}

    def _configs(self, requests: Json) -> list[object]:
        dice = self._dice
        return [
            f"a says-{i}" if dice.chance(0.4) else {f"b says-{i}": self._names(requests)}
            for i in range(dice.number(1, 2))
        ]

    def _names(self, requests: Json) -> list[str]:
        dice = self._dice
        names = dice.some(tuple(requests), 2)
        return [
            f"{name}/s{dice.number(0, 1)}" if isinstance(requests[name], list) and dice.chance(0.5) else name
            for name in names
        ]


def _waits(device: Found) -> bool:
    """Shares are left out: their ids are not known."""
    return "binds" in device.short and "shared" not in device.short


def _wants_all(request: object) -> bool:
    parts: list[Any] = request if isinstance(request, list) else [request]
    return any(part["count"] == "all" for part in parts)


def _is_single(request: object) -> bool:
    parts: list[Any] = request if isinstance(request, list) else [request]
    return all(part["count"] == 1 for part in parts)
