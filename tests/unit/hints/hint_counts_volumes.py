"""Rows of the counts of hints for volumes: each waiting pod has another claim and another class.

`(plugin, event, text, old, new, concerned, another, given)`: the columns of `Case` in `test_hints_table_counts`.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.podinfo import pod_info
from scheduler.eventhandlers.storage import CAPACITY_FREED
from simulator.builders.core import Builder
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.harness import manifest, typed
from tests.unit.hints.hint_rows import POD_GONE
from tests.unit.hints.hint_rows_limits import DETACHED, claims
from tests.unit.hints.hint_rows_volumes import (
    CAPACITY_CAME,
    CLAIM_CAME,
    CLASS_CAME,
    CSI_NODE_CAME,
    DRIVER_CHANGED,
    VOLUME_CAME,
)

ONE: dict[str, Any] = claims("c")


def another(i: int) -> dict[str, Any]:
    """Another claim."""
    return claims(f"c{i}")


def unbound(i: int | str) -> list[Builder[Any]]:
    """A claim, its class and its class's driver, of each pod its own."""
    return [a_claim(f"c{i}", "1Gi", f"s{i}"), a_class(f"s{i}", f"p{i}"), a_csi_driver(f"p{i}").tracks_capacity()]


def classless(i: int | str) -> list[Builder[Any]]:
    """A claim whose class is unknown."""
    return [a_claim(f"c{i}", "1Gi", f"s{i}")]


def bound(i: int | str) -> list[Builder[Any]]:
    """A claim and its volume; the first one's is of an in-tree plugin."""
    volume = a_pv(f"v{i}").csi("p")
    if i == "":
        volume = a_pv("v").source(gcePersistentDisk={"pdName": "d"})
    return [a_claim(f"c{i}").bound_to(f"v{i}"), volume]


def nothing(_i: int | str) -> list[Builder[Any]]:
    """There is neither a claim nor a class."""
    return []


def leaving(**spec: Any) -> Any:
    """A pod of node n1."""
    return pod_info(typed(manifest("q", on="n1", **spec)))


def _disk(kind: str, **source: str) -> dict[str, Any]:
    return {"volumes": [{"name": "d", kind: source}]}


BINDING: Final = [
    (CLASS_CAME, "pods that wait for other classes", None, a_class("s"), classless),
    (CLAIM_CAME, "pods with other claims", None, a_claim("c"), nothing),
    (VOLUME_CAME, "pods with other classes", None, a_pv("v", "1Gi", "s"), unbound),
    (CSI_NODE_CAME, "pods without in-tree volumes", None, a_csi_node("n1"), bound),
    (DRIVER_CHANGED, "pods with other provisioners", a_csi_driver("p").tracks_capacity(), a_csi_driver("p"), unbound),
    (CAPACITY_CAME, "pods with other classes", None, a_capacity("o", "s", "1Gi"), unbound),
    (CAPACITY_FREED, "pods with other classes", None, "s", unbound),
    (POD_GONE, "pods with other claims and classes", leaving(**ONE), None, unbound),
]
ZONES: Final = [
    (CLASS_CAME, "pods that wait for other classes", None, a_class("s"), classless),
    (CLAIM_CAME, "pods with other claims", None, a_claim("c"), nothing),
    (VOLUME_CAME, "pods with other volumes", None, a_pv("v"), bound),
]
COUNTS: Final[list[Any]] = [
    *(("VolumeBinding", *row[:4], ONE, another, row[4]) for row in BINDING),
    *(("VolumeZone", *row[:4], ONE, another, row[4]) for row in ZONES),
    ("VolumeRestrictions", POD_GONE, "pods with other claims", leaving(**ONE), None, ONE, another, nothing),
    ("VolumeRestrictions", CLAIM_CAME, "pods with other claims", None, a_claim("c"), ONE, another, nothing),
    ("NodeVolumeLimits", CLAIM_CAME, "pods with other claims", None, a_claim("c"), ONE, another, nothing),
    (
        "NodeVolumeLimits",
        DETACHED,
        "pods with disks of other drivers",
        an_attachment("v", "n1", "ebs.csi.aws.com"),
        None,
        _disk("awsElasticBlockStore", volumeID="vol-1"),
        lambda i: _disk("gcePersistentDisk", pdName=f"d{i}"),
        nothing,
    ),
]
