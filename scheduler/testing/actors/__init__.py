"""Actors: the controllers of a cluster that act on volumes and devices beside a scheduler, as far as a scheduler can tell.

They follow one in-process API server (docs/spec/volumes.md §6.7, docs/spec/dra.md §2), write to it as anybody would, and
live on the injected clock. Each handles what is due when it is due, alone (`async with`) or by hand (`step`).
"""

from scheduler.testing.actors.acting import Actor
from scheduler.testing.actors.attaching import AttachDetachController
from scheduler.testing.actors.claimcontroller import ResourceClaimController
from scheduler.testing.actors.dradriver import DRADriver, Preparation
from scheduler.testing.actors.ephemeral import EphemeralVolumeController
from scheduler.testing.actors.protection import ProtectionController
from scheduler.testing.actors.provisioner import Call, ExternalProvisioner
from scheduler.testing.actors.pvcontroller import PersistentVolumeController

__all__ = [
    "Actor",
    "AttachDetachController",
    "Call",
    "DRADriver",
    "EphemeralVolumeController",
    "ExternalProvisioner",
    "PersistentVolumeController",
    "Preparation",
    "ProtectionController",
    "ResourceClaimController",
]
