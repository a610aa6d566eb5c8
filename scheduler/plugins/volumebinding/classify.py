"""A pod's claims by what is still to be done for them (docs/spec/volumes.md §2)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from scheduler.cache.absent import absent_claim
from scheduler.cache.shelves import wish_of
from scheduler.cache.volumes import CLAIM, VOLUME, Volumes
from scheduler.core.podclaims import ClaimUse, not_owned
from scheduler.core.podinfo import PodInfo
from scheduler.core.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.core.volumes import PersistentVolumeClaim
from scheduler.plugins.volumebinding.binder import PodVolumeClaims, VolumeError

_LOST = "Lost"


def sort_claims(volumes: Volumes, pod: PodInfo, *, under_way: Container[str]) -> PodVolumeClaims:
    """Each claim once. `under_way` are those that a binding of ours is working on. Raises VolumeError."""
    for use in pod.claims:
        unusable = _unusable(volumes, pod, use)
        if unusable:
            return PodVolumeClaims(unusable=unusable)
    groups: dict[str, list[PersistentVolumeClaim]] = {"bound": [], "delayed": [], "immediate": [], "followed": []}
    for use in _each_once(pod.claims):
        claim = volumes.claims.get(use.key)
        if claim is None:
            raise VolumeError(f'error getting PVC "{use.key}": {volumes.claims.absence(use.key)}')
        if use.is_ephemeral and (foreign := not_owned(pod.pod, claim)):
            raise VolumeError(foreign)
        groups[_group(volumes, claim, under_way)].append(claim)
    unreadable = _unreadable(volumes, groups)
    if unreadable:
        return PodVolumeClaims(unusable=unreadable)
    delayed = tuple(groups["delayed"])
    return PodVolumeClaims(
        tuple(groups["bound"]),
        delayed,
        tuple(groups["immediate"]),
        tuple(groups["followed"]),
        is_entangled=len(delayed) > 1 and _is_entangled(delayed),
    )


def _unusable(volumes: Volumes, pod: PodInfo, use: ClaimUse) -> str:
    """§2.2, on what the API server has."""
    claim = volumes.claims.get_api(use.key)
    if claim is None:
        if use.is_ephemeral and (CLAIM, use.key) not in volumes.broken:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return absent_claim(volumes, use.key)
    if claim.status.phase == _LOST:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    return not_owned(pod.pod, claim) if use.is_ephemeral else ""


def _unreadable(volumes: Volumes, groups: Mapping[str, Sequence[PersistentVolumeClaim]]) -> str:
    """What stands between the claims and nodes because nobody can read it: with it the claims may well be fine."""
    if not volumes.broken:
        return ""
    needed = [(VOLUME, claim.spec.volume_name) for claim in (*groups["bound"], *groups["followed"])]
    needed += [("StorageClass", claim.storage_class) for claim in groups["immediate"]]
    found = next((broken for need in needed if (broken := volumes.broken.get(need)) is not None), None)
    return f'{found.kind.lower()} "{found.key}" cannot be read: {found.why}' if found is not None else ""


def _each_once(uses: tuple[ClaimUse, ...]) -> tuple[ClaimUse, ...]:
    """A claim that two volumes name is one claim (B-16)."""
    return tuple({use.key: use for use in reversed(uses)}.values())[::-1]


def _group(volumes: Volumes, claim: PersistentVolumeClaim, under_way: Container[str]) -> str:
    if claim.is_fully_bound:
        return "bound"
    if not is_delayed(volumes, claim):
        return "immediate"
    if not claim.spec.volume_name:
        return "delayed"
    return "followed" if claim.key in under_way else "immediate"


def is_delayed(volumes: Volumes, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim's class waits for a pod. A class that is not there does not. Raises VolumeError (§2.3)."""
    name = claim.storage_class
    known = volumes.classes.get(name) if name else None
    if known is None:
        return False
    mode = known.obj.volume_binding_mode
    if mode is None:
        raise VolumeError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return mode == WAIT_FOR_FIRST_CONSUMER


def _is_entangled(delayed: tuple[PersistentVolumeClaim, ...]) -> bool:
    wishes: dict[str, object] = {}
    return any(wishes.setdefault(claim.storage_class, wish_of(claim)) != wish_of(claim) for claim in delayed)
