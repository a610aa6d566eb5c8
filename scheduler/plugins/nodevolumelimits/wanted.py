"""What a pod wants attached, looked at strictly: what cannot be told of its volumes is told of the pod (§9.1)."""

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.cache.absent import absent_claim
from scheduler.cache.diskusers import disk_of
from scheduler.cache.volumes import Volumes
from scheduler.core.intree import TranslationError
from scheduler.core.podclaims import ClaimUse, not_owned
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Code, Rejection
from scheduler.core.volumes import CSISource, PersistentVolumeClaim

PLUGIN: Final = "NodeVolumeLimits"
_ONE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


class Wanted(NamedTuple):
    """Good for as long as `Attached.version` stays. Equal ones get equal answers."""

    names: tuple[CSISource, ...]
    """Each once, in the order of the volumes."""
    in_tree: frozenset[CSISource] = frozenset()
    """Those of them that do not count where there is no CSINode."""
    own: frozenset[CSISource] = frozenset()
    """Those that are for one node at a time: nobody is expected to share them before they are attached."""
    problem: Rejection | None = None
    """Wherever the pod would go."""
    problem_with_csi_node: Rejection | None = None
    """What stands before that on nodes with a CSINode."""

    @property
    def drivers(self) -> dict[str, bool]:
        """Each with whether it is also wanted where there is no CSINode."""
        out: dict[str, bool] = {}
        for name in self.names:
            out[name.driver] = out.get(name.driver, False) or name not in self.in_tree
        return out


def wanted_by(pod: PodInfo, volumes: Volumes) -> Wanted:
    """In the order of the volumes; the first that is wrong decides."""
    names: dict[CSISource, bool] = {}
    own: set[CSISource] = set()
    uses = iter(pod.claims)
    translation: Rejection | None = None
    for volume in pod.pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            use = next(uses)
            claim = volumes.claims.get_api(use.key)
            problem = _problem(pod, use, claim, volumes)
            if problem is not None or claim is None:
                return Wanted((), problem=problem, problem_with_csi_node=translation)
            named = volumes.attached.names.of(claim)
            if named.name is not None:
                names[named.name] = named.is_in_tree and names.get(named.name, True)
                if _ONE_NODE.issuperset(claim.spec.access_modes):
                    own.add(named.name)
            continue
        try:
            disk = disk_of(volume, pod.pod.metadata.namespace)
        except TranslationError as error:
            translation = translation or _error(f"converting volume({volume.name}) from inline to csi: {error}")
            continue
        if disk is not None:
            names.setdefault(disk, True)
    in_tree = frozenset(name for name, is_in_tree in names.items() if is_in_tree)
    return Wanted(tuple(names), in_tree, frozenset(own), None, translation)


def _problem(pod: PodInfo, use: ClaimUse, claim: PersistentVolumeClaim | None, volumes: Volumes) -> Rejection | None:
    if not use.name:
        return _error("PersistentVolumeClaim had no name")
    if claim is None:
        why = f"looking up PVC {use.key}: {absent_claim(volumes, use.key)}"
        return Rejection(PLUGIN, Code.UNRESOLVABLE, (why,))
    why = not_owned(pod.pod, claim) if use.is_ephemeral else ""
    return _error(why) if why else None


def _error(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (text,))
