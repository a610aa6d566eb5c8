"""What external-provisioner checks before it calls CreateVolume: the claim, its source, its class, and the topology.

The rules, their order and their texts are those of external-provisioner 6.4. Two checks are left out, because the server
has no such objects: those of secrets and of snapshots.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import FILESYSTEM, PersistentVolumeClaim
from simulator.controllers.controller import Object

Topology: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a label and its value, in the order of the labels."""
Find: TypeAlias = Callable[[str, str, str], Object | None]
"""Return the object of a resource with this name and namespace."""

_RESERVED: Final = "csi.storage.k8s.io/"
_FILE_SYSTEM: Final = f"{_RESERVED}fstype"
_SECRETS: Final = tuple(
    f"{_RESERVED}{prefix}secret-{part}"
    for prefix in (
        "",
        *("provisioner-", "controller-publish-", "node-stage-", "node-publish-"),
        *("controller-expand-", "node-expand-", "controller-modify-"),
    )
    for part in ("name", "namespace")
)
_KNOWN_PARAMETERS: Final = frozenset({_FILE_SYSTEM, *_SECRETS})
_SNAPSHOTS: Final = "snapshot.storage.k8s.io"
_INVALID_SOURCE: Final = "claim in dataSource not bound or invalid"


class NotRequestedError(Exception):
    """No volume is requested. `gives_back`: the claim loses its selected node."""

    def __init__(self, message: str, *, gives_back: bool = False) -> None:
        super().__init__(message)
        self.gives_back = gives_back


class PopulatedError(Exception):
    """The claim has a source that a volume populator handles."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a volume is created."""

    topology: Topology
    """The labels and values that the nodes of the volume have; empty where every node reaches it."""
    labels: Mapping[str, str]
    """All labels of the selected node, or those of `topology` if no node is selected."""


def check(claim: Object, storage_class: Object, driver: str, find: Find) -> None:
    """Check the claim, its source and its class. Raises NotRequestedError and PopulatedError.

    The rules are those of prepareProvision in external-provisioner's pkg/controller/controller.go.
    """
    spec = claim["spec"]
    if not spec.get("dataSource") and (spec.get("dataSourceRef") or {}).get("namespace"):
        why = "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled"
        raise NotRequestedError(why)
    source: Object | None = spec.get("dataSource") or spec.get("dataSourceRef")
    if source is not None:
        _check_kind(source)
    if spec.get("selector") is not None:
        raise NotRequestedError("claim Selector is not supported")
    parameters: dict[str, str] = storage_class.get("parameters") or {}
    if sum(name.lower() == "fstype" or name == _FILE_SYSTEM for name in parameters) > 1:
        why = f'fstype specified in parameters with both "fstype" and "{_FILE_SYSTEM}" keys'
        raise NotRequestedError(why)
    if source is not None and source["kind"] == "PersistentVolumeClaim":
        try:
            _check_clone(claim, driver, source["name"], find)
        except NotRequestedError as why:
            text = f"error getting handle for DataSource Type {source['kind']} by Name {source['name']}: {why}"
            raise NotRequestedError(text) from why


def check_parameters(storage_class: Object) -> None:
    """Check the parameters that are reserved for sidecars. It follows the check of the topology."""
    for name in storage_class.get("parameters") or {}:
        if name.startswith(_RESERVED) and name not in _KNOWN_PARAMETERS:
            why = f'found unknown parameter key "{name}" with reserved namespace {_RESERVED}'
            raise NotRequestedError(f"failed to strip CSI Parameters of prefixed keys: {why}")


def driver_parameters(storage_class: Object) -> frozenset[tuple[str, str]]:
    """Return the parameters of a class that may choose storage: those for the driver, without the file system."""
    given: dict[str, str] = storage_class.get("parameters") or {}
    return frozenset(
        (name, value) for name, value in given.items() if not name.startswith(_RESERVED) and name.lower() != "fstype"
    )


def _check_kind(source: Object) -> None:
    kind, group = source["kind"], source.get("apiGroup") or ""
    if kind == "VolumeSnapshot" and group != _SNAPSHOTS:
        why = f"the PVC source does not belong to the right APIGroup. Expected {_SNAPSHOTS}, Got {group}"
        raise NotRequestedError(why)
    if kind not in {"VolumeSnapshot", "PersistentVolumeClaim"}:
        why = (
            f"data source ({kind}) is not handled by the provisioner, assuming an external populator will provision it"
        )
        raise PopulatedError(why)


