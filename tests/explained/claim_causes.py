"""Causes in volumes and their claims. Each function completes the base, yields, and plants its cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.builders.core import pod
from tests.explained.draft import HOSTNAME, ZONE, Draft
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_pv

_DRIVER: Final = "disk.example.com"


def _late(c: Draft, *, tracks: bool = False) -> None:
    """Add a class whose volumes are provisioned where the pod goes."""
    c.add(a_class("late", _DRIVER), a_csi_driver(_DRIVER).tracks_capacity(tracks))
    c.driver_on(c.names, _DRIVER)


def missing_claim(c: Draft) -> Iterator[None]:
    """One or two claims of the pod do not exist."""
    _late(c)
    names = ("data", "logs")[: c.dice.randint(1, 2)]
    for name in names:
        c.add(a_claim(name, "2Gi", "late"))
        c.pod = c.pod.pvc(name)
    yield
    for name in c.dice.sample(names, c.dice.randint(1, len(names))):
        del c.more["PersistentVolumeClaim", name]


def no_capacity(c: Draft) -> Iterator[None]:
    """The class has too little capacity on each node."""
    size = _capacities(c)
    yield
    for at in c.names:
        c.patch("CSIStorageCapacity", f"on-{at}", {"capacity": f"{c.dice.randrange(1024, size * 1024)}Mi"})


def capacity_in_flight(c: Draft) -> Iterator[None]:
    """The capacity of each node is taken by claims whose volumes are being made."""
    size = _capacities(c)
    yield
    for number, at in enumerate(c.names):
        taken = 21 - size + c.dice.randrange(0, size - 1)
        c.add(a_claim(f"flying-{number}", f"{taken}Gi", "late").selected(at))
        c.pods[f"waits-{number}"] = pod(f"waits-{number}").scheduler("other").pvc(f"flying-{number}")


def _capacities(c: Draft) -> int:
    """Give each node a capacity of 20Gi, and the pod a claim; return its size in GiB."""
    _late(c, tracks=True)
    size = c.dice.randint(5, 12)
    for at in c.names:
        c.add(a_capacity(f"on-{at}", "late", "20Gi").where(HOSTNAME, at))
    c.add(a_claim("data", f"{size}Gi", "late"))
    c.pod = c.pod.pvc("data")
    if c.dice.random() < 0.3:
        c.add(a_class("other", "other.example.com"))
    return size


def no_matching_volume(c: Draft) -> Iterator[None]:
    """The free volumes of the class are too small, or are another claim's."""
    c.add(a_class("static"), a_claim("data", "6Gi", "static"))
    for at in c.names:
        c.add(a_pv(f"pv-{at}", "10Gi", "static").on(at))
    c.pod = c.pod.pvc("data")
    if c.dice.random() < 0.3:
        _late(c)
    yield
    for number, at in enumerate(c.names):
        if number and c.dice.random() < 0.4:
            c.add(a_pv(f"pv-{at}", "10Gi", "static").on(at).claimed_by(f"other-{number}"))
        else:
            c.add(a_pv(f"pv-{at}", f"{c.dice.randint(1, 5)}Gi", "static").on(at))


def volume_fields(c: Draft) -> Iterator[None]:
    """The free volumes of the class lack the claim's access mode, or the labels of its selector."""
    claim = a_claim("data", "6Gi", "static")
    c.add(a_class("static"), claim)
    for at in c.names:
        size = c.dice.choice(("5Gi", "10Gi")) if at != c.names[0] else "10Gi"
        c.add(a_pv(f"pv-{at}", size, "static").on(at).label("speed", c.dice.choice(("slow", "medium"))))
    c.pod = c.pod.pvc("data")
    yield
    if c.dice.random() < 0.5:
        c.add(claim.modes("ReadWriteMany"))
    else:
        c.add(claim.matching({"speed": "fast"}))


