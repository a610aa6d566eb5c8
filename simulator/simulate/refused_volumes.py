"""Pods that wait for volumes which their provisioners cannot request: nothing in a simulation changes that."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import claim_uses
from simulator.apiserver import ApiServer
from simulator.controllers import Actor, ExternalProvisioner


class RefusedVolumes:
    """Answers for the pods of one server, by the last attempts of its provisioners."""

    def __init__(self, server: ApiServer, actors: Iterable[Actor]) -> None:
        self._server = server
        self._provisioners = [actor for actor in actors if isinstance(actor, ExternalProvisioner)]

    def of(self, pod: Pod) -> str:
        """Return the claims of a pod that get no volume, with the errors; "" if there are none."""
        errors = {key: why for each in self._provisioners for key, why in each.refused.items()}
        found = [f'claim "{use.name}": {errors[use.key]}' for use in claim_uses(pod) if use.key in errors]
        return f"waits for its volumes: {'; '.join(dict.fromkeys(found))}" if found else ""

    def pods(self) -> int:
        """Return how many pods without a node wait for such claims."""
        if not any(each.refused for each in self._provisioners):
            return 0
        waiting = (each for each in self._server.objects("pods") if not each["spec"].get("nodeName"))
        return sum(bool(self.of(from_manifest(Pod, each))) for each in waiting)
