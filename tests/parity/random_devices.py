"""A random scenario of slices, classes, claims and what they depend on, from a seed, in the short form of `scenario`.

Chance decides nothing for a scheduler. Every tried pod likes one node best, and only a cluster of one node has what ends an
attempt on all nodes: which of them comes first is not reported. At most one claim of a pod can be given back. What is
known to differ is left out: devices of one request that must be apart, stores of pools of one name, lists in constraints.
"""

from typing import Final

from tests.parity.generate import Dice
from tests.parity.random_claims import Claims
from tests.parity.random_slices import DRIVERS, NUMA, Slices
from tests.parity.words import Json

DEVICE_SEEDS: Final = range(120)

_GATES: Final = ("DRADeviceTaintRules",)
_RESOURCES: Final = ("example.com/one", "example.com/two", "deviceclass.resource.kubernetes.io/any")
_RULES: Final = ("rule=x:NoSchedule", "rule=y:NoExecute", "rule=z:None")


def device_seed(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    return _Stored(Dice(seed), with_gates=seed % 6 == 5).scenario(f"devices {seed:03}")


class _Stored:
    """What is there so far: later parts name earlier ones."""

    def __init__(self, dice: Dice, *, with_gates: bool) -> None:
        self._dice = dice
        self._with_gates = with_gates
        self._is_wild = dice.chance(0.4)
        self._is_hasty = not self._is_wild and dice.chance(0.06)
        self._nodes = [f"n{i}" for i in range(1 if self._is_wild else dice.number(2, 4))]
        self._namespace = "admins" if dice.chance(0.12) else "default"

    def scenario(self, name: str) -> Json:
        dice = self._dice
        classes = self._classes()
        with_lists = self._is_wild and self._with_gates
        slices = Slices(dice, self._nodes, is_wild=self._is_wild, with_conditions=self._is_hasty, with_lists=with_lists)
        claims = Claims(dice, slices, tuple(classes), is_wild=self._is_wild, namespace=self._namespace)
        scenario: Json = {"id": name, "nodes": {node: self._node() for node in self._nodes}}
        for node, found in scenario["nodes"].items():
            found["labels"]["k"] = node
        asked = {f"p{i}": self._tried(claims, f"p{i}") for i in range(dice.number(3, 5))}
        devices: Json = {"classes": classes, "slices": slices.slices, "claims": claims.claims}
        if self._with_gates:
            scenario["feature_gates"] = list(_GATES)
            devices["rules"] = {f"r{i}": self._rule(slices) for i in range(dice.number(0, 3))}
        if self._is_hasty:
            scenario["profile"] = "hasty-devices"
        return scenario | {"devices": devices, "asked": asked}

    # -- nodes and settings ----------------------------------------------------------------------------------------------

    def _node(self) -> Json:
        dice = self._dice
        node: Json = {"labels": {"disk": dice.one(("ssd", "hdd")), "region": dice.one(("r1", "r2"))}}
        if dice.chance(0.15):
            node["room"] = {"example.com/one": dice.one(("0", "1", "2"))}
        if dice.chance(0.05):
            node["cordoned"] = True
        return node

    def _classes(self) -> dict[str, Json]:
        """Of each driver, of all of them, and of some devices; two that pods request without claims."""
        dice = self._dice
        classes: dict[str, Json] = {name: {"when": f'device.driver == "{driver}"'} for name, driver in DRIVERS.items()}
        classes["any"] = {}
        classes["near"] = {"when": f'device.attributes["{NUMA[:5]}"].?numa.orValue(0) == {dice.number(0, 2)}'}
        classes["alone"] = {"when": dice.one(("!device.allowMultipleAllocations", "device.allowMultipleAllocations"))}
        for name, found in classes.items():
            if dice.chance(0.2):
                found["configs"] = [f"a {name}", f"b {name}"][: dice.number(1, 2)]
        classes["a"]["extended"] = "example.com/one"
        classes[dice.one(("b", "near"))]["extended"] = "example.com/two"
        return classes

    def _rule(self, slices: Slices) -> Json:
        dice = self._dice
        driver, pool, device = dice.one(slices.devices).name.split("/")
        wanted = dice.number(0, 3)
        # A free device is not drained: then it must be a taint that the recorder's probes tolerate.
        taint = dice.one(_RULES if wanted else _RULES[:1])
        return {"taint": taint, **dict((("driver", driver), ("pool", pool), ("device", device))[:wanted])}

    # -- the pods that are tried -----------------------------------------------------------------------------------------

    def _tried(self, claims: Claims, name: str) -> Json:
        dice = self._dice
        pod: Json = {"namespace": self._namespace}
        if len(self._nodes) > 1:
            pod["likes_nodes"] = list(dice.likes(self._nodes, 17))
        if dice.chance(0.9):
            pod["devices"] = claims.of_pod(name)
        if "devices" not in pod or dice.chance(0.12):
            pod |= self._extended()
        if dice.chance(0.1):
            pod["nodeSelector"] = {"disk": dice.one(("ssd", "hdd"))}
        return pod

    def _extended(self) -> Json:
        dice = self._dice
        if dice.chance(0.6):
            return {"requests": self._resources()}
        containers = [self._container(f"m{i}") for i in range(dice.number(1, 2))]
        first = [self._container(f"i{i}") for i in range(dice.number(0, 3))]
        for container in first:
            if dice.chance(0.35):
                container["restartPolicy"] = "Always"
        return {"containers": containers} | ({"initContainers": first} if first else {})

    def _container(self, name: str) -> Json:
        wanted = self._resources() if self._dice.chance(0.75) else {}
        resources: Json = {"resources": {"requests": wanted, "limits": wanted}} if wanted else {}
        return {"name": name, "image": "i", **resources}

    def _resources(self) -> Json:
        dice = self._dice
        return {name: dice.one(("1", "1", "2", "3")) for name in dice.some(_RESOURCES, 2)}
