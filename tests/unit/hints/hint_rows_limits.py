"""Rows of the table of hints about how many volumes a node attaches (docs/spec/volumes.md §7.2)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.cluster_events import Resource
from simulator.builders.core import Builder
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv, an_attachment
from tests.unit.hints.hint_rows import POD_GONE, Thing, gone, leaves, news, node, pod, shown_as, wakes, withdrawn

PLUGIN: Final = "NodeVolumeLimits"
CSI_NODE_CAME, CSI_NODE_CHANGED, CSI_NODE_GONE = news(Resource.CSI_NODE)
CLAIM_CAME, CLAIM_CHANGED, _ = news(Resource.PERSISTENT_VOLUME_CLAIM)
_, _, DETACHED = news(Resource.VOLUME_ATTACHMENT)
DRIVER: Final = "ebs.csi.aws.com"


def stored(*builders: Builder[Any]) -> tuple[Thing, ...]:
    """They come or change."""
    raws = [builder.obj() for builder in builders]
    return tuple(shown_as(raw["kind"], raw["metadata"]["name"], raw) for raw in raws)


def removed(builder: Builder[Any]) -> Thing:
    raw = builder.obj()
    return withdrawn(raw["kind"], raw["metadata"]["name"])


def claims(*names: str) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}


VOLUMES = [builder for name in "abc" for builder in (a_pv(name).csi(DRIVER), a_claim(name).bound_to(name))]
OTHERS = a_claim("b").bound_to("b").label("x", "y")
ATTACHED = an_attachment("b", "n1", DRIVER)
ONE = a_csi_node("n1").driver(DRIVER, 1)
TAKEN = (node("n1"), *stored(*VOLUMES, ONE), pod("q", on="n1", **claims("b")), pod("r", on="n1"))
HELD = (node("n1"), *stored(*VOLUMES, ONE, ATTACHED))
WANTS: dict[str, Any] = claims("a")
IN_TREE: dict[str, Any] = {"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]}
FULL_OF_DISKS = (node("n1"), *stored(*VOLUMES, a_csi_node("n1").driver("pd.csi.storage.gke.io", 0), ATTACHED))

ROWS: Final[list[Any]] = [
    wakes(PLUGIN, CSI_NODE_CAME, "drivers turn up on another node", TAKEN, WANTS, stored(a_csi_node("n2"))),
    wakes(PLUGIN, CSI_NODE_CHANGED, "a limit grows", TAKEN, WANTS, stored(a_csi_node("n1").driver(DRIVER, 2))),
    wakes(PLUGIN, CSI_NODE_CHANGED, "a limit is lifted", TAKEN, WANTS, stored(a_csi_node("n1").driver(DRIVER))),
    leaves(PLUGIN, CSI_NODE_CHANGED, "a limit shrinks", TAKEN, WANTS, stored(a_csi_node("n1").driver(DRIVER, 0))),
    wakes(PLUGIN, CSI_NODE_GONE, "the limits of a node are gone", TAKEN, WANTS, removed(ONE)),
    leaves(PLUGIN, CSI_NODE_GONE, "a CSINode without limits goes", (*TAKEN, *stored(a_csi_node("n2"))), WANTS,
        removed(a_csi_node("n2"))),
    wakes(PLUGIN, POD_GONE, "a pod with a claim goes", TAKEN, WANTS, gone("q")),
    leaves(PLUGIN, POD_GONE, "a pod without volumes goes", TAKEN, WANTS, gone("r")),
    wakes(PLUGIN, CLAIM_CAME, "its claim comes (VolumeBinding says first that it is missing)",
        (), claims("late"), stored(a_claim("late")), by_hand=True),
    leaves(PLUGIN, CLAIM_CAME, "another claim comes", TAKEN, WANTS, stored(a_claim("late"))),
    wakes(PLUGIN, CLAIM_CHANGED, "its claim turns out to be a volume that does not count",
        (*TAKEN, *stored(a_class("ebs", DRIVER), a_claim("d", "1Gi", "ebs"), a_pv("d", "1Gi", "ebs").phase("Bound"))),
        claims("d"), stored(a_claim("d", "1Gi", "ebs").bound_to("d"))),
    leaves(PLUGIN, CLAIM_CHANGED, "another claim changes", TAKEN, WANTS, stored(OTHERS)),
    wakes(PLUGIN, DETACHED, "a volume is detached", HELD, WANTS, removed(ATTACHED)),
    leaves(PLUGIN, DETACHED, "a volume of another driver is detached, and it has none but its own disk",
        FULL_OF_DISKS, IN_TREE, removed(ATTACHED)),
]  # fmt: skip
