"""Rows of the counts of hints for volumes and devices: each waiting pod has another claim and another class.

`(plugin, event, text, old, new, concerned, another, given)`: the columns of `Case` in `test_hints_table_counts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from scheduler.api.podinfo import pod_info
from scheduler.eventhandlers.devices import DEVICES_GIVEN_BACK
from scheduler.eventhandlers.storage import CAPACITY_FREED
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv, an_attachment
from tests.unit.harness import manifest, typed
from tests.unit.hints import hint_rows_volumes as of_volumes
from tests.unit.hints.hint_rows import CAME, LABELLED, POD_GONE, RESIZED_NODE, requesting
from tests.unit.hints.hint_rows_devices import (
    CLAIM_CAME,
    CLAIM_CHANGED,
    CLAIM_GONE,
    CLASS_CAME,
    CLASS_CHANGED,
    GPU,
    SLICE_CAME,
    SLICE_CHANGED,
    SLICE_GONE,
    claimed,
    held,
    uses,
)
from tests.unit.hints.hint_rows_limits import DETACHED, claims
from tests.unit.objects import node

# -- volumes -----------------------------------------------------------------------------------------------------------

VOLUME: dict[str, Any] = claims("c")
ALL: Final = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")


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


TRACKS, CAPACITY = a_csi_driver("p").tracks_capacity(), a_capacity("o", "s", "1Gi")


def leaving(**spec: Any) -> Any:
    """A pod of node n1."""
    return pod_info(typed(manifest("q", on="n1", **spec)))


def _disk(kind: str, **source: str) -> dict[str, Any]:
    return {"volumes": [{"name": "d", kind: source}]}


def of_claims(plugins: Iterable[str], *columns: Any) -> list[Any]:
    """Return a row for each plugin. Each pod has another claim; `columns` are event, text, old, new and given."""
    return [(plugin, *columns[:-1], VOLUME, lambda i: claims(f"c{i}"), columns[-1]) for plugin in plugins]


OF_VOLUMES: Final[list[Any]] = [
    *of_claims(ALL[:2], of_volumes.CLASS_CAME, "pods that wait for other classes", None, a_class("s"), classless),
    *of_claims(ALL, of_volumes.CLAIM_CAME, "pods with other claims", None, a_claim("c"), nothing),
    *of_claims(ALL[:1], of_volumes.VOLUME_CAME, "pods with other classes", None, a_pv("v", "1Gi", "s"), unbound),
    *of_claims(ALL[1:2], of_volumes.VOLUME_CAME, "pods with other volumes", None, a_pv("v"), bound),
    *of_claims(ALL[:1], of_volumes.CSI_NODE_CAME, "pods without in-tree volumes", None, a_csi_node("n1"), bound),
    *of_claims(ALL[:1], of_volumes.DRIVER_CHANGED, "pods with other provisioners", TRACKS, a_csi_driver("p"), unbound),
    *of_claims(ALL[:1], of_volumes.CAPACITY_CAME, "pods with other classes", None, CAPACITY, unbound),
    *of_claims(ALL[:1], CAPACITY_FREED, "pods with other classes", None, "s", unbound),
    *of_claims(ALL[:1], POD_GONE, "pods with other claims and classes", leaving(**VOLUME), None, unbound),
    *of_claims(ALL[2:3], POD_GONE, "pods with other claims", leaving(**VOLUME), None, nothing),
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

# -- devices -----------------------------------------------------------------------------------------------------------


def waiting(i: int | str) -> list[Builder[Any]]:
    """A claim without devices; each has another class."""
    return [claimed(f"c{i}", f"s{i}")]


def served(i: int | str) -> list[Builder[Any]]:
    """A claim that has its device; that of the first has none."""
    return [claimed("c") if i == "" else held(f"c{i}", f"drv/pool/d{i}")]


def missing(i: int | str) -> list[Builder[Any]]:
    """Only the first has a claim that is there."""
    return [claimed("c")] if i == "" else []


D0 = a_device("d0")
SLICE, TAINTED = a_slice("n1", "drv", D0), a_slice("n1", "drv", D0.taint("x"))
PLAIN, LABEL, GROWN = node("n1"), node("n1", labels={"a": "b"}), node("n1", cpu="64")
_AT_EASE: Final = "pods that have their devices"
_NOT_YET: Final = "pods whose claims are not there"


def of_devices(*columns: Any, concerned: dict[str, Any] | None = None) -> Any:
    """Return a row. Each pod has another claim; `columns` are event, text, old, new and given."""
    concerned = uses("c") if concerned is None else concerned
    return ("DynamicResources", *columns[:-1], concerned, lambda i: uses(f"c{i}"), columns[-1])


EXTENDED: dict[str, Any] = {"containers": requesting(**{GPU: "1"})}
CLASS, SERVES = a_device_class("s"), a_device_class("s").extended_resource(GPU)
OF_DEVICES: Final[list[Any]] = [
    of_devices(CAME, _NOT_YET, None, PLAIN, missing),
    of_devices(LABELLED, _NOT_YET, PLAIN, LABEL, missing),
    of_devices(RESIZED_NODE, "pods that only have claims", PLAIN, GROWN, waiting, concerned=EXTENDED),
    of_devices(CLAIM_CAME, "pods with other claims", None, claimed("c"), waiting),
    of_devices(CLAIM_CHANGED, "pods with other claims", claimed("c"), held("c"), waiting),
    of_devices(CLAIM_CHANGED, _AT_EASE, held("x"), claimed("x"), served),
    of_devices(CLAIM_GONE, _AT_EASE, held("x"), None, served),
    of_devices(DEVICES_GIVEN_BACK, _AT_EASE, held("x"), claimed("x"), served),
    of_devices(CLASS_CAME, "pods with other classes", None, CLASS, waiting),
    of_devices(CLASS_CHANGED, _NOT_YET, a_device_class("gpu"), a_device_class("gpu", "true"), missing),
    of_devices(CLASS_CAME, "pods with claims", None, SERVES, waiting, concerned=EXTENDED),
    of_devices(SLICE_CAME, _AT_EASE, None, SLICE, lambda i: [*served(i), SLICE]),
    of_devices(SLICE_CAME, _NOT_YET, None, SLICE, lambda i: [*missing(i), SLICE]),
    of_devices(SLICE_CHANGED, _AT_EASE, TAINTED, SLICE, lambda i: [*served(i), SLICE]),
    of_devices(SLICE_GONE, _AT_EASE, TAINTED, None, lambda i: [*served(i), SLICE]),
]

COUNTS = [*OF_VOLUMES, *OF_DEVICES]
