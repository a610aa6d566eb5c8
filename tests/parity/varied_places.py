"""Random nodes and settings of `varied_volumes`: what no trial changes."""

from collections.abc import Sequence
from typing import Final

from tests.parity.generate import Dice
from tests.parity.words import Json

ZONES: Final = ("us-1-a", "us-1-b", "us-2-a")
SETS_OF_ZONES: Final = ("us-1-a__us-1-b", "us-1-b__us-1-a", "us-2-a__us-2-a")
"""All of one region each: of several, a disk would be of none."""
DISKS: Final = ("ssd", "hdd")
DRIVER: Final = "p.example.com"
OTHER_DRIVER: Final = "other.example.com"
STATIC: Final = ("w", "w", "w2")
DYNAMIC: Final = ("d", "d", "e")
SCORING: Final = "StorageCapacityScoring"
SCORED_GATES: Final = (SCORING, "VolumeLimitScaling")
SHAPED: Final = "shaped"
"""The profile that scores capacities in its own way."""

_EBS: Final = "ebs.csi.aws.com"
_OF_DRIVERS: Final = ("topology.gke.io/zone", "topology.ebs.csi.aws.com/zone", "topology.cinder.csi.openstack.org/zone")
_IN_TREE: Final = ("gce-pd", "aws-ebs", "azure-disk", "cinder", "portworx-volume", "vsphere-volume", "azure-file")
_MIGRATING: Final = (
    *(_EBS, "pd.csi.storage.gke.io", "disk.csi.azure.com", "cinder.csi.openstack.org", "pxd.portworx.com"),
    *("file.csi.azure.com", "csi.vsphere.vmware.com"),
)


def node(dice: Dice, name: str) -> Json:
    """`k` is its name, always; all other labels are a matter of chance."""
    labels: dict[str, str | None] = {"k": name, "disk": dice.one(DISKS)}
    if dice.chance(0.5):
        labels["gen"] = dice.one(("1", "2", "3", "new"))
    if dice.chance(0.2):
        labels["host"] = dice.one((None, f"{name}.example.com"))
    zone = dice.one(ZONES)
    if dice.chance(0.7):
        labels |= _zoned("", zone, dice)
    if dice.chance(0.3):
        labels |= _zoned("old-", zone if dice.chance(0.7) else dice.one(ZONES), dice)
    if dice.chance(0.7):
        labels |= dict.fromkeys(_OF_DRIVERS, zone)
    made: Json = {"labels": labels, "room": {"cpu": dice.one(("2", "3", "4"))}}
    if dice.chance(0.06):
        made["cordoned"] = True
    return made


def _zoned(prefix: str, zone: str, dice: Dice) -> dict[str, str]:
    both = {f"{prefix}zone": zone, f"{prefix}region": zone[:4]}
    return both if dice.chance(0.5) else {dice.one(tuple(both)): both[f"{prefix}zone"][: dice.one((4, 6, 6))]}


def classes(dice: Dice, nodes: Sequence[str]) -> dict[str, Json]:
    """The class `gone` is not among them, whatever names it."""
    dynamic: dict[str, Json] = {
        "d": {"provisioner": DRIVER},
        "e": {"provisioner": OTHER_DRIVER},
        "m": {"provisioner": dice.one(("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs", "kubernetes.io/azure-disk"))},
    }
    for made in dynamic.values():
        if dice.chance(0.35):
            terms = [_topology(dice, nodes) for _ in range(dice.number(1, 3))]
            made["topologies"] = [term for i, term in enumerate(terms) if term not in terms[:i]]
    static: dict[str, Json] = {"w": {}, "w2": {}, "i": {"binding": "Immediate"}}
    return static | dynamic | {"j": {"binding": "Immediate", "provisioner": DRIVER}}


def _topology(dice: Dice, nodes: Sequence[str]) -> Json:
    terms: tuple[Json, ...] = (
        {"k": dice.some(nodes, 3)},
        {"zone": dice.some(ZONES, 2)},
        {"old-zone": [dice.one(ZONES)]},
        {"host": dice.some(nodes, 3)},
        {"zone": dice.some(ZONES, 2), "disk": [dice.one(DISKS)]},
        {"topology.gke.io/zone": dice.some(ZONES, 2)},
    )
    return dice.one(terms)