def _check_clone(claim: Object, driver: str, name: str, find: Find) -> None:
    """Check the claim that is to be cloned.

    The rules are those of getPVCSource in external-provisioner's pkg/controller/controller.go.
    """
    namespace = claim["metadata"]["namespace"]
    source = find("persistentvolumeclaims", name, namespace)
    if source is None:
        missing = f'persistentvolumeclaim "{name}" not found'
        raise NotRequestedError(f'error getting PVC {name} (namespace "{namespace}") from api server: {missing}')
    phase = source["status"].get("phase", "")
    if phase != "Bound":
        raise NotRequestedError(f"the PVC DataSource {name} must have a status of Bound.  Got {phase}")
    if source["metadata"].get("deletionTimestamp"):
        raise NotRequestedError(f"the PVC DataSource {name} is currently being deleted")
    size, wanted = (_request(each) for each in (source, claim))
    if wanted < size:
        why = "error, new PVC request must be greater than or equal in size to the specified PVC data source"
        raise NotRequestedError(f"{why}, requested {wanted} but source is {size}")
    volume = find("persistentvolumes", source["spec"].get("volumeName", ""), "")
    if volume is None or not _is_of(volume, source, driver):
        raise NotRequestedError(_INVALID_SOURCE)
    modes = [each["spec"].get("volumeMode") or FILESYSTEM for each in (volume, claim)]
    if modes[0] != modes[1]:
        why = "the source PVC and destination PVCs must have the same volume mode for cloning."
        raise NotRequestedError(f"{why}  Source is {modes[0]}, but new PVC requested {modes[1]}")


def _is_of(volume: Object, claim: Object, driver: str) -> bool:
    """Return whether the volume is bound to the claim, and is from the driver."""
    reference = volume["spec"].get("claimRef") or {}
    is_bound = volume["status"].get("phase") == "Bound" and reference.get("uid") == claim["metadata"]["uid"]
    return is_bound and (volume["spec"].get("csi") or {}).get("driver") == driver


def _request(claim: Object) -> int:
    size = from_manifest(PersistentVolumeClaim, claim).request
    return 0 if size is None else size.value


class Topologies:
    """The topology of the node that is selected for a claim.

    The topology keys and the labels that were read first are kept for a claim until `forget`: a claim that gets another
    node in the meantime still gets the topology of the first one.

    The rules are those of GenerateAccessibilityRequirements in external-provisioner's pkg/controller/topology.go.
    """

    def __init__(self, driver: str, find: Find) -> None:
        self._driver = driver
        self._find = find
        self._keys: dict[str, tuple[str, ...]] = {}
        self._labels: dict[str, dict[str, str]] = {}

    def forget(self, uid: str) -> None:
        """Drop what is kept for a claim: a call for it has ended."""
        self._keys.pop(uid, None)
        self._labels.pop(uid, None)

    def place(self, uid: str, node: str, allowed_topologies: Iterable[Object]) -> Place:
        """Return the place of a volume for the claim on the node. Raises NotRequestedError."""
        keys = self._keys_for(uid, node)
        labels = self._labels_for(uid, node, keys)
        topology = tuple(sorted((key, labels[key]) for key in keys))
        allowed = sorted(set(_flat(allowed_topologies)))
        if allowed and not any(set(term) <= set(topology) for term in allowed):
            shown = " ".join(map(_in_go, allowed))
            raise _no_requirements(
                f'topology {_in_go(topology)} from selected node "{node}" is not in requisite: [{shown}]'
            )
        return Place(topology, labels)

    def _keys_for(self, uid: str, node: str) -> tuple[str, ...]:
        if uid not in self._keys:
            csi_node = self._find("csinodes", node, "")
            if csi_node is None:
                why = f'failed to get selected CSINode {node}: csinode.storage.k8s.io "{node}" not found'
                raise NotRequestedError(why, gives_back=True)
            keys = keys_of(csi_node, self._driver)
            if not keys:
                raise _no_requirements(f"no topology key found for node {node}")
            self._keys[uid] = keys
        return self._keys[uid]

    def _labels_for(self, uid: str, node: str, keys: tuple[str, ...]) -> dict[str, str]:
        kept = self._labels.get(uid, {})
        if kept and kept.keys() >= set(keys):
            return kept
        found = self._find("nodes", node, "")
        labels: dict[str, str] = kept if found is None else found["metadata"].get("labels") or {}
        if found is not None and labels:
            self._labels[uid] = labels
        if found is None or not labels.keys() >= set(keys):
            shown = " ".join(f"{key}:{value}" for key, value in sorted(labels.items()))
            text = f"topology labels from selected node map[{shown}] does not match"
            raise _no_requirements(f"{text} topology keys from CSINode [{' '.join(keys)}]")
        return labels


def keys_of(csi_node: Object, driver: str) -> tuple[str, ...]:
    """Return the topology keys of the driver on a node; empty where the node does not list the driver."""
    drivers = csi_node["spec"].get("drivers") or ()
    return next((tuple(each.get("topologyKeys") or ()) for each in drivers if each["name"] == driver), ())


def _no_requirements(why: str) -> NotRequestedError:
    return NotRequestedError(f"error generating accessibility requirements: {why}")


def _flat(allowed: Iterable[Object]) -> Iterable[Topology]:
    """Yield the allowed topologies, each with one value per label."""
    for term in allowed:
        expressions = term.get("matchLabelExpressions") or ()
        pairs = [[(each["key"], value) for value in each.get("values") or ()] for each in expressions]
        yield from (tuple(sorted(chosen)) for chosen in itertools.product(*pairs) if chosen)


def _in_go(topology: Topology) -> str:
    """Return a topology as Go prints it."""
    return f"[{' '.join(f'{{{key} {value}}}' for key, value in topology)}]"