def two_claims_for_one_volume(c: Draft) -> Iterator[None]:
    """Each node has one free volume of the class, and the pod has two claims."""
    c.add(a_class("static"), a_claim("data", "6Gi", "static"), a_claim("logs", "2Gi", "static"))
    for at in c.names:
        c.add(a_pv(f"pv-{at}", "10Gi", "static").on(at), a_pv(f"small-{at}", "3Gi", "static").on(at))
    c.pod = c.pod.pvc("data").pvc("logs")
    _late(c)
    yield
    for at in c.names:
        del c.more["PersistentVolume", f"small-{at}"]


def local_volume_elsewhere(c: Draft) -> Iterator[None]:
    """The pod's local volume is on a node that does not take the pod."""
    home = c.any_node()
    c.add(a_class("static"), a_claim("data", "5Gi", "static").bound_to("pv-data"))
    c.add(a_pv("pv-data", "5Gi", "static").on(home).claimed_by("data").phase("Bound"))
    c.pod = c.pod.pvc("data")
    yield
    which = c.dice.choice(("cpu", "taint", "cordon", "pods"))
    if which == "cpu":
        c.fill(home, "cpu", c.dice.randrange(0, c.cpu, 50), c.dice.randint(1, 3))
    elif which == "pods":
        c.put(home, cpu=50)
        c.nodes[home] = c.nodes[home].pods(20 - c.left[home].pods)
    else:
        c.nodes[home] = c.nodes[home].taint("team") if which == "taint" else c.nodes[home].unschedulable()


def volume_in_another_zone(c: Draft) -> Iterator[None]:
    """All nodes of the volume's zone are cordoned or tainted."""
    zone = c.zones[c.any_node()]
    c.add(a_class("late", _DRIVER), a_claim("data", "5Gi", "late").bound_to("pv-data"))
    c.add(a_pv("pv-data", "5Gi", "late").label(ZONE, zone).claimed_by("data").phase("Bound"))
    c.pod = c.pod.pvc("data")
    yield
    for at in c.names:
        if c.zones[at] == zone:
            c.nodes[at] = c.nodes[at].taint("team") if c.dice.random() < 0.5 else c.nodes[at].unschedulable()


def attach_limit(c: Draft) -> Iterator[None]:
    """All nodes have as many volumes of the driver as they can attach."""
    _late(c)
    _attachable(c, "data")
    c.pod = c.pod.pvc("data")
    yield
    limit = c.dice.randint(1, 2)
    c.driver_on(c.names, _DRIVER, limit)
    for at in c.names:
        for number in range(limit):
            _attachable(c, f"on-{at}-{number}")
            c.put(at, cpu=50, like=pod("x").label("app", "db").pvc(f"on-{at}-{number}"))


def _attachable(c: Draft, name: str) -> None:
    c.add(a_claim(name, "1Gi", "late").bound_to(f"pv-{name}"))
    c.add(a_pv(f"pv-{name}", "1Gi", "late").csi(_DRIVER).claimed_by(name).phase("Bound"))


def rwop_holder(c: Draft) -> Iterator[None]:
    """Another pod uses the claim, whose access mode is ReadWriteOncePod."""
    once = ("ReadWriteOncePod",)
    c.add(a_class("late", _DRIVER), a_claim("data", "1Gi", "late").modes(*once).bound_to("pv-data"))
    c.add(a_pv("pv-data", "1Gi", "late").modes(*once).csi(_DRIVER).claimed_by("data").phase("Bound"))
    c.pod = c.pod.pvc("data")
    yield
    c.put(c.any_node(), cpu=50, like=pod("x").label("app", "db").pvc("data"))


def disk_in_use(c: Draft) -> Iterator[None]:
    """All nodes have a pod that mounts the pod's disk."""
    disk = {"gcePersistentDisk": {"pdName": "disk", "fsType": "ext4"}}
    c.pod = c.pod.volume("disk", **disk)
    yield
    for at in c.names:
        c.put(at, cpu=50, like=pod("x").label("app", "db").volume("disk", **disk))
