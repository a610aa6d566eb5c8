"""Controllers of a cluster that act on volumes and devices, as far as they matter to a scheduler.

They follow one in-process API server (docs/spec/volumes.md §6.7, docs/spec/dra.md §2), write to it like any client, and
use the injected clock. Each runs in the background (`async with`) or by calls of `step`.
"""

from simulator.controllers.controller import Actor
from simulator.controllers.dra_driver import DRADriver
from simulator.controllers.persistent_volume import PersistentVolumeController
from simulator.controllers.provisioner import ExternalProvisioner
from simulator.controllers.resource_claim import ResourceClaimController
from simulator.controllers.volume_claims import EphemeralVolumeController

__all__ = [
    "Actor",
    "DRADriver",
    "EphemeralVolumeController",
    "ExternalProvisioner",
    "PersistentVolumeController",
    "ResourceClaimController",
]