def csi_drivers(dice: Dice, *, scored: bool) -> dict[str, Json]:
    """`scored`: one must be there before its pods come; of several, chance has it which a scheduler names."""
    drivers: dict[str, Json] = {}
    needed = dice.one((DRIVER, OTHER_DRIVER, _EBS)) if scored else ""
    for name, share in ((DRIVER, 0.9), (OTHER_DRIVER, 0.4), (_EBS, 0.4)):
        if not dice.chance(share):
            continue
        drivers[name] = {"capacity": dice.one((True, True, False))} if dice.chance(0.9) else {}
        if name == needed:
            drivers[name]["needed"] = True
    return drivers


def csi_node(dice: Dice) -> Json:
    """Limits that are soon reached, none, and no statement."""
    drivers = {name: dice.one((None, 0, 1, 1, 2, 2, 3)) for name in (DRIVER, OTHER_DRIVER) if dice.chance(0.7)}
    drivers |= {name: dice.one((None, 0, 1, 1, 2)) for name in _MIGRATING if dice.chance(0.45)}
    made: Json = {"drivers": drivers}
    if dice.chance(0.6):
        plugins = dice.some([f"kubernetes.io/{name}" for name in _IN_TREE], len(_IN_TREE))
        made["migrated"] = dice.one((",", ",", ",", ", ")).join(plugins)
    elif dice.chance(0.2):
        made["migrated"] = ""
    return made


def capacities(dice: Dice, nodes: Sequence[str], *, scored: bool) -> dict[str, Json]:
    """`scored`: of each class at most one for a node, since it is random which of several is reported of the node."""
    made: dict[str, Json] = {}
    for name in ("d", "d", "d", "e", "m", "gone"):
        if scored or not dice.chance(0.6):
            continue
        made[f"o{len(made)}"] = _capacity(dice, name) | _where(dice, nodes)
    for name in ("d", "e") if scored else ():
        for node_name in nodes:
            if dice.chance(0.7):
                made[f"o{len(made)}"] = _capacity(dice, name) | {"from": {"k": node_name}}
    return made


def _capacity(dice: Dice, storage_class: str) -> Json:
    made: Json = {"class": storage_class}
    if dice.chance(0.93):
        made["size"] = dice.one((f"{dice.number(0, 9)}Gi", f"{dice.number(1, 9)}Gi", f"{dice.number(900, 5000)}M"))
    if dice.chance(0.3):
        made["max"] = f"{dice.number(0, 6)}Gi"
    if dice.chance(0.2):
        made["namespace"] = dice.one(("red", "blue"))
    return made


def _where(dice: Dice, nodes: Sequence[str]) -> Json:
    places: tuple[Json, ...] = (
        {},
        {"from": {}},
        {"from": {"k": dice.one(nodes)}},
        {"from": {"zone": dice.one(ZONES)}},
        {"from": {"disk": dice.one(DISKS), "zone": dice.one(ZONES)}},
        {"selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": dice.some(nodes, 3)}]}},
        {"selector": {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": dice.some(nodes, 2)}]}},
        {"selector": {"matchExpressions": [{"key": "gen", "operator": dice.one(("Exists", "DoesNotExist"))}]}},
        {
            "selector": {
                "matchLabels": {"disk": dice.one(DISKS)},
                "matchExpressions": [{"key": "gen", "operator": "NotIn", "values": ["1"]}],
            }
        },
    )
    return dice.one(places)


def attachments(dice: Dice, nodes: Sequence[str], volumes: Sequence[str]) -> dict[str, Json]:
    """Of PVs that are there or not, by their driver or another, to nodes that are there or not."""
    made: dict[str, Json] = {}
    for _ in range(dice.number(0, 4)):
        one: Json = {"attacher": dice.one((DRIVER, DRIVER, DRIVER, OTHER_DRIVER, _EBS)), "node": dice.one(nodes)}
        if dice.chance(0.08):
            one["node"] = "elsewhere"
        if dice.chance(0.1):
            one["inline"] = f"handle-{len(made)}"
        else:
            one["pv"] = dice.one(volumes) if volumes and dice.chance(0.95) else "no-such-volume"
        made[f"t{len(made)}"] = one
    return made
