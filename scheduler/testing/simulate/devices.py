"""The devices of a simulation: what ties the claims of a dump to their pods, and the controllers that act on them.

Claims are made from templates and given back as in a cluster. The driver of every slice answers for its devices at once:
binding conditions become true.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.clock import Clock
from scheduler.testing.actors import Actor, DRADriver, ResourceClaimController
from scheduler.testing.apiserver import ApiServer
from scheduler.testing.simulate.volumes import find, with_uid

Object = dict[str, Any]
_CLAIMS: Final = "resourceclaims"


def retie_claims(server: ApiServer) -> None:
    """Objects got new uids when they were loaded: owners and users of claims are to be the same pods still."""
    for claim in server.objects(_CLAIMS):
        metadata, status = claim["metadata"], claim.get("status") or {}
        name, namespace = metadata["name"], metadata["namespace"]
        owners = [with_uid(server, owner, namespace) for owner in metadata.get("ownerReferences") or ()]
        if owners:
            server.update(_CLAIMS, claim | {"metadata": metadata | {"ownerReferences": owners}})
        users = [user for each in status.get("reservedFor") or () if (user := _user(server, each, namespace))]
        if status.get("reservedFor"):
            now = server.get(_CLAIMS, name, namespace)
            server.update(_CLAIMS, now | {"status": status | {"reservedFor": users}}, subresource="status")


def _user(server: ApiServer, user: Object, namespace: str) -> Object | None:
    """The pod of that name as it is here; None if the dump has it no more."""
    if user.get("resource") != "pods":
        return user
    pod = find(server, "pods", user["name"], namespace)
    return None if pod is None else user | {"uid": pod["metadata"]["uid"]}


def device_controllers(server: ApiServer, clock: Clock) -> list[Actor]:
    """Made once all objects are there, and run until nothing is left to do: claims of templates are there at the start."""
    drivers = dict.fromkeys(each["spec"]["driver"] for each in server.objects("resourceslices"))
    made: list[Actor] = [
        ResourceClaimController(server, clock=clock),
        *(DRADriver(server, driver, clock=clock) for driver in drivers),
    ]
    while sum(actor.step() for actor in made):
        pass
    return made
