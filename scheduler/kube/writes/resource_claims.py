"""Every write to device claims (docs/spec/dra.md §3.5–§3.12); `api_writer.DEVICE_RULES` has the permissions.

Each write takes a token, goes before events, is sent once, and returns the stored claim. After a lost answer the
caller reads the claim. The removal of a list item is sent again if the item moved. If the server refuses a patch
because of the parameters, a read and a PUT in protobuf follow (`claim_protobuf`).

The server compares the parameters of drivers byte by byte. A strategic merge patch rewrites them and is refused; JSON
patches and merge patches keep them. A write that adds to a claim names the uid and the seen resourceVersion, and one
that removes an item of a list tests the uid and the item.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.api.core_v1 import ExtendedResourceClaimStatus, Pod
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.meta import Metadata
from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
)
from scheduler.core import api_json as apijson
from scheduler.core.caching import BoundedCache
from scheduler.core.errors import Conflict, Invalid, NotFound
from scheduler.kube.resources import RESOURCE_CLAIM
from scheduler.kube.wire import JSON, JSON_PATCH, MERGE, STRATEGIC_MERGE, Method
from scheduler.kube.writes import claim_protobuf as claimproto
from scheduler.kube.writes.base import Sender, as_seen, the_same

_Operation: TypeAlias = dict[str, object]


def _hook(value: Any) -> str:
    if isinstance(value, Quantity):
        return text(value)
    raise TypeError(f"cannot encode {value!r}")


_encode: Final = msgspec.json.Encoder(enc_hook=_hook).encode


def reserving(claim: ResourceClaim, user: ConsumerReference) -> bytes:
    """Return the JSON patch that adds the user, or replaces the entry with its uid."""
    users = claim.status.reserved_for
    place = next((at for at, each in enumerate(users) if each.uid == user.uid), None)
    if place is not None:
        change = {"op": "replace", "path": f"/status/reservedFor/{place}", "value": user}
    else:
        change = _add("/status/reservedFor/-", user) if users else _add("/status/reservedFor", [user])
    return _encode([*_seen(claim.metadata), change])


def releasing(claim: ResourceClaim, place: int) -> bytes:
    """Return the JSON patch that removes the user at this index, if it is still the same."""
    path, user = f"/status/reservedFor/{place}", claim.status.reserved_for[place]
    return _removing(claim, path, f"{path}/uid", user.uid)


def unprotecting(claim: ResourceClaim, place: int) -> bytes:
    """Return the JSON patch that removes the finalizer at this index, if it is still there."""
    path = f"/metadata/finalizers/{place}"
    return _removing(claim, path, path, FINALIZER)


def extended_claim(claim: ResourceClaim, pod: Pod, version: str, *, name: str) -> bytes:
    """Return a new claim of the pod with `generateName` and the finalizer: it saves a write before the allocation."""
    metadata = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid, "controller": True}
    return _encode(
        {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": metadata.namespace,
                "name": name,
                "generateName": f"{metadata.name}-extended-resources-",
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"devices": claim.spec.devices},
        }
    )


def _seen(metadata: Metadata) -> list[_Operation]:
    """Return the precondition that nothing was written since: a failed `replace` is a conflict, a `test` a 422."""
    return [{"op": "replace", "path": f"/metadata/{name}", "value": value} for name, value in as_seen(metadata).items()]


def _needs_exact_writes(claim: ResourceClaim) -> bool:
    """Return whether a patch may change parameters or driver data of the claim."""
    allocation = claim.status.allocation
    passed_on = allocation.devices.config if allocation is not None else ()
    opaque = [*(config.opaque for config in claim.spec.devices.config), *(config.opaque for config in passed_on)]
    return bool(claim.status.devices) or any(each is not None for each in opaque)


def _version_of(claim: ResourceClaim) -> tuple[str, str]:
    return claim.uid, claim.metadata.resource_version


def _removing(claim: ResourceClaim, path: str, tested: str, value: str) -> bytes:
    """Return the JSON patch that removes this item of the claim, if `tested` still has this value."""
    tests = {"/metadata/uid": the_same(claim.metadata)["uid"], tested: value}
    operations: list[_Operation] = [{"op": "test", "path": at, "value": wanted} for at, wanted in tests.items()]
    return _encode([*operations, {"op": "remove", "path": path}])


def _add(path: str, value: object) -> _Operation:
    return {"op": "add", "path": path, "value": value}


NEWEST: Final = "v1"
_REMOVALS: Final = 5
_PROTECTED_MAX: Final = 1024
"""Claims between the two writes, and some more."""
_METADATA_BYTES: Final = 4096
"""A claim with more metadata is patched."""
_Place: TypeAlias = Callable[[ResourceClaim], int | None]
_Patch: TypeAlias = Callable[[ResourceClaim, int], bytes]
_STATUS: Final = "/status"


class _Namesake(Conflict):
    """Another claim of the same name exists."""


class ResourceClaimWrites:
    """Implement the `ResourceClaimWrites` port. `claims_version` is called per request: the version that is served."""

    def __init__(self, sender: Sender, claims_version: Callable[[], str]) -> None:
        self._sender = sender
        self._claims_version = claims_version
        self._decoder: ObjectDecoder[ResourceClaim] = RESOURCE_CLAIM.decoder()
        self._without_status: BoundedCache[tuple[str, str], bytes] = BoundedCache(_PROTECTED_MAX)
        """By uid and resourceVersion, the metadata of claims that were just protected, and whose stored status had no field."""

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Add the finalizer. Precondition: no write since `claim`; `Conflict` otherwise.

        A separate write, because the server accepts only a status where it accepts a status. It comes before the
        allocation, otherwise the claim could be deleted while its devices are in use.
        """
        patch: object
        if _needs_exact_writes(claim):
            finalizers = list(dict.fromkeys((*claim.metadata.finalizers, FINALIZER)))
            patch, content_type = [*_seen(claim.metadata), _add("/metadata/finalizers", finalizers)], JSON_PATCH
        else:
            patch, content_type = {"metadata": as_seen(claim.metadata) | {"finalizers": [FINALIZER]}}, STRATEGIC_MERGE
        try:
            answer = await self._send(claim, _encode(patch), content_type)
        except Invalid as refused:
            return await self._exactly(claim, claimproto.protecting, refused)
        protected = self._decoder.decode(answer)
        if not isinstance(protected, Broken):
            self._remember(protected, answer)
        return protected

    def _remember(self, protected: ResourceClaim, answer: bytes) -> None:
        """Keep the metadata of a claim whose stored status has no field, for the update that follows."""
        stored = apijson.decode(_stored, answer)
        if stored.status:
            return
        # The server takes generateName from an update of the status, unlike labels, and would store none.
        metadata = _encode({key: value for key, value in stored.metadata.items() if key != "managedFields"})
        if len(metadata) <= _METADATA_BYTES:
            self._without_status.put(_version_of(protected), metadata)

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        """Set allocation and first user. Precondition: no write since `claim`; `Conflict` otherwise.

        Raises `Invalid` if the claim has devices already: they cannot be replaced. A merge patch would sort the
        parameters and drop their nulls. A server always shows a status, even an empty one. The finalizer cannot be
        part of it, because a status is written alone.
        """
        metadata = self._without_status.get(_version_of(claim))
        if metadata is None:
            changes = (_add("/status/allocation", allocation), _add("/status/reservedFor", [user]))
            return await self._change(claim, _encode([*_seen(claim.metadata), *changes]), JSON_PATCH, _STATUS)
        # An update takes the server a tenth less time than a patch, but it replaces the whole status, also fields that are
        # newer than this scheduler. So it is only sent where the answer before has shown that there is nothing to lose.
        body = _encode(
            {
                "apiVersion": f"resource.k8s.io/{self._claims_version()}",
                "kind": "ResourceClaim",
                "metadata": msgspec.Raw(metadata),
                "status": {"allocation": allocation, "reservedFor": [user]},
            }
        )
        return self._decoder.decode(await self._send(claim, body, JSON, _STATUS, method="PUT"))

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        """Add one user. Precondition: no write since `claim`. Raises `Invalid` if the claim has the maximum."""
        try:
            return await self._change(claim, reserving(claim, user), JSON_PATCH, _STATUS)
        except Invalid as refused:
            return await self._exactly(claim, claimproto.reserving(user), refused, _STATUS)

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        """Remove the user at any index. Precondition: the claim's uid; `Conflict` otherwise."""

        def place(now: ResourceClaim) -> int | None:
            return next((at for at, user in enumerate(now.status.reserved_for) if user.uid == pod_uid), None)

        return await self._remove(claim, place, releasing, claimproto.releasing(pod_uid), _STATUS)

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Remove devices, users and device status. Precondition: no write since `claim`; `Conflict` otherwise."""
        gone = {"allocation": None, "reservedFor": None, "devices": None}
        return await self._change(claim, _encode({"metadata": as_seen(claim.metadata), "status": gone}), MERGE, _STATUS)

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        """Create a claim with the requests of `claim`, owned by the pod, with the annotation and this name.

        Precondition: the name is free; `Conflict` otherwise. So it may be repeated after `Ambiguous`.
        """
        version = self._claims_version()
        body = extended_claim(claim, pod, version, name=name)
        answer = await self._sender.send_once("POST", _collection(pod.metadata.namespace, version), body)
        return self._decoder.decode(answer)

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Remove the finalizer, then the claim. Precondition of both: it is this claim; otherwise nothing is done.

        If it is cancelled between the two, the claim has no protection, and a second call completes it.
        """

        def place(now: ResourceClaim) -> int | None:
            finalizers = now.metadata.finalizers
            return finalizers.index(FINALIZER) if FINALIZER in finalizers else None

        try:
            await self._remove(claim, place, unprotecting, claimproto.unprotecting)
        except (NotFound, _Namesake):
            return
        try:
            path = self._path(claim, self._claims_version())
            body = _encode({"preconditions": the_same(claim.metadata)})
            await self._sender.send_once("DELETE", path, body, query=None)
        except (NotFound, Conflict):  # gone, or another claim of that name
            return

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Write which claim serves which extended resource of which container. Precondition: the pod's uid.

        A strategic patch replaces the mappings.
        """
        await self._patch_pod_status(pod, {"extendedResourceClaimStatus": status})

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        """Return the newest state, from the server's storage; None if it is gone."""
        raw = await self._sender.read(f"{_collection(namespace, self._claims_version())}/{name}")
        return self._decoder.decode(raw) if raw is not None else None

    async def read_resource_claim_at(self, namespace: str, name: str, version: int) -> ResourceClaim | Broken | None:
        """Return the claim at this resourceVersion, by a list of one; None if it did not exist.

        Raises `Gone` if the server has compacted its history, which it keeps for some minutes.
        """
        query = {
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": str(version),
            "resourceVersionMatch": "Exact",
        }
        raw = await self._sender.list_page(_collection(namespace, self._claims_version()), query)
        items = apijson.decode(_items, raw).items
        return self._decoder.decode(bytes(items[0])) if items else None

    async def _exactly(
        self, claim: ResourceClaim, change: claimproto.Change, refused: Invalid, subresource: str = ""
    ) -> ResourceClaim | Broken:
        """Write in protobuf after a refused patch, because it would change immutable parameters.

        Precondition: no write since `claim`; `Conflict` otherwise. Raises `refused` for a claim without parameters
        and for servers without protobuf; otherwise the error of this write.
        """
        if not _needs_exact_writes(claim):
            raise refused
        path = self._path(claim, self._claims_version())
        envelope = await self._sender.read(path, claimproto.CONTENT_TYPE)
        if envelope is None:
            raise NotFound(f"claim {claim.key} is gone", status=HTTPStatus.NOT_FOUND)
        try:
            seen, body = claimproto.seen(envelope), change(envelope)
        except ValueError:
            raise refused from None
        if seen != (claim.uid, claim.metadata.resource_version):
            raise Conflict(f"claim {claim.key} was written since it was seen")
        answer = await self._sender.send_once("PUT", path + subresource, body, claimproto.CONTENT_TYPE)
        return self._decoder.decode(answer)

    async def _remove(
        self, claim: ResourceClaim, place: _Place, patch: _Patch, change: claimproto.Change, subresource: str = ""
    ) -> ResourceClaim | Broken:
        """Send the removal of the item that `place` finds, again if the item moved. Return the claim.

        An invalid patch may be a failed test: a read shows it. If the claim is unchanged, `change` is written instead.
        Raises NotFound, Conflict for another claim of that name, and the server's error if it refuses both.
        """
        seen, at = claim, place(claim)
        the_same(claim.metadata)
        for _ in range(_REMOVALS):
            refused: Invalid | None = None
            if at is not None:
                try:
                    return await self._change(seen, patch(seen, at), JSON_PATCH, subresource)
                except Invalid as error:
                    refused = error
            now = await self.read_resource_claim(claim.metadata.namespace, claim.metadata.name)
            if now is None:
                raise NotFound(f"claim {claim.key} is gone", status=HTTPStatus.NOT_FOUND)
            if now.metadata.uid != claim.uid:
                raise _Namesake(f"claim {claim.key} is another one by now: its metadata.uid is {now.metadata.uid}")
            if isinstance(now, Broken):
                raise refused or Invalid(f"claim {claim.key} cannot be read")
            if (at := place(now)) is None:
                return now
            if refused is not None and now.version == seen.version:
                with contextlib.suppress(Conflict):
                    return await self._exactly(now, change, refused, subresource)
            seen = now
        raise Conflict(f"claim {claim.key} was changed {_REMOVALS} times while an item was removed from it")

    async def _change(
        self, claim: ResourceClaim, body: bytes, content_type: str, subresource: str = ""
    ) -> ResourceClaim | Broken:
        return self._decoder.decode(await self._send(claim, body, content_type, subresource))

    async def _send(
        self, claim: ResourceClaim, body: bytes, content_type: str, subresource: str = "", *, method: Method = "PATCH"
    ) -> bytes:
        path = self._path(claim, self._claims_version()) + subresource
        return await self._sender.send_once(method, path, body, content_type)

    async def _patch_pod_status(self, pod: Pod, status: Mapping[str, object]) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        await self._sender.send_once(
            "PATCH", path, _encode({"metadata": the_same(pod.metadata), "status": status}), STRATEGIC_MERGE
        )

    def _path(self, claim: ResourceClaim, version: str) -> str:
        return f"{_collection(claim.metadata.namespace, version)}/{claim.metadata.name}"


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] = []


_items: Final = msgspec.json.Decoder(_Items)


class _Stored(msgspec.Struct):
    metadata: dict[str, msgspec.Raw]
    status: dict[str, msgspec.Raw] | None = None


_stored: Final = msgspec.json.Decoder(_Stored)


def _collection(namespace: str, version: str) -> str:
    return f"/apis/resource.k8s.io/{version}/namespaces/{namespace}/resourceclaims"
