"""Random PVs and claims of `varied_volumes`. Of all PVs no two are of one size, and no claim has two that are meant for it."""

from collections.abc import Sequence
from typing import Final

from tests.parity.generate import Dice
from tests.parity.storage import BIND_COMPLETED, BY_CONTROLLER
from tests.parity.varied_places import DISKS, DRIVER, DYNAMIC, OTHER_DRIVER, SETS_OF_ZONES, STATIC, ZONES
from tests.parity.words import Json

_TIERS: Final = ("gold", "silver")


class StoredVolumes:
    """What is there so far: later ones name earlier ones."""

    def __init__(self, dice: Dice, nodes: Sequence[str]) -> None:
        self._dice = dice
        self._nodes = nodes
        self.volumes: dict[str, Json] = {}
        self.claims: dict[str, Json] = {}

    def fill(self) -> None:
        """With everything but the claims of ephemeral volumes."""
        dice = self._dice
        for _ in range(dice.number(3, 10)):
            self._add_free_volume()
        for _ in range(dice.number(3, 7)):
            self._add_claim(self._bound())
        for _ in range(dice.number(3, 7)):
            self._add_claim(self._unbound())
        unbound = [name for name, claim in self.claims.items() if "bound" not in claim and "volume" not in claim]
        self._pre_bind(unbound)

    def add_scratch(self, name: str, owner: str) -> None:
        """The claim of an ephemeral volume, which is the owner's."""
        dice = self._dice
        claim: Json = {"class": dice.one((*STATIC, *DYNAMIC, "m"))}
        if dice.chance(0.4):
            claim = self._bound()
        for word in ("namespace", "modes", "phase", "leaving"):
            claim.pop(word, None)
        claim["owner"] = owner
        self.claims[name] = claim

    # -- PVs -------------------------------------------------------------------------------------------------------------

    def _size(self) -> str:
        return f"{self._dice.number(1, 6) * 1024 + len(self.volumes)}Mi"

    def _add_free_volume(self) -> None:
        dice = self._dice
        volume: Json = {"class": dice.one((*STATIC, *STATIC, *DYNAMIC, "m")), "size": self._size(), **self._reach()}
        if dice.chance(0.08):
            volume["old_class"] = dice.one(("w", "d", "gone", ""))
        elif dice.chance(0.04):
            del volume["class"]
        if dice.chance(0.5):
            volume["labels"] = {"disk": dice.one(DISKS), **({"tier": dice.one(_TIERS)} if dice.chance(0.5) else {})}
        if dice.chance(0.3):
            volume["modes"] = dice.one((["RWO", "RWX"], ["RWX"], ["ROX"], ["RWOP"], ["RWO", "ROX"]))
        if dice.chance(0.12):
            volume["phase"] = dice.one(("Released", "Pending", "Failed", "Bound"))
        if dice.chance(0.15):
            volume["volume_mode"] = dice.one(("Block", "Block", "Filesystem"))
        if dice.chance(0.15):
            volume |= {"vac": dice.one(_TIERS), "csi": DRIVER}
        elif dice.chance(0.3):
            volume |= self._source(f"v{len(self.volumes)}")
        if dice.chance(0.06):
            volume["leaving"] = True
        if dice.chance(0.04):
            volume["annotations"] = {BY_CONTROLLER: "yes"}
        self.volumes[f"v{len(self.volumes)}"] = volume

    def _reach(self) -> Json:
        dice = self._dice
        if dice.chance(0.15):
            return {}
        if dice.chance(0.5):
            return {"from": dice.one(({"k": dice.some(self._nodes, 4)}, {"zone": dice.some(ZONES, 2)}))}
        return {"affinity": [self._term() for _ in range(dice.one((1, 1, 2, 3)))]}

    def _term(self) -> Json:
        dice = self._dice
        here = {"key": "k", "operator": "In", "values": dice.some(self._nodes, 3)}
        fields = [{"key": "metadata.name", "operator": dice.one(("In", "NotIn")), "values": [dice.one(self._nodes)]}]
        expressions: tuple[Json, ...] = (
            {"key": "kubernetes.io/hostname", "operator": "In", "values": dice.some(self._nodes, 3)},
            {"key": "k", "operator": "NotIn", "values": dice.some(self._nodes, 2)},
            {"key": "gen", "operator": dice.one(("Gt", "Lt")), "values": [dice.one(("1", "2", "3", "x"))]},
            {"key": "gen", "operator": dice.one(("Exists", "DoesNotExist"))},
            {"key": "gen", "operator": dice.one(("In", "NotIn")), "values": ["1", "new"]},
            {"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": [dice.one(ZONES)]},
            {"key": "topology.kubernetes.io/zone", "operator": dice.one(("In", "NotIn")), "values": [dice.one(ZONES)]},
            {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["us-1"]},
        )
        terms: tuple[Json, ...] = (
            {"matchExpressions": [dice.one(expressions)]},
            {"matchExpressions": [dice.one(expressions)]},
            {"matchExpressions": [dice.one(expressions)]},
            {"matchExpressions": [here, dice.one(expressions)]},
            {"matchExpressions": [here], "matchFields": fields},
            {"matchFields": fields},
            {},
        )
        return dice.one(terms)

    def _source(self, name: str) -> Json:
        """Any kind that is attached, or that was migrated; a few cannot be translated."""
        dice = self._dice
        azure = {"diskName": name, "diskURI": f"/subscriptions/{name}", "kind": "Managed"}
        if dice.chance(0.1):
            azure |= {"diskURI": f"https://{name}", "kind": "Dedicated"}
        sources: tuple[Json, ...] = (
            {"csi": DRIVER},
            {"csi": DRIVER},
            {"csi": f"{OTHER_DRIVER}/{name}"},
            {"csi": "ebs.csi.aws.com"},
            {"gce": name},
            {"gce": name},
            {"ebs": dice.one((f"vol-{name}", f"aws://us-1-a/vol-{name}", f"vol-{name}"))},
            {"ebs": f"vol-{name}" if dice.chance(0.8) else "aws://us-1-a/bad"},
            {"source": {"azureDisk": azure}},
            {"source": {"cinder": {"volumeID": name}}},
            {"source": {"portworxVolume": {"volumeID": name}}},
            {"source": {"vsphereVolume": {"volumePath": name}}},
            {"source": {"azureFile": {"secretName": "s", "shareName": name, "secretNamespace": "default"}}},
        )
        return dice.one(sources)

    def _pre_bind(self, unbound: Sequence[str]) -> None:
        """Some are as a user writes it, some as a scheduler does; some are of claims that are gone."""
        dice = self._dice
        free = [name for name in self.volumes if name.startswith("v")]
        left = list(unbound)
        for name in dice.some(free, 3) if dice.chance(0.6) else ():
            volume, uid = self.volumes[name], dice.one(("", "", "own", "other"))
            if not left or dice.chance(0.1):
                volume["for"] = dice.one(("nobody", "red/nobody"))
                uid = "" if uid == "own" else uid
            else:
                volume["for"] = left.pop(dice.number(0, len(left) - 1))
                claim = self.claims[volume["for"]]
                if "namespace" in claim:
                    volume["for"] = f"{claim['namespace']}/{volume['for']}"
                if dice.chance(0.85) and "class" in claim:
                    volume["class"] = claim["class"]
            if uid:
                volume["uid"] = uid
            if dice.chance(0.3):
                volume["by_controller"] = True

    # -- claims ------------------------------------------------------------------------------------------------------------

    def _add_claim(self, claim: Json) -> None:
        if self._dice.chance(0.02):
            claim["leaving"] = True
        self.claims[f"c{len(self.claims)}"] = claim

    def _bound(self) -> Json:
        """Mostly with a separate PV; some name one that other claims name, or one that does not exist."""
        dice = self._dice
        old = [name for name in self.volumes if name.startswith("b")]
        name = f"b{len(self.volumes)}"
        if old and dice.chance(0.1):
            name = dice.one(old)
        elif dice.chance(0.95):
            self.volumes[name] = self._bound_volume(name)
        claim: Json = {"bound": name}
        if dice.chance(0.5):
            claim["class"] = dice.one((*STATIC, *DYNAMIC, "i", "m", "gone", ""))
        if dice.chance(0.25):
            claim["modes"] = dice.one((["RWOP"], ["RWOP"], ["RWX"], ["ROX"]))
        if dice.chance(0.1):
            claim["phase"] = dice.one(("Lost", "Pending", "Pending", "Pending"))
        if dice.chance(0.03):
            claim = claim | {"volume": claim.pop("bound")}
        if dice.chance(0.1):
            claim["selected"] = dice.one((*self._nodes, "elsewhere"))
        return claim

    def _bound_volume(self, name: str) -> Json:
        dice = self._dice
        volume: Json = {"phase": dice.one(("Bound", "Bound", "Bound", "Released")), "size": self._size()}
        if dice.chance(0.85):
            volume |= self._source(name)
        if dice.chance(0.5):
            zones = (*ZONES, *ZONES, *SETS_OF_ZONES, "us-1-a____us-1-b", "nowhere")
            keys = ("zone", "zone", "old-zone", "region", "old-region")
            labels = {key: dice.one(zones) for key in dice.some(keys[1:], 2)}
            volume["labels"] = {key: value[:4] if "region" in key else value for key, value in labels.items()}
        if dice.chance(0.45):
            volume |= self._reach()
        if dice.chance(0.05):
            volume["leaving"] = True
        return volume

    def _unbound(self) -> Json:
        dice = self._dice
        sizes = (
            f"{dice.number(1, 5)}Gi",
            f"{dice.number(1, 5)}Gi",
            f"{dice.number(1024, 4100)}Mi",
            f"{dice.number(1, 5)}G",
            f"{dice.number(1, 3)}.5Gi",
        )
        names = (*STATIC, *STATIC, *DYNAMIC, *DYNAMIC, "m")
        claim: Json = {"class": dice.one(names), "size": dice.one(sizes)}
        if dice.chance(0.04):
            claim["class"] = dice.one(("i", "j", "gone", ""))
        if dice.chance(0.06):
            claim["old_class"] = dice.one((*names, "gone", ""))
            if dice.chance(0.5):
                del claim["class"]
        if dice.chance(0.2):
            claim["selected"] = dice.one((*self._nodes, *self._nodes, "elsewhere", ""))
        if dice.chance(0.25):
            claim["selector"] = self._selector()
        if dice.chance(0.25):
            claim["modes"] = dice.one((["RWX"], ["ROX"], ["RWOP"], ["RWO", "RWX"], ["RWO", "ROX"]))
        if dice.chance(0.1):
            claim["volume_mode"] = dice.one(("Block", "Block", "Filesystem"))
        if dice.chance(0.1):
            claim["vac"] = dice.one((*_TIERS, ""))
        if dice.chance(0.03):
            claim["annotations"] = {BIND_COMPLETED: "yes"}
        if dice.chance(0.02):
            claim["volume"] = dice.one(tuple(self.volumes))
        return claim

    def _selector(self) -> Json:
        dice = self._dice
        selectors: tuple[Json, ...] = (
            {},
            {"matchLabels": {"disk": dice.one(DISKS)}},
            {"matchLabels": {"disk": dice.one(DISKS), "tier": dice.one(_TIERS)}},
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": dice.some(DISKS, 2)}]},
            {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": [dice.one(_TIERS)]}]},
            {"matchExpressions": [{"key": "tier", "operator": dice.one(("Exists", "DoesNotExist"))}]},
            {
                "matchLabels": {"disk": dice.one(DISKS)},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}],
            },
        )
        return dice.one(selectors)
