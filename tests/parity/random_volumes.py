"""A random scenario of claims, PVs and what they depend on, from a seed, in the short form of `scenario`.

Chance decides nothing for a scheduler: no two PVs are of one size, no two bound pods of one age, and every tried pod likes
one node best. No two pods use a claim that is for one pod: see what is known to differ there.
"""

from collections.abc import Sequence
from typing import Final

from tests.parity.generate import Dice
from tests.parity.words import Json

VOLUME_SEEDS: Final = range(60)

_ZONES: Final = ("z1", "z2", "z3")
_DRIVER: Final = "p.example.com"
_STATIC: Final = ("w", "w", "w2")
_DYNAMIC: Final = ("d", "d", "e")
_DISKS: Final = ("ssd", "hdd")


def volume_seed(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    return _Stored(Dice(seed)).scenario(f"volumes {seed:03}")


class _Stored:
    """What is there so far: later parts name earlier ones."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._nodes = [f"n{i}" for i in range(dice.number(3, 6))]
        self._volumes: dict[str, Json] = {}
        self._claims: dict[str, Json] = {}

    def scenario(self, name: str) -> Json:
        dice = self._dice
        for _ in range(dice.number(3, 9)):
            self._add_free_volume()
        for _ in range(dice.number(3, 6)):
            self._add_bound_claim()
        for _ in range(dice.number(3, 6)):
            self._add_unbound_claim()
        if dice.chance(0.5):
            self._prebind()
        pods = self._pods()
        asked = {f"a{i}": self._tried(f"a{i}") for i in range(dice.number(3, 4))}
        return {
            "id": name,
            "nodes": {node: self._node(node) for node in self._nodes},
            "classes": self._classes(),
            "csi_drivers": {_DRIVER: dice.one(({"capacity": True}, {"capacity": True}, {"capacity": False}, {}))},
            "csi_nodes": {node: self._csi_node() for node in self._nodes if dice.chance(0.7)},
            "capacities": {f"o{i}": self._capacity() for i in range(dice.number(0, 4))},
            "attachments": self._attachments(),
            "pvs": self._volumes,
            "claims": self._claims,
            "pods": pods,
            "asked": asked,
        }

    # -- nodes and settings ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Json:
        dice = self._dice
        labels = {"k": name, "disk": dice.one(_DISKS)}
        if dice.chance(0.75):
            zone = dice.one(_ZONES)
            labels["zone" if dice.chance(0.8) else "old-zone"] = zone
            labels["topology.gke.io/zone"] = zone
        node: Json = {"labels": labels, "room": {"cpu": dice.one(("2", "3", "4"))}}
        if dice.chance(0.08):
            node["cordoned"] = True
        return node

    def _classes(self) -> dict[str, Json]:
        d: Json = {"provisioner": _DRIVER}
        if self._dice.chance(0.5):
            d["topologies"] = [{"k": self._dice.some(self._nodes, 3)}, {"zone": [self._dice.one(_ZONES)]}]
        return {"w": {}, "w2": {}, "i": {"binding": "Immediate"}, "d": d, "e": {"provisioner": "other.example.com"}}

    def _csi_node(self) -> Json:
        dice = self._dice
        node: Json = {"drivers": {_DRIVER: dice.one((None, 1, 1, 2, 3)), "ebs.csi.aws.com": dice.one((None, 1, 2))}}
        if dice.chance(0.5):
            node["migrated"] = dice.one(("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs,kubernetes.io/gce-pd", ""))
        return node

    def _capacity(self) -> Json:
        dice = self._dice
        found: Json = {"class": dice.one(("d", "d", "d", "e")), "size": f"{dice.number(1, 9)}Gi"}
        if dice.chance(0.25):
            found["max"] = f"{dice.number(1, 5)}Gi"
        if dice.chance(0.9):
            places: tuple[Json, ...] = ({}, {"k": dice.one(self._nodes)}, {"zone": dice.one(_ZONES)}, {"disk": "ssd"})
            found["from"] = dice.one(places)
        return found

    def _attachments(self) -> dict[str, Json]:
        dice = self._dice
        of_driver = [name for name, volume in self._volumes.items() if "csi" in volume]
        if not of_driver or dice.chance(0.6):
            return {}
        taken = dice.some(of_driver, 3)
        return {f"t{i}": {"attacher": _DRIVER, "node": dice.one(self._nodes), "pv": pv} for i, pv in enumerate(taken)}

    # -- PVs and claims --------------------------------------------------------------------------------------------------

    def _size(self) -> str:
        """Of a PV: of all, no two are alike."""
        return f"{self._dice.number(1, 6) * 1024 + len(self._volumes)}Mi"

    def _add_free_volume(self) -> None:
        dice = self._dice
        volume: Json = {"class": dice.one((*_STATIC, *_STATIC, *_DYNAMIC)), "size": self._size(), **self._reach()}
        if dice.chance(0.4):
            volume["labels"] = {"disk": dice.one(_DISKS)}
        if dice.chance(0.3):
            volume["modes"] = dice.one((["RWO", "RWX"], ["RWX"], ["ROX"], ["RWOP"]))
        if dice.chance(0.12):
            volume["phase"] = dice.one(("Released", "Pending", "Failed"))
        if dice.chance(0.1):
            volume["volume_mode"] = "Block"
        if dice.chance(0.12):
            volume |= {"vac": "gold", "csi": _DRIVER}
        if dice.chance(0.06):
            volume["leaving"] = True
        self._volumes[f"v{len(self._volumes)}"] = volume

    def _reach(self) -> Json:
        dice = self._dice
        if dice.chance(0.15):
            return {}
        places: tuple[Json, ...] = (
            {"from": {"k": dice.one(self._nodes)}},
            {"from": {"k": dice.some(self._nodes, 3)}},
            {"from": {"zone": dice.one(_ZONES)}},
            {"from": {"disk": "ssd", "k": dice.some(self._nodes, 4)}},
            {
                "affinity": [
                    {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": dice.some(self._nodes, 2)}]}
                ]
            },
        )
        return dice.one(places)

    def _add_bound_claim(self) -> None:
        dice = self._dice
        name = f"b{len(self._volumes)}"
        volume: Json = {"phase": "Bound", "size": self._size()}
        if dice.chance(0.5):
            volume["csi"] = _DRIVER
        elif dice.chance(0.5):
            volume |= dice.one(({"gce": name}, {"ebs": f"vol-{name}"}))
        if dice.chance(0.4):
            volume["labels"] = {dice.one(("zone", "zone", "old-zone")): dice.one((*_ZONES, "z1__z2"))}
        if dice.chance(0.5):
            volume |= self._reach()
        if dice.chance(0.95):
            self._volumes[name] = volume
        claim: Json = {"bound": name}
        if dice.chance(0.3):
            claim["modes"] = ["RWOP"]
        if dice.chance(0.04):
            claim |= {"phase": "Lost"}
        self._claims[f"c{len(self._claims)}"] = claim

    def _add_unbound_claim(self) -> None:
        dice = self._dice
        claim: Json = {"class": dice.one((*_STATIC, *_STATIC, *_DYNAMIC)), "size": f"{dice.number(1, 5)}Gi"}
        if claim["class"] in _DYNAMIC and dice.chance(0.25):
            claim["selected"] = dice.one(self._nodes)
        if dice.chance(0.15):
            claim["match"] = {"disk": dice.one(_DISKS)}
        if dice.chance(0.2):
            claim["modes"] = dice.one((["RWX"], ["ROX"], ["RWOP"], ["RWO", "RWX"]))
        if dice.chance(0.06):
            claim["volume_mode"] = "Block"
        if dice.chance(0.08):
            claim["vac"] = "gold"
        if dice.chance(0.05):
            claim["class"] = "i"
        if dice.chance(0.03):
            claim["leaving"] = True
        self._claims[f"c{len(self._claims)}"] = claim

    def _prebind(self) -> None:
        dice = self._dice
        free = [name for name, volume in self._volumes.items() if volume.get("phase") != "Bound"]
        unbound = [name for name, claim in self._claims.items() if claim.get("class") in _STATIC]
        if not unbound:
            return
        for name in dice.some(free, 2):
            claim = dice.one(unbound)
            self._volumes[name] |= {"for": claim, "class": self._claims[claim]["class"]}
            if dice.chance(0.5):
                self._volumes[name]["uid"] = dice.one(("own", "own", "other"))

    # -- pods ------------------------------------------------------------------------------------------------------------

    def _pods(self) -> dict[str, Json]:
        dice = self._dice
        bound = [name for name, claim in self._claims.items() if "bound" in claim]
        count = dice.number(0, 6)
        moments = list(range(1, 10 * count + 1, 10))
        return {
            f"p{i}": {
                "at": dice.one(self._nodes),
                "started": moments.pop(dice.number(0, len(moments) - 1)),
                "priority": dice.one((-10, 0, 0, 5)),
                **self._left(self._uses(bound), bound),
            }
            for i in range(count)
        }

    def _left(self, uses: Json, bound: list[str]) -> Json:
        """Claims for one pod are gone once one uses them."""
        for name in uses.get("claims", ()):
            if "modes" in self._claims[name]:
                bound.remove(name)
        return uses

    def _uses(self, claims: Sequence[str]) -> Json:
        dice = self._dice
        uses: Json = {"claims": dice.some(claims, 2)} if claims and dice.chance(0.8) else {}
        if dice.chance(0.15):
            disks: tuple[Json, ...] = ({"gce": "inline"}, {"gce": "inline", "ro": True}, {"ebs": "vol-inline"})
            uses["volumes"] = [dice.one(disks)]
        return uses

    def _tried(self, name: str) -> Json:
        dice = self._dice
        pod: Json = {"likes_nodes": list(dice.likes(self._nodes, 19)), **self._uses(tuple(self._claims))}
        if dice.chance(0.12):
            scratch: Json = {
                "class": dice.one((*_STATIC, *_DYNAMIC)),
                "owner": name if dice.chance(0.85) else "somebody",
            }
            self._claims[f"{name}-scratch"] = scratch
            pod["volumes"] = [{"ephemeral": "scratch"}]
        if dice.chance(0.04):
            pod["claims"] = [*pod.get("claims", ()), "missing"]
        if dice.chance(0.25):
            pod["priority"] = 10
        if dice.chance(0.15):
            pod["nodeSelector"] = {"disk": dice.one(_DISKS)}
        return pod
