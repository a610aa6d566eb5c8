"""Ways to get preemption and volumes wrong: the suite must notice each of them.

Most of those of volumes leave one gate of docs/spec/volumes.md §3.3.2 open. Caches keep what the gates said of every PV; so such a
mutant has to be there before the daemon is.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.nodes.node_groups import where_affinity
from scheduler.cache.storage.class_volumes import ClassVolumes, VolumeKind, VolumeRequirements
from scheduler.core.cooperative import answered
from scheduler.core.nodeset import EMPTY
from scheduler.plugins.defaultpreemption import VictimRule, by_importance

_PLUGIN: Final = "scheduler.plugins.defaultpreemption"


def _least_important_first(pods: Iterable[PodInfo], rule: VictimRule) -> list[PodInfo]:
    return by_importance(pods, rule)[::-1]


_OF_PREEMPTION: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "budgets are ignored": ("scheduler.cache.disruptions.Disruptions.violating", lambda *_, **__: answered(set())),
    "start times are ignored": (f"{_PLUGIN}.started_at", lambda _: 0.0),
    "the least important are spared first": (f"{_PLUGIN}.by_importance", _least_important_first),
    "nominated pods are ignored": ("scheduler.framework.dry_run.NominatedPods.of", lambda *_: []),
}
MUTANTS: Final = tuple(_OF_PREEMPTION)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """As long as the block lasts; what dry runs remember is neither used nor spoilt."""
    place, instead = _OF_PREEMPTION[name]
    with ExitStack() as until_then:
        until_then.enter_context(patch(f"{_PLUGIN}.Evaluator.of", lambda *_: None))
        until_then.enter_context(patch(place, instead))
        yield


# -- volumes -----------------------------------------------------------------------------------------------------------


_PVS: Final = "scheduler.cache.storage.persistent_volumes"
_OF_CLASSES: Final = "scheduler.cache.storage.class_volumes"
_SHELVES: Final = "scheduler.cache.storage.class_volumes.ClassVolumes"
_FINDING: Final = "scheduler.plugins.volumebinding.find"
_GATES: Final = "scheduler.plugins.volumebinding.find"
_VOLUME: Final = "scheduler.api.storage_v1.PersistentVolume"
_CLAIM: Final = "scheduler.api.storage_v1.PersistentVolumeClaim"
_AVAILABLE: Final = "Available"

_smallest, _first = ClassVolumes.smallest, ClassVolumes._first


def _with_those_of_the_pod(
    rows: ClassVolumes, slot: int, claim: PersistentVolumeClaim, wish: VolumeRequirements, **_: object
) -> Any:
    return _smallest(rows, slot, claim, wish, excluded=())


def _largest(
    rows: ClassVolumes, slot: int, claim: PersistentVolumeClaim, wish: VolumeRequirements, *, excluded: Container[str]
) -> str | None:
    seen = [row.name for row in rows.rows if row is not None and row.name in excluded]
    largest = None
    while (name := _smallest(rows, slot, claim, wish, excluded=seen)) is not None:
        seen.append(name)
        largest = name
    return largest


def _of_any_size(rows: ClassVolumes, shelf: list[tuple[int, str, int]], _: int, **rest: Any) -> Any:
    return _first(rows, shelf, 0, **rest)


def _free(
    *, claimed: bool = False, of_any_phase: bool = False, leaving: bool = False
) -> Callable[[PersistentVolume], bool]:
    def is_free(volume: PersistentVolume) -> bool:
        return (
            (claimed or volume.spec.claim_ref is None)
            and (of_any_phase or volume.status.phase == _AVAILABLE)
            and (leaving or volume.metadata.deletion_timestamp is None)
        )

    return is_free


def _by_name(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    return is_for(volume, claim) or (reference is not None and reference.key == claim.key)


def _admits(*ignored: str) -> Callable[[VolumeRequirements, VolumeKind], bool]:
    def admits(wish: VolumeRequirements, kind: VolumeKind) -> bool:
        return (
            ("volume_mode" in ignored or wish.volume_mode == kind.volume_mode)
            and ("attributes_class" in ignored or wish.attributes_class == kind.attributes_class)
            and ("access_modes" in ignored or wish.access_modes <= kind.access_modes)
        )

    return admits


_Patches = Mapping[str, object]
_MUTATIONS: Final[Mapping[str, _Patches]] = {
    "gate 1: a PV is given to two claims": {f"{_SHELVES}.smallest": _with_those_of_the_pod},
    "gate 2: PVs of other claims are free": {f"{_PVS}.is_free": _free(claimed=True)},
    "gate 2: a claimRef of another uid will do": {f"{_GATES}.is_for": _by_name},
    "gate 3: PVs may be too small": {f"{_SHELVES}._first": _of_any_size, f"{_SHELVES}.threshold": lambda *_: 0},
    "gate 4: volume modes are ignored": {f"{_OF_CLASSES}.VolumeRequirements.admits": _admits("volume_mode")},
    "gate 5: attributes classes are ignored": {f"{_OF_CLASSES}.VolumeRequirements.admits": _admits("attributes_class")},
    "gate 6: PVs may be leaving": {f"{_PVS}.is_free": _free(leaving=True)},
    "gate 8: prebound PVs come with the rest": {f"{_FINDING}.VolumeFinder._meant": lambda *_: None},
    "gate 9: phases are ignored": {f"{_PVS}.is_free": _free(of_any_phase=True)},
    "gate 10: selectors are ignored": {f"{_SHELVES}.is_selected": lambda *_: True},
    "gate 11: classes of PVs are ignored": {f"{_VOLUME}.storage_class": property(lambda _: "w")},
    "gate 12: affinity is ignored": {f"{_PVS}.where_affinity": lambda _: where_affinity(None)},
    "gate 13: access modes are ignored": {f"{_OF_CLASSES}.VolumeRequirements.admits": _admits("access_modes")},
    "gate 14: the largest PV is taken": {f"{_SHELVES}.smallest": _largest},
    "selected nodes are ignored": {f"{_CLAIM}.selected_node": property(lambda _: None)},
    "no driver reports its capacity": {"scheduler.api.storage_v1.CSIDriver.tracks_capacity": property(lambda _: False)},
    "nothing was migrated": {"scheduler.cache.storage.reachability.MIGRATABLE": frozenset()},
    "attachments are not counted": {"scheduler.cache.storage.attach_limits.AttachedVolumes._place_of": lambda *_: None},
    "old labels of PVs are not found under new ones": {
        "scheduler.plugins.volumezone.VolumeZone._within": lambda zones, one: zones._any(one.key, one.values)
    },
    "claims for one pod are shared": {
        "scheduler.plugins.volumerestrictions.VolumeRestrictions._is_taken": lambda *_: False
    },
    "disks are shared": {"scheduler.cache.nodes.volume_users.DiskConflicts.of": lambda *_: EMPTY},
}
VOLUME_MUTANTS: Final = tuple(_MUTATIONS)


@contextmanager
def mutated_volumes(name: str) -> Iterator[None]:
    """As long as the block lasts."""
    with ExitStack() as until_then:
        for place, instead in _MUTATIONS[name].items():
            until_then.enter_context(patch(place, instead))
        yield
