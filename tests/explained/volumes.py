"""A stand-in for external provisioners that serves the claims of one pod."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tests.explained.draft import HOSTNAME, Json
from tests.parity.api import ScenarioApi

_SELECTED: Final = "volume.kubernetes.io/selected-node"
_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"


async def provision(api: ScenarioApi, names: Collection[str]) -> None:
    """Make a volume for each of these claims whose node is selected and for which the PV controller wants one."""
    there = {each["metadata"]["name"] for each in await api.items("PersistentVolume")}
    for claim in await api.items("PersistentVolumeClaim"):
        marks = claim["metadata"].get("annotations") or {}
        is_wanted = claim["metadata"]["name"] in names and not claim["spec"].get("volumeName")
        volume = f"pvc-{claim['metadata']['uid']}"
        if is_wanted and _SELECTED in marks and _PROVISIONER in marks and volume not in there:
            await api.create(_volume(claim, volume, marks[_SELECTED], marks[_PROVISIONER]))


def _volume(claim: Json, name: str, node: str, driver: str) -> Json:
    metadata, spec = claim["metadata"], claim["spec"]
    reference = {key: metadata[key] for key in ("namespace", "name", "uid")}
    here = {"key": HOSTNAME, "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | reference,
            "storageClassName": spec["storageClassName"],
            "volumeMode": spec["volumeMode"],
            "csi": {"driver": driver, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
