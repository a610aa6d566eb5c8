"""Controllers that die at a bad moment, and come back."""

from __future__ import annotations

import contextlib
from typing import Any

from scheduler.api.storage_v1 import BIND_COMPLETED, PersistentVolume
from simulator.apiserver import ApiServer
from simulator.controllers import PersistentVolumeController, ResourceClaimController
from simulator.controllers.controller import Actor, Key, Object, annotations_of
from simulator.controllers.persistent_volume import claim_ref


class Mortal(Actor):
    """Mixin for an actor that a test kills."""

    is_dead = False

    def die(self) -> None:
        """Forget everything that was under way, and do nothing until `revive`. What is stored stays stored."""
        self.is_dead = True
        self._due.clear()
        self._when.clear()

    def revive(self) -> None:
        """Come back, and look at everything."""
        self.is_dead = False
        self.look_again()

    def _note(self, key: Key, delay_s: float = 0) -> None:
        if not self.is_dead:
            super()._note(key, delay_s)


class MortalClaimController(Mortal, ResourceClaimController):
    """`loses`: how many times it is to die between making a pod's claims and writing their names into the pod's status.

    Only `look_again`, or another change, brings it back to that pod, where it finds them again.
    """

    def __init__(self, server: ApiServer, *, loses: int = 0, **options: Any) -> None:
        self.loses = loses
        self.lost = 0
        """How often it has died so."""
        super().__init__(server, **options)

    def _sync_pod(self, pod: Object) -> None:
        with contextlib.suppress(_DiedError):
            super()._sync_pod(pod)

    def _with_names(self, pod: Object, made: list[Object]) -> Object:
        if self.loses > 0:
            self.loses -= 1
            self.lost += 1
            raise _DiedError
        return super()._with_names(pod, made)


class _DiedError(Exception):
    """The controller died before it wrote the names."""


class MortalVolumeController(PersistentVolumeController):
    """`loses` is the number of bindings that the controller loses, as if it ended before the first write.

    `look_again` or another change repeats them.
    """

    loses = 0

    def _bind(self, volume: PersistentVolume, claim: Object) -> None:
        obj = self._server.get("persistentvolumes", volume.key)
        is_done = claim_ref(obj, claim) is None and BIND_COMPLETED in annotations_of(claim)
        if self.loses > 0 and not is_done:
            self.loses -= 1
        else:
            super()._bind(volume, claim)
