"""Which kinds are mirrored completely: for the gauge, and its alert."""

from __future__ import annotations

from scheduler.kube.resources import CAPACITY
from tests.unit.kube.test_versions import Rows


def test_a_kind_is_synced_with_its_first_picture_and_as_long_as_it_is_followed() -> None:
    """Kinds that the server has not are left out, and those it must have are not."""
    rows = Rows("Pod")
    assert rows.mirrors.synced() == {"Pod": 0, "Node": 0, "CSIStorageCapacity": 0}
    rows.discovery.answered.set()
    assert rows.mirrors.synced() == {"Pod": 0, "Node": 0}

    rows.mirrors.add(rows.made(CAPACITY))
    pods, capacities = rows.mirrors.reflectors["Pod"], rows.mirrors.reflectors[CAPACITY.name]
    pods.synced.set()
    assert rows.mirrors.synced() == {"Pod": 1, "Node": 0, "CSIStorageCapacity": 0}
    pods.stats.denied = "cannot list pods"
    capacities.synced.set()
    assert rows.mirrors.synced() == {"Pod": 0, "Node": 0, "CSIStorageCapacity": 1}
    capacities.stats.absent = True
    assert rows.mirrors.synced() == {"Pod": 0, "Node": 0}
