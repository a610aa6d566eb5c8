"""Rows of the table of hints: volumes to be bound, their zones, and disks and claims that other pods use.

From docs/spec/volumes.md §7.1, §7.3 and §7.4.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.csi_translation import ZONE
from scheduler.core.cluster_events import Resource
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv
from tests.unit.hints.hint_rows import CAME, LABELLED, POD_GONE, gone, leaves, news, node, pod, wakes
from tests.unit.hints.hint_rows_limits import claims, removed, stored

PLUGIN: Final = "VolumeBinding"
ZONES: Final = "VolumeZone"
RESTRICTIONS: Final = "VolumeRestrictions"
CLASS_CAME, CLASS_CHANGED, _ = news(Resource.STORAGE_CLASS)
CLAIM_CAME, CLAIM_CHANGED, _ = news(Resource.PERSISTENT_VOLUME_CLAIM)
VOLUME_CAME, VOLUME_CHANGED, VOLUME_GONE = news(Resource.PERSISTENT_VOLUME)
CSI_NODE_CAME, CSI_NODE_CHANGED, _ = news(Resource.CSI_NODE)
_, DRIVER_CHANGED, DRIVER_GONE = news(Resource.CSI_DRIVER)
CAPACITY_CAME, CAPACITY_CHANGED, _ = news(Resource.CSI_STORAGE_CAPACITY)

# -- VolumeBinding -----------------------------------------------------------------------------------------------------

HERE = node("n1", labels={"k": "n1", "topology.gke.io/zone": "east"})
MISSING: dict[str, Any] = {"given": (HERE,), "waits": claims("c"), "by_hand": True}
"""VolumeRestrictions refuses such a pod first."""
LOCAL: dict[str, Any] = {
    "given": (
        HERE,
        *stored(
            a_class("W"),
            a_claim("c", "1Gi", "W"),
            a_claim("other", "1Gi", "W"),
            a_pv("v", "1Gi", "W").phase("Released"),
        ),
        pod("q", on="n1", **claims("other")),
        pod("r", on="n1"),
    ),
    "waits": claims("c"),
}
FAR_ONE, NEAR_ONE = a_pv("v", "1Gi", "W").where("k", "far").claimed_by("c"), a_pv("w", "1Gi", "W")
MEANT: dict[str, Any] = {
    "given": (HERE, *stored(a_class("W"), a_claim("c", "1Gi", "W"), FAR_ONE, NEAR_ONE)),
    "waits": claims("c"),
}
LATE: dict[str, Any] = {"given": (HERE, *stored(a_claim("c", "1Gi", "late"))), "waits": claims("c")}
FAR = a_class("D", "P").allowed("k", "far")
ELSEWHERE: dict[str, Any] = {"given": (HERE, *stored(FAR, a_claim("c", "1Gi", "D"))), "waits": claims("c")}
ZONAL = (
    a_pv("v")
    .source(gcePersistentDisk={"pdName": "disk"})
    .where("failure-domain.beta.kubernetes.io/zone", "east")
    .claimed_by("c")
)
IN_TREE: dict[str, Any] = {"given": (HERE, *stored(a_claim("c").bound_to("v"), ZONAL)), "waits": claims("c")}
BY_CSI: dict[str, Any] = {
    "given": (HERE, *stored(a_claim("c").bound_to("v"), a_pv("v").csi("P").where("k", "far").claimed_by("c"))),
    "waits": claims("c"),
}
READ_BY_CSI = a_csi_node("n1").migrated("kubernetes.io/gce-pd")
PLAIN_NODE = a_csi_node("n1")
MIGRATES_LATER: dict[str, Any] = {**IN_TREE, "given": (*IN_TREE["given"], *stored(PLAIN_NODE))}
TRACKS, ANOTHER = a_csi_driver("P").tracks_capacity(), a_csi_driver("Q").tracks_capacity()
LITTLE = a_capacity("pool", "D", "1Mi").everywhere()
BOTH_TOLD = a_capacity("pool", "D", "1Gi").everywhere().maximum("1Gi")
FULL: dict[str, Any] = {
    "given": (HERE, *stored(TRACKS, ANOTHER, LITTLE, a_class("D", "P"), a_class("E", "P"), a_claim("c", "1Gi", "D"))),
    "waits": claims("c"),
}

BINDING: Final[list[Any]] = [
    wakes(PLUGIN, CLAIM_CAME, "its claim comes", **MISSING, then=stored(a_claim("c"))),
    leaves(PLUGIN, CLAIM_CAME, "another claim comes", **MISSING, then=stored(a_claim("d"))),
    wakes(PLUGIN, CLAIM_CHANGED, "its claim changes", **LOCAL, then=stored(a_claim("c", "1Gi", "W").label("x", "y"))),
    leaves(PLUGIN, CLAIM_CHANGED, "another claim changes",
        **LOCAL, then=stored(a_claim("other", "1Gi", "W").label("x"))),
    wakes(PLUGIN, VOLUME_CAME, "a free volume of its class comes", **LOCAL, then=stored(a_pv("w", "1Gi", "W"))),
    leaves(PLUGIN, VOLUME_CAME, "a volume of another class comes", **LOCAL, then=stored(a_pv("w", "1Gi", "X"))),
    wakes(PLUGIN, VOLUME_CHANGED, "a volume of its class is free again", **LOCAL, then=stored(a_pv("v", "1Gi", "W"))),
    leaves(PLUGIN, VOLUME_CHANGED, "a volume that is not free changes",
        **LOCAL, then=stored(a_pv("v", "1Gi", "W").phase("Failed"))),
    wakes(PLUGIN, VOLUME_GONE, "the volume goes that was reserved for its claim, and other volumes may match",
        **MEANT, then=removed(FAR_ONE)),
    leaves(PLUGIN, VOLUME_GONE, "another volume goes", **MEANT, then=removed(NEAR_ONE)),
    wakes(PLUGIN, CLASS_CAME, "its class comes", **LATE, then=stored(a_class("late"))),
    leaves(PLUGIN, CLASS_CAME, "another class comes", **LATE, then=stored(a_class("later"))),
    wakes(PLUGIN, CLASS_CHANGED, "its class allows its node", **ELSEWHERE, then=stored(FAR.allowed("k", "n1"))),
    leaves(PLUGIN, CLASS_CHANGED, "its class allows the same", **ELSEWHERE, then=stored(FAR.label("x", "y"))),
    wakes(PLUGIN, CAME, "a node comes", **ELSEWHERE, then=node("n2", labels={"k": "far"})),
    wakes(PLUGIN, LABELLED, "a node gets another label", **ELSEWHERE, then=node("n1", labels={"k": "far"})),
    wakes(PLUGIN, CSI_NODE_CAME, "its volume is read by a CSI driver", **IN_TREE, then=stored(READ_BY_CSI)),
    leaves(PLUGIN, CSI_NODE_CAME, "its volume is none that is read otherwise", **BY_CSI, then=stored(READ_BY_CSI)),
    wakes(PLUGIN, CSI_NODE_CHANGED, "its volume is read by a driver now", **MIGRATES_LATER, then=stored(READ_BY_CSI)),
    leaves(PLUGIN, CSI_NODE_CHANGED, "a driver comes", **MIGRATES_LATER, then=stored(PLAIN_NODE.driver("P"))),
    wakes(PLUGIN, DRIVER_CHANGED, "its driver stops tracking capacity", **FULL, then=stored(a_csi_driver("P"))),
    leaves(PLUGIN, DRIVER_CHANGED, "another driver stops tracking capacity", **FULL, then=stored(a_csi_driver("Q"))),
    wakes(PLUGIN, DRIVER_GONE, "its driver goes, and with it the question", **FULL, then=removed(TRACKS)),
    leaves(PLUGIN, DRIVER_GONE, "another driver goes", **FULL, then=removed(ANOTHER)),
    wakes(PLUGIN, CAPACITY_CAME, "another object has capacity",
        **FULL, then=stored(a_capacity("more", "D", "9Gi").everywhere())),
    leaves(PLUGIN, CAPACITY_CAME, "another class has capacity",
        **FULL, then=stored(a_capacity("more", "E", "9Gi").everywhere())),
    wakes(PLUGIN, CAPACITY_CHANGED, "there is more capacity", **FULL, then=stored(a_capacity("pool", "D", "9Gi").everywhere())),
    wakes(PLUGIN, CAPACITY_CHANGED, "there is a fraction of a byte more",
        (HERE, *stored(TRACKS, a_capacity("pool", "D", "1400m").everywhere(), a_class("D", "P"), a_claim("c", "1500m", "D"))),
        claims("c"), stored(a_capacity("pool", "D", "1500m").everywhere())),
    wakes(PLUGIN, CAPACITY_CHANGED, "there is more beyond 64 bits",
        (HERE, *stored(TRACKS, a_capacity("pool", "D", "20E").everywhere(), a_class("D", "P"), a_claim("c", "30E", "D"))),
        claims("c"), stored(a_capacity("pool", "D", "30E").everywhere())),
    wakes(PLUGIN, CAPACITY_CHANGED, "the object keeps only its maximum volume size",
        (*FULL["given"], pod("q", on="n1", **claims("d")),
         *stored(a_claim("d", "1Gi", "D").uid("d").selected("n1"), BOTH_TOLD)),
        claims("c"), stored(a_capacity("pool", "D").everywhere().maximum("1Gi"))),
    leaves(PLUGIN, CAPACITY_CHANGED, "there is less capacity", **FULL, then=stored(a_capacity("pool", "D", "1Ki").everywhere())),
    wakes(PLUGIN, POD_GONE, "a pod goes that was to get a volume of its class", **LOCAL, then=gone("q")),
    leaves(PLUGIN, POD_GONE, "a pod goes that has no claims", **LOCAL, then=gone("r")),
]  # fmt: skip

# -- VolumeZone and VolumeRestrictions ---------------------------------------------------------------------------------

BOUND, AFAR = a_claim("c").bound_to("v"), a_pv("v").label(ZONE, "far")
ZONED = node("n1", labels={ZONE: "here"})
APART: dict[str, Any] = {"given": (ZONED, *stored(BOUND, AFAR)), "waits": claims("c")}
UNBOUND: dict[str, Any] = {
    "given": (ZONED, *stored(a_claim("c", "1Gi", "slow"))),
    "waits": claims("c"),
    "by_hand": True,
}
"""VolumeBinding refuses such a pod before VolumeZone runs."""

ONCE = a_claim("once").modes("ReadWriteOncePod").bound_to("v")
ANYWZONED = a_pv("v").claimed_by("once")
USED: dict[str, Any] = {
    "given": (
        node("n1"),
        *stored(ONCE, ANYWZONED),
        pod("user", on="n1", **claims("once")),
        pod("other", on="n1", **claims("another")),
    ),
    "waits": claims("once"),
}


def disk(volume_id: str) -> dict[str, Any]:
    return {"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": volume_id}}]}


MOUNTED: dict[str, Any] = {
    "given": (node("n1"), pod("user", on="n1", **disk("vol-1")), pod("other", on="n1", **disk("vol-2"))),
    "waits": disk("vol-1"),
}

ZONED_AND_USED: Final[list[Any]] = [
    wakes(ZONES, CAME, "a node comes in any zone", **APART, then=node("n2", labels={ZONE: "far"})),
    wakes(ZONES, LABELLED, "a node moves there", **APART, then=node("n1", labels={ZONE: "far"})),
    wakes(ZONES, VOLUME_CHANGED, "its volume is somewhere else",
        **APART, then=stored(a_pv("v").label(ZONE, "here"))),
    leaves(ZONES, VOLUME_CHANGED, "another label of its volume changes", **APART, then=stored(AFAR.label("x", "y"))),
    wakes(ZONES, VOLUME_CAME, "the volume comes that its claim names",
        (ZONED, *stored(BOUND)), claims("c"), stored(AFAR), by_hand=True),
    leaves(ZONES, VOLUME_CAME, "a volume of another claim comes", **APART, then=stored(a_pv("w"))),
    wakes(ZONES, CLAIM_CHANGED, "its claim changes", **APART, then=stored(BOUND.label("x", "y"))),
    leaves(ZONES, CLAIM_CHANGED, "another claim changes",
        (*APART["given"], *stored(a_claim("d"))), claims("c"), stored(a_claim("d").label("x", "y"))),
    wakes(ZONES, CLAIM_CAME, "its claim comes", (), claims("c"), stored(BOUND), by_hand=True),
    leaves(ZONES, CLAIM_CAME, "another claim comes", **APART, then=stored(a_claim("d"))),
    wakes(ZONES, CLASS_CAME, "the class of its claim comes", **UNBOUND, then=stored(a_class("slow"))),
    leaves(ZONES, CLASS_CAME, "that class binds without pods", **UNBOUND, then=stored(a_class("slow").immediate())),
    leaves(ZONES, CLASS_CAME, "another class comes", **UNBOUND, then=stored(a_class("fast"))),
    wakes(RESTRICTIONS, POD_GONE, "the pod goes that had its claim", **USED, then=gone("user")),
    leaves(RESTRICTIONS, POD_GONE, "a pod with another claim goes", **USED, then=gone("other")),
    wakes(RESTRICTIONS, POD_GONE, "the pod goes that had its disk", **MOUNTED, then=gone("user")),
    leaves(RESTRICTIONS, POD_GONE, "a pod with another disk goes", **MOUNTED, then=gone("other")),
    wakes(RESTRICTIONS, CAME, "a node comes", **MOUNTED, then=node("n2")),
    wakes(RESTRICTIONS, CLAIM_CAME, "its claim comes", ZONED, claims("c"), stored(BOUND)),
    leaves(RESTRICTIONS, CLAIM_CAME, "another claim comes", ZONED, claims("c"), stored(a_claim("d"))),
]  # fmt: skip

ROWS = [*BINDING, *ZONED_AND_USED]
