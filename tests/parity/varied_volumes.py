"""A random scenario of all that volume plugins read, from a seed: what `random_volumes` has, what it never makes, side by side.

Chance decides nothing for a scheduler, as there. And nothing is made of which it is known that we differ: no two pods there
use a claim for one pod, none names an ephemeral claim that is not its own, no claim for one pod has a namesake.
"""

from collections.abc import Sequence
from typing import Final

from tests.parity.generate import Dice
from tests.parity.varied_claims import StoredVolumes
from tests.parity.varied_places import (
    SCORED_GATES,
    SHAPED,
    attachments,
    capacities,
    classes,
    csi_drivers,
    csi_node,
    node,
)
from tests.parity.words import Json

VARIED_SEEDS: Final = range(100)
_SCORED_EVERY: Final = 5
"""One seed in this number is of a scheduler that scores capacities and looks for drivers."""
_PROFILES: Final = (*("default",) * 7, "binding-alone", "limits-alone", "zones-alone", "restrictions-alone")
_SCORED_PROFILES: Final = ("default", SHAPED)


def varied_volume_seed(seed: int) -> Json:
    """The scenario of this seed; the same on every machine and Python."""
    scored = seed % _SCORED_EVERY == 0
    made = _Stored(Dice(seed), scored=scored).scenario(f"varied volumes {seed:03}")
    return _scored(made) if scored else made


def _scored(made: Json) -> Json:
    """With what kube-scheduler must find to score at all: without one of these it crashes (docs/spec/volumes.md §4)."""
    for one in made["capacities"].values():
        one.setdefault("size", "5Gi")
    for one in made["claims"].values():
        if "old_class" in one:
            one.setdefault("class", one["old_class"])
    return made | {"feature_gates": list(SCORED_GATES)}


