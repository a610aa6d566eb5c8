"""What ours would write to claims of devices, without writing it: for a pod on its node, and for a pod that fits nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import FINALIZER, ResourceClaim
from scheduler.framework.interface import CycleState
from scheduler.framework.profile import Profile
from scheduler.plugins.dra.extended_resources import is_in_memory
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.dra.state import STATE, DeviceState
from tests.parity.deviceclaims import device_changes
from tests.parity.words import Json

_NANO: Final = 10**9
_BINARY: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class Held:
    """Writes that would be made in the background; none is."""

    def __init__(self) -> None:
        self.claims: list[ResourceClaim] = []
        self.removed: list[ResourceClaim] = []

    def run(self, write: Any, what: str, *, about: str = "", uid: str = "") -> None:
        """Note whose devices would be given back, and which claims would go."""
        if what.startswith("deallocate"):
            self.claims.append(write.args[0])
        if what.startswith("delete"):
            self.removed.append(write.args[0])


@contextmanager
def held(profile: Profile) -> Iterator[Held]:
    """As long as the block lasts DynamicResources does nothing in the background."""
    notes = Held()
    plugins = [plugin for plugin in profile.post_filter if isinstance(plugin, DynamicResources)]
    kept = [plugin._binder._background for plugin in plugins]
    for plugin in plugins:
        plugin._binder._background = notes  # type: ignore[assignment]
    try:
        yield notes
    finally:
        for plugin, background in zip(plugins, kept, strict=True):
            plugin._binder._background = background


def given_back(notes: Held, pod: PodInfo) -> tuple[str, ...]:
    """In the words of `device_changes`."""
    before = {claim.key: _json(claim) for claim in (*notes.claims, *notes.removed)}
    after = {claim.key: before[claim.key] | {"status": {}} for claim in notes.claims}
    return device_changes(before, after, _pod(pod))


def planned_devices(plugin: DynamicResources, state: CycleState, pod: PodInfo, *, node: str) -> tuple[str, ...]:
    """In the words of `device_changes`. Nothing stays reserved, and what was reserved before stays so."""
    known = state.get(STATE)
    no = plugin.reserve(state, pod, node)
    assert no is None, f"{pod.key} was to go to {node}: {no}"
    claims = [claim for claim in known.claims if not is_in_memory(claim)]
    before = {claim.key: _json(claim) for claim in claims}
    after = {claim.key: _bound(claim, known, pod) for claim in claims}
    told = _pod(pod)
    if known.special is not None:
        name = f"{pod.pod.metadata.name}-extended-resources-00000"
        after[f"{pod.pod.metadata.namespace}/{name}"] = _bound(known.special, known, pod)
        rows = [_plain(mapping) for mapping in known.mappings]
        told["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": rows}}
    plugin._binder.land(known)
    known.allocations.clear()
    return device_changes(before, after, told)


def _bound(claim: ResourceClaim, known: DeviceState, pod: PodInfo) -> Json:
    item = _json(claim)
    if claim.is_reserved_for(pod.uid):
        return item
    status: Json = dict(item.get("status") or {})
    if (allocation := known.allocations.get(claim.uid)) is not None:
        finalizers = item["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            item["metadata"]["finalizers"] = [*finalizers, FINALIZER]
        status["allocation"] = _plain(allocation) | {"allocationTimestamp": "now"}
    reference = {"resource": "pods", "name": pod.pod.metadata.name, "uid": pod.uid}
    status["reservedFor"] = [*status.get("reservedFor", ()), reference]
    return item | {"status": status}


def _json(claim: ResourceClaim) -> Json:
    return {"spec": {}, **_plain(claim)}


def _plain(item: object) -> Json:
    made: Json = msgspec.json.decode(msgspec.json.encode(item, enc_hook=_text))
    return made


def _text(value: object) -> str:
    """A quantity, as a server writes it."""
    assert isinstance(value, Quantity)
    whole, rest = divmod(value.nano, _NANO)
    if rest:
        return f"{value.nano}n"
    for suffix, size in _BINARY:
        if whole and not whole % size:
            return f"{whole // size}{suffix}"
    return str(whole)


def _pod(pod: PodInfo) -> Json:
    return {"metadata": {"name": pod.pod.metadata.name, "uid": pod.uid}, "status": {}}
