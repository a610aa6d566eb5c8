"""Random pools of devices, for `random_devices`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.parity.generate import Dice
from tests.parity.words import Json

DRIVERS: Final = {"a": "a", "b": "b", "c": "c.example.com"}
"""Class → the driver of its devices."""
NUMA: Final = "x.org/numa"
"""An attribute that devices of all drivers may have."""
_PLACES: Final = ("local", "local", "spread", "spread", "everywhere", "labels", "each", "each")
_DEFECTS: Final = ("incomplete", "twice", "no store", "no counter", "two stores")
_TAINTS: Final = ("k=v:NoSchedule", "k=v:NoExecute", "k=w:NoSchedule", "l:NoSchedule", "k=v:None")
AMOUNTS: Final[tuple[Json, ...]] = (
    {"value": "4"},
    {"value": "2"},
    {"value": "8", "requestPolicy": {"default": "2", "validRange": {"min": "1"}}},
    {"value": "10", "requestPolicy": {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}}},
    {"value": "6", "requestPolicy": {"default": "1", "validValues": ["1", "3", "5"]}},
    {"value": "3", "requestPolicy": {"default": "0", "validValues": ["0", "2"]}},
    {"value": "4", "requestPolicy": {"default": "4"}},
)


@dataclass(frozen=True)
class Found:
    name: str
    """With its driver and pool."""
    short: Json
    nodes: tuple[str, ...]
    """Where it is for one node alone, that one; none if labels select nodes."""


class Slices:
    """What is published. `is_wild`: pools may be broken, and devices such that a selector meets an error."""

    def __init__(
        self, dice: Dice, nodes: Sequence[str], *, is_wild: bool, with_conditions: bool, with_lists: bool
    ) -> None:
        self._dice = dice
        self._nodes = tuple(nodes)
        self._is_wild = is_wild
        self._with_conditions = with_conditions
        self._with_lists = with_lists
        self.slices: dict[str, Json] = {}
        self.devices: list[Found] = []
        """In no slice that is obsolete; a broken pool's too."""
        for i in range(dice.number(2, 5)):
            self._add_pool(f"p{i}")
        if dice.chance(0.25) and not self._is_counted:
            self._add_pool("p0")  # of one name with another, and perhaps of another driver

    @property
    def _is_counted(self) -> bool:
        return any("counters" in one for one in self.slices.values())

    def _add_pool(self, name: str) -> None:
        dice = self._dice
        driver = dice.one((*DRIVERS.values(), "a"))
        pool = f"{driver}/{name}"
        if any(one["pool"] == pool for one in self.slices.values()):
            return
        kind = dice.one(_PLACES)
        places = [self._place(kind) for _ in range(dice.number(1, 2))]
        if kind == "spread":
            places = [{"at": node} for node in (self._nodes if dice.chance(0.6) else dice.some(self._nodes, 3))]
        has_stores = dice.chance(0.3)
        defect = dice.one(_DEFECTS) if self._is_wild and dice.chance(0.2) else ""
        wanted = [self._slice(pool, place, i, has_stores, defect) for i, place in enumerate(places)]
        if has_stores:
            wanted += self._stores(pool)
        if defect == "two stores" and has_stores:
            wanted += self._stores(pool)
        of = len(wanted) + (1 if defect == "incomplete" else 0)
        generation = dice.number(1, 2)
        if dice.chance(0.12):
            self._publish(self._obsolete(pool, places[0]), of=dice.number(1, 2), generation=generation)
            generation += 1
        for one in wanted:
            self._publish(one, of=of, generation=generation)

    def _publish(self, one: Json, *, of: int, generation: int) -> None:
        """Names in another order than that in which they come."""
        name = f"s{(len(self.slices) * 7) % 10}{len(self.slices)}"
        self.slices[name] = (
            one | ({"of": of} if of > 1 else {}) | ({"generation": generation} if generation > 1 else {})
        )

    def _place(self, kind: str) -> Json:
        dice = self._dice
        if kind == "local":
            return {"at": dice.one(self._nodes)}
        if kind == "labels":
            return {"from": self._labels()}
        return {"each": True} if kind == "each" else {"everywhere": True}

    def _labels(self) -> Json:
        dice = self._dice
        labels: tuple[Json, ...] = ({"disk": "ssd"}, {"region": ["r1", "r2"]}, {"k": dice.some(self._nodes, 3)})
        return dice.one(labels)

    def _obsolete(self, pool: str, place: Json) -> Json:
        device = {"at": self._nodes[0]} if "each" in place else {}
        return {"pool": pool, **place, "devices": {"d0": device, "gone": dict(device)}}

    # -- devices ---------------------------------------------------------------------------------------------------------

    def _slice(self, pool: str, place: Json, index: int, has_stores: bool, defect: str) -> Json:
        dice = self._dice
        names = [f"d{index * 4 + i}" for i in range(dice.number(1, 4))]
        if defect == "twice":
            names[0] = "d0"
        if dice.chance(0.3):
            names.reverse()
        driver = pool.partition("/")[0]
        devices = {name: self._device(driver, place, has_stores, defect) for name in names}
        for name, device in devices.items():
            here = device.get("at", place.get("at"))
            self.devices.append(Found(f"{pool}/{name}", device, () if here is None else (here,)))
        return {"pool": pool, **place, "devices": devices}

    def _device(self, driver: str, place: Json, has_stores: bool, defect: str) -> Json:
        dice = self._dice
        device: Json = {}
        if "each" in place:
            device |= dice.one(({"at": dice.one(self._nodes)}, {"everywhere": True}, {"from": self._labels()}))
        self._describe(device, driver)
        if dice.chance(0.3):
            device["shared"] = True
        if has_stores and dice.chance(0.7):
            device["uses"] = self._uses(defect)
        is_counted = "shared" in device and "uses" in device
        if is_counted or dice.chance(0.7 if "shared" in device else 0.15):
            amount: Json = dice.one(AMOUNTS if "shared" in device else AMOUNTS[:2])
            device["capacity"] = {dice.one(("cap", "cap", "cap", "x.org/cap")): amount}
            if dice.chance(0.2):
                device["capacity"]["more"] = dice.one(AMOUNTS[:2])
        if dice.chance(0.12):
            device["taints"] = dice.some(_TAINTS, 2)
        if dice.chance(0.08) and "at" not in place and "at" not in device:
            device["here"] = True
        if self._with_conditions and dice.chance(0.3):
            device |= {"binds": dice.some(("ready", "warm"), 2), "fails": ["broken"]}
        return device

    def _describe(self, device: Json, driver: str) -> None:
        """Attributes. `m` is a number for all of a driver, `t` is what it likes to be."""
        dice = self._dice
        if dice.chance(0.8):
            device[dice.one(("m", "m", f"{driver}/m"))] = dice.number(1, 3)
        if dice.chance(0.8):
            values: tuple[object, ...] = ("x", "y", "x", 1, True, "v1.0.0", "v1.0.1")
            device[dice.one(("t", f"{driver}/t"))] = dice.one(values)
        if dice.chance(0.7):
            device[NUMA] = dice.number(0, 1)
        if dice.chance(0.3):
            device["v"] = dice.one(("v0.9.0", "v1.10.0", "v2.0.0-rc.1"))
        if dice.chance(0.12) and (self._with_lists or (self._is_wild and dice.chance(0.1))):
            device["l"] = dice.one(({"strings": ["x", "y"]}, {"ints": [1, 2]}, {"versions": ["1.0.0"]}))

    # -- stores ----------------------------------------------------------------------------------------------------------

    def _uses(self, defect: str) -> Json:
        dice = self._dice
        if defect == "no store" and dice.chance(0.5):
            return {"gone": {"mem": "1Gi"}}
        if defect == "no counter" and dice.chance(0.5):
            return {"x": {"gone": "1"}}
        uses: Json = {"x": {"mem": f"{dice.number(1, 6)}Gi"}}
        if dice.chance(0.4):
            uses["x"]["cpu"] = str(dice.number(1, 3))
        if dice.chance(0.25):
            uses["y"] = {"mem": dice.one(("500Mi", "1Gi"))}
        return uses

    def _stores(self, pool: str) -> list[Json]:
        dice = self._dice
        x = {"x": {"mem": f"{dice.number(4, 12)}Gi", "cpu": str(dice.number(2, 6))}}
        y = {"y": {"mem": dice.one(("1Gi", "2Gi")), "idle": "1"}}
        parts = [x, y] if dice.chance(0.3) else [x | y]
        return [{"pool": pool, "everywhere": True, "counters": counters} for counters in parts]
