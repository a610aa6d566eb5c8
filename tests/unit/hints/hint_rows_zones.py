"""Rows of the table of hints: zones of volumes, disks and claims that other pods use (docs/spec/volumes.md §7.3, §7.4)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.csi_translation import ZONE
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.hints.hint_rows import CAME, LABELLED, POD_GONE, gone, leaves, node, pod, wakes
from tests.unit.hints.hint_rows_limits import claims, stored

ZONES: Final = "VolumeZone"
RESTRICTIONS: Final = "VolumeRestrictions"
CLASS_CAME = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
CLAIM_CAME = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
CLAIM_CHANGED = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
VOLUME_CAME = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD)
VOLUME_CHANGED = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER)

BOUND, FAR = a_claim("c").bound_to("v"), a_pv("v").label(ZONE, "far")
HERE = node("n1", labels={ZONE: "here"})
ELSEWHERE: dict[str, Any] = {"given": (HERE, *stored(BOUND, FAR)), "waits": claims("c")}
UNBOUND: dict[str, Any] = {"given": (HERE, *stored(a_claim("c", "1Gi", "slow"))), "waits": claims("c"), "by_hand": True}
"""VolumeBinding refuses such a pod before VolumeZone runs."""

ONCE = a_claim("once").modes("ReadWriteOncePod").bound_to("v")
ANYWHERE = a_pv("v").claimed_by("once")
TAKEN: dict[str, Any] = {
    "given": (
        node("n1"),
        *stored(ONCE, ANYWHERE),
        pod("user", on="n1", **claims("once")),
        pod("other", on="n1", **claims("another")),
    ),
    "waits": claims("once"),
}


def disk(volume_id: str) -> dict[str, Any]:
    """`volumes` of this EBS volume."""
    return {"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": volume_id}}]}


MOUNTED: dict[str, Any] = {
    "given": (node("n1"), pod("user", on="n1", **disk("vol-1")), pod("other", on="n1", **disk("vol-2"))),
    "waits": disk("vol-1"),
}

ROWS: Final[list[Any]] = [
    wakes(ZONES, CAME, "a node comes in any zone", **ELSEWHERE, then=node("n2", labels={ZONE: "far"})),
    wakes(ZONES, LABELLED, "a node moves there", **ELSEWHERE, then=node("n1", labels={ZONE: "far"})),
    wakes(ZONES, VOLUME_CHANGED, "its volume is somewhere else",
        **ELSEWHERE, then=stored(a_pv("v").label(ZONE, "here"))),
    leaves(ZONES, VOLUME_CHANGED, "another label of its volume changes", **ELSEWHERE, then=stored(FAR.label("x", "y"))),
    wakes(ZONES, VOLUME_CAME, "the volume comes that its claim names",
        (HERE, *stored(BOUND)), claims("c"), stored(FAR), by_hand=True),
    leaves(ZONES, VOLUME_CAME, "a volume of another claim comes", **ELSEWHERE, then=stored(a_pv("w"))),
    wakes(ZONES, CLAIM_CHANGED, "its claim changes", **ELSEWHERE, then=stored(BOUND.label("x", "y"))),
    leaves(ZONES, CLAIM_CHANGED, "another claim changes",
        (*ELSEWHERE["given"], *stored(a_claim("d"))), claims("c"), stored(a_claim("d").label("x", "y"))),
    wakes(ZONES, CLAIM_CAME, "its claim comes", (), claims("c"), stored(BOUND), by_hand=True),
    leaves(ZONES, CLAIM_CAME, "another claim comes", **ELSEWHERE, then=stored(a_claim("d"))),
    wakes(ZONES, CLASS_CAME, "the class of its claim comes", **UNBOUND, then=stored(a_class("slow"))),
    leaves(ZONES, CLASS_CAME, "that class binds without pods", **UNBOUND, then=stored(a_class("slow").immediate())),
    leaves(ZONES, CLASS_CAME, "another class comes", **UNBOUND, then=stored(a_class("fast"))),
    wakes(RESTRICTIONS, POD_GONE, "the pod goes that had its claim", **TAKEN, then=gone("user")),
    leaves(RESTRICTIONS, POD_GONE, "a pod with another claim goes", **TAKEN, then=gone("other")),
    wakes(RESTRICTIONS, POD_GONE, "the pod goes that had its disk", **MOUNTED, then=gone("user")),
    leaves(RESTRICTIONS, POD_GONE, "a pod with another disk goes", **MOUNTED, then=gone("other")),
    wakes(RESTRICTIONS, CAME, "a node comes", **MOUNTED, then=node("n2")),
    wakes(RESTRICTIONS, CLAIM_CAME, "its claim comes", HERE, claims("c"), stored(BOUND)),
    leaves(RESTRICTIONS, CLAIM_CAME, "another claim comes", HERE, claims("c"), stored(a_claim("d"))),
]  # fmt: skip
