"""Actors: the controllers of a cluster that act on volumes and devices beside a scheduler, as far as a scheduler can tell.

They follow one in-process API server (docs/spec/volumes.md §6.7, docs/spec/dra.md §2), write to it as anybody would, and
live on the injected clock. Each handles what is due when it is due, alone (`async with`) or by hand (`step`).
"""

from simulator.controllers.attach_detach import AttachDetachController
from simulator.controllers.controller import Actor
from simulator.controllers.dra_driver import DRADriver, Preparation
from simulator.controllers.persistent_volume import PersistentVolumeController
from simulator.controllers.provisioner import ExternalProvisioner, ProvisionCall
from simulator.controllers.resource_claim import ResourceClaimController
from simulator.controllers.volume_claims import EphemeralVolumeController, ProtectionController

__all__ = [
    "Actor",
    "AttachDetachController",
    "DRADriver",
    "EphemeralVolumeController",
    "ExternalProvisioner",
    "PersistentVolumeController",
    "Preparation",
    "ProtectionController",
    "ProvisionCall",
    "ResourceClaimController",
]