class _Stored:
    """Nodes, and the use of volumes."""

    def __init__(self, dice: Dice, *, scored: bool) -> None:
        self._dice = dice
        self._scored = scored
        self._nodes = [f"n{i}" for i in range(dice.number(3, 6))]
        self._shelf = StoredVolumes(dice, self._nodes)
        self._favourite = dice.number(0, 5)
        """The kind of most inline disks, so that they conflict."""
        self._free: list[str] = []
        """Claims that no pod uses."""
        self._reserved: frozenset[str] = frozenset()

    def scenario(self, name: str) -> Json:
        dice, nodes, shelf, scored = self._dice, self._nodes, self._shelf, self._scored
        shelf.fill()
        pods = self._pods()
        waiting = self._waiting() if dice.chance(0.25) else {}
        asked = {f"a{i}": self._tried(f"a{i}") for i in range(dice.number(3, 5))}
        return {
            "id": name,
            "profile": dice.one(_SCORED_PROFILES if scored else _PROFILES),
            "nodes": {name: node(dice, name) for name in nodes},
            "classes": classes(dice, nodes),
            "csi_drivers": csi_drivers(dice, scored=scored),
            "csi_nodes": {name: csi_node(dice) for name in nodes if dice.chance(0.75)},
            "capacities": capacities(dice, nodes, scored=scored),
            "attachments": attachments(dice, nodes, tuple(shelf.volumes)),
            "pvs": shelf.volumes,
            "claims": shelf.claims,
            "pods": pods,
            "waiting": waiting,
            "asked": asked,
        }

    def _pods(self) -> dict[str, Json]:
        dice = self._dice
        free = list(self._shelf.claims)
        count = dice.number(1, 9)
        moments = list(range(1, 10 * count + 1, 10))
        pods: dict[str, Json] = {}
        for i in range(count):
            pod: Json = {
                "at": dice.one(self._nodes),
                "started": moments.pop(dice.number(0, len(moments) - 1)),
                "priority": dice.one((-10, 0, 0, 5)),
                **self._uses(free, f"p{i}"),
            }
            if dice.chance(0.3):
                pod["requests"] = {"cpu": "1"}
            if dice.chance(0.08):
                pod["leaving"] = True
            if dice.chance(0.08):
                self._move_away(pod)
            for name in self._for_one_pod(pod):
                free.remove(name)
            pods[f"p{i}"] = pod
        self._free = [name for name in free if not any(name in pod.get("claims", ()) for pod in pods.values())]
        return pods

    def _waiting(self) -> dict[str, Json]:
        """A nominated pod. A claim that no other pod shares costs an attachment: no pod shares these."""
        dice = self._dice
        used = dice.some(self._free, 2) if self._free else []
        self._reserved = frozenset(used)
        pod: Json = {"nominated": dice.one(self._nodes), "priority": dice.one((5, 10, 100)), "claims": used}
        if dice.chance(0.5):
            pod["volumes"] = [self._inline()]
        return {"w": pod}

    def _move_away(self, pod: Json) -> None:
        """To a namespace where there are no claims, or one of that name."""
        mine = [name for name in pod.get("claims", ()) if name not in self._for_one_pod(pod)]
        pod |= {
            "namespace": "red",
            "claims": mine,
            "volumes": [one for one in pod.get("volumes", ()) if "ephemeral" not in one],
        }
        for name in mine:
            if self._dice.chance(0.5) and f"{name}!" not in self._shelf.claims:
                self._shelf.claims[f"{name}!"] = self._shelf.claims[name] | {"namespace": "red"}

    def _for_one_pod(self, pod: Json) -> list[str]:
        return [name for name in pod.get("claims", ()) if self._shelf.claims[name].get("modes") == ["RWOP"]]

    def _uses(self, claims: Sequence[str], owner: str) -> Json:
        """Claims, disks that the pod writes out itself, and ephemeral volumes."""
        dice = self._dice
        uses: Json = {"claims": dice.some(claims, 3)} if claims and dice.chance(0.85) else {}
        volumes = [self._inline() for _ in range(dice.number(1, 2)) if dice.chance(0.25)]
        if dice.chance(0.15):
            volumes.append({"ephemeral": "scratch"})
            if dice.chance(0.9):
                self._shelf.add_scratch(f"{owner}-scratch", owner)
        return uses | ({"volumes": volumes} if volumes else {})

    def _inline(self) -> Json:
        dice = self._dice
        name = dice.one(("x", "y"))
        read_only = {"ro": True} if dice.chance(0.4) else {}
        azure = {"diskName": name, "diskURI": f"/subscriptions/{name}", "kind": "Managed"}
        monitors = dice.some(("m1", "m2", "m3"), 2)
        disks: tuple[Json, ...] = (
            {"gce": name, **read_only},
            {"gce": "x"},
            {"ebs": f"vol-{name}", **read_only},
            {"ebs": "vol-x"},
            {"rbd": f"pool/{name}", "monitors": monitors, **read_only},
            {"iscsi": f"iqn.2001-04.com.example:{name}", "lun": dice.number(0, 1), **read_only},
            {"csi": dice.one(("p.example.com", "ebs.csi.aws.com"))},
            {"source": {"azureDisk": azure}},
            {"source": {"cinder": {"volumeID": name}}},
            {"source": {"portworxVolume": {"volumeID": name}}},
            {"source": {"vsphereVolume": {"volumePath": name}}},
            {"source": {"azureFile": {"secretName": "s", "shareName": name}}},
            {"source": {"emptyDir": {}}},
        )
        return disks[self._favourite] if dice.chance(0.6) else dice.one(disks)

    def _tried(self, name: str) -> Json:
        dice = self._dice
        claims = [
            one
            for one, claim in self._shelf.claims.items()
            if "owner" not in claim and "namespace" not in claim and one not in self._reserved
        ]
        pod: Json = {"likes_nodes": list(dice.likes(self._nodes, 19)), **self._uses(claims, name)}
        volumes = pod.get("volumes", [])
        if volumes and dice.chance(0.5):  # claims come first, unless they are written so
            pod["volumes"] = [*volumes, *({"claim": one} for one in pod.pop("claims", ()))]
        if dice.chance(0.04):
            pod["claims"] = [*pod.get("claims", ()), "missing"]
        if dice.chance(0.15) and (scratch := self._shelf.claims.get(f"{name}-scratch")):
            scratch |= dice.one(({"owner": "somebody"}, {"controls": False}))
        if dice.chance(0.02):  # of pods that are there we make nothing of one that cannot be translated
            pod["volumes"] = [*pod.get("volumes", ()), {"ebs": "aws://us-1-a/bad"}]
        if dice.chance(0.55):
            pod["priority"] = 10
        if dice.chance(0.4):
            pod["requests"] = {"cpu": dice.one(("1", "2", "3"))}
        if dice.chance(0.12):
            pod["nodeSelector"] = {"disk": dice.one(("ssd", "hdd"))}
        return pod
