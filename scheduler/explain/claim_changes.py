"""Changes of a pod's claims for volumes and devices, and the holders of what they need (see `changes`).

Most fields of a claim never change. A change of a claim therefore means: create it again with this difference. Under
another name it can be tried next to the existing claim.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import (
    ALL,
    Device,
    DeviceTaint,
    ExactDeviceRequest,
    ResourceClaim,
    bare_name,
    claim_keys,
    full_name,
)
from scheduler.api.storage_v1 import (
    FILESYSTEM,
    NO_PROVISIONER,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.cache.storage.class_volumes import requirements_of, selector_of
from scheduler.cache.storage.persistent_volumes import is_free
from scheduler.core import nodeset
from scheduler.explain.changes import Actor, Change, Option, Site, all_removable, deletion, removable
from scheduler.explain.controllers import is_owned
from scheduler.explain.edits import Edit, Manifest, Step, plain, pointer

TEMPLATE: Final = "ResourceClaimTemplate"
_IN_TEMPLATE: Final = "/spec"
"""A template's spec has the metadata and the spec of claims."""
_NANO: Final = 10**9
_MIB: Final = 2**20
_CLASSES_MAX: Final = 4
_VOLUMES_MAX: Final = 4
_VOLUMES_LOOKED_AT: Final = 1024
_HOLDERS_MAX: Final = 3
_TAINTS_MAX: Final = 4
_SPLIT_MAX: Final = 8
_KINDS_MAX: Final = 64
"""Devices are looked at on this many kinds of nodes."""


# -- volumes ---------------------------------------------------------------------------------------------------------


def missing_claims(site: Site) -> Iterator[Option]:
    """Create missing claims: of a class whose volumes follow the pod, or so that a free volume fits."""
    if missing := _missing(site):
        for name in _late_classes(site, ""):
            yield [_new_claim(site, claim, name) for claim in missing]
        free = _free_volumes(site)
        for first in range(len(free)):
            if len(chosen := free[first : first + len(missing)]) == len(missing):
                yield [_claim_for(site, claim, each) for claim, each in zip(missing, chosen, strict=True)]


def _missing(site: Site) -> list[str]:
    claims = site.cluster.volumes.claims
    return list(
        dict.fromkeys(use.name for use in site.info.claims if claims.get(use.key) is None and not use.is_ephemeral)
    )


def volumes(site: Site) -> Iterator[Option]:
    """Create missing claims; request less of the class; use another class; or claim what a free volume has."""
    if _missing(site):
        yield from missing_claims(site)
        return
    claims = site.cluster.volumes.claims
    # an ephemeral claim cannot be created again: its template is in the pod
    own = [claim for use in site.info.claims if not use.is_ephemeral and (claim := claims.get(use.key))]
    waiting = [claim for claim in own if not claim.spec.volume_name and _is_replaceable(site, claim.key)]
    smaller = [lower for claim in waiting if (lower := _smaller(claim)) is not None]
    if smaller:
        yield smaller
    for name in _late_classes(site, *(claim.storage_class for claim in waiting)):
        yield [_other_class(claim, name) for claim in waiting]
    for volume in _free_volumes(site):
        for claim in waiting:
            if (change := _matching(claim, volume)) is not None:
                yield [change]


def _is_replaceable(site: Site, key: str) -> bool:
    """Return whether a claim can be created again: no pod on a node uses it, and no volume is reserved for its name."""
    return not site.cluster.nodes.claim_users.users.slots(key) and not site.cluster.volumes.volumes.meant_for(key)


def _late_classes(site: Site, *but: str) -> list[str]:
    """Return a few classes whose volumes follow the pod and are made for claims, the default class first."""
    late = [
        (not each.obj.is_default, name)
        for name, each in site.cluster.volumes.classes.items()
        if each.obj.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        and each.obj.provisioner != NO_PROVISIONER
        and name not in but
    ]
    return [name for _, name in sorted(late)[:_CLASSES_MAX]]


def _free_volumes(site: Site) -> list[PersistentVolume]:
    """Return a few free volumes, first those that the node can use."""
    volumes = site.cluster.volumes.volumes
    free = [each for each in itertools.islice(volumes, _VOLUMES_LOOKED_AT) if is_free(each)]
    return sorted(free, key=lambda each: not volumes.where(each.key).nodes >> site.slot & 1)[:_VOLUMES_MAX]


def _matching(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Change | None:
    """Return the change of a claim after which it can take the volume; None if its size is all that differs, or more."""
    spec, wanted, request = volume.spec, requirements_of(claim), claim.request
    different: dict[str, Step] = {}
    if (spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or "") != wanted[:2]:
        return None
    if volume.storage_class != claim.storage_class:
        step = Step("replace", pointer("spec", "storageClassName"), volume.storage_class)
        different[f"class {volume.storage_class or 'none'}"] = step
    if not wanted.access_modes <= frozenset(spec.access_modes):
        step = Step("replace", pointer("spec", "accessModes"), list(spec.access_modes))
        different[f"access modes {', '.join(spec.access_modes)}"] = step
    if wanted.selector and not selector_of(wanted).matches(volume.metadata.labels):
        different["no selector"] = Step("remove", pointer("spec", "selector"))
    if not different:
        return None
    if request is not None and volume.capacity.nano < request.nano:
        size = text(volume.capacity)
        different[size] = Step("replace", pointer("spec", "resources", "requests", STORAGE), size)
    what = f"create claim {claim.key} again for volume {volume.key}: {'; '.join(different)}"
    edits = (_claim_patch(claim, "PersistentVolumeClaim", *different.values()),)
    return Change("MatchVolume", Actor.USER, 2 + len(different), what, edits)


def _claim_for(site: Site, name: str, volume: PersistentVolume) -> Change:
    size, modes = text(volume.capacity), list(volume.spec.access_modes)
    spec = _claim_spec(volume.storage_class, size, modes, volume.spec.volume_mode or FILESYSTEM)
    edit = Edit("create", "PersistentVolumeClaim", name, site.pod.metadata.namespace, manifest={"spec": spec})
    of_class = f"class {volume.storage_class}" if volume.storage_class else "no class"
    what = f"create PersistentVolumeClaim {name} with {size} of {of_class}, {', '.join(modes)}, for volume {volume.key}"
    return Change("CreateClaim", Actor.USER, 2, what, (edit,))


def _claim_spec(storage_class: str, size: str, modes: list[str], volume_mode: str = FILESYSTEM) -> Manifest:
    return {
        "accessModes": modes,
        "resources": {"requests": {STORAGE: size}},
        "storageClassName": storage_class,
        "volumeMode": volume_mode,
    }


def _new_claim(site: Site, name: str, storage_class: str) -> Change:
    spec = _claim_spec(storage_class, "1Gi", ["ReadWriteOnce"])
    edit = Edit("create", "PersistentVolumeClaim", name, site.pod.metadata.namespace, manifest={"spec": spec})
    what = f"create PersistentVolumeClaim {name}, for example of class {storage_class} with 1Gi"
    return Change("CreateClaim", Actor.USER, 2, what, (edit,))


def _claim_patch(claim: PersistentVolumeClaim | ResourceClaim, kind: str, *steps: Step) -> Edit:
    return Edit("patch", kind, claim.metadata.name, claim.metadata.namespace, patch=steps)


def _smaller(claim: PersistentVolumeClaim) -> Change | None:
    size = claim.request
    if size is None or size.nano <= _MIB * _NANO:
        return None

    def sized(mib: int) -> Change:
        amount = text(Quantity(mib * _MIB * _NANO))
        step = Step("replace", pointer("spec", "resources", "requests", STORAGE), amount)
        what = f"create claim {claim.key} again with {amount} instead of {text(size)}"
        # `weaker` counts what is given up, so that the least that suffices is found
        return Change(
            "SmallerClaim",
            Actor.USER,
            3,
            what,
            (_claim_patch(claim, "PersistentVolumeClaim", step),),
            lambda given_up: sized(whole - given_up),
            (1, whole - 1),
        )

    whole = -(-size.nano // (_MIB * _NANO))
    return sized(1)


def _other_class(claim: PersistentVolumeClaim, storage_class: str) -> Change:
    step = Step("replace", pointer("spec", "storageClassName"), storage_class)
    what = f"create claim {claim.key} again with class {storage_class} instead of {claim.storage_class or 'none'}"
    return Change("OtherClass", Actor.USER, 3, what, (_claim_patch(claim, "PersistentVolumeClaim", step),))


def holders_of_volumes(site: Site) -> Iterator[Option]:
    """Delete the pods that use the pod's claims and disks: ReadWriteOncePod, and disks that cannot be shared."""
    nodes = site.cluster.nodes
    found: dict[str, PodInfo] = {}
    for use in site.info.claims:
        for slot in nodes.claim_users.users.slots(use.key):
            found |= {each.uid: each for each in nodes.pods(slot).values() if use.key in {u.key for u in each.claims}}
    for slot in nodeset.each(nodes.disk_conflicts.of(site.info.exclusive_disks) & 1 << site.slot):
        found |= {each.uid: each for each in nodes.pods(slot).values() if each.exclusive_disks}
    found.pop(site.info.uid, None)
    yield deletion(site, all_removable(site, found.values(), _HOLDERS_MAX), "DeleteHolder")


def attached(site: Site) -> Iterator[Option]:
    """Create missing claims; or delete one of the node's pods with volumes, the least important first."""
    yield from missing_claims(site)
    for each in removable(site, (each for each in site.pods() if each.claims))[:_HOLDERS_MAX]:
        yield deletion(site, [each])


# -- devices ---------------------------------------------------------------------------------------------------------


def claims_of(site: Site) -> dict[str, ResourceClaim | None]:
    """Return the pod's device claims by key; None for a claim that does not exist."""
    return {key: site.cluster.devices.claims.get(key) for key in claim_keys(site.pod)}


def _templates(pod: Pod) -> dict[str, str]:
    """Return claim key → ResourceClaimTemplate, for the pod's claims that were made from one."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    return {
        f"{pod.metadata.namespace}/{name}": each.resource_claim_template_name
        for each in pod.spec.resource_claims
        if each.resource_claim_template_name and (name := made.get(each.name))
    }


def of_claims(pod: Pod, edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield the edits, those of a ResourceClaimTemplate as edits of the pod's claims that were made from it."""
    for edit in edits:
        if edit.kind != TEMPLATE:
            yield edit
            continue
        steps = tuple(_moved(step, step.path.removeprefix(_IN_TEMPLATE)) for step in edit.patch)
        for key, template in _templates(pod).items():
            if template == edit.name:
                yield Edit("patch", "ResourceClaim", key.partition("/")[2], edit.namespace, patch=steps)


def template_body(pod: Pod, template: str, claims: Callable[[str], ResourceClaim | None]) -> Manifest | None:
    """Return the part of a template that the pod's claims show; None if no claim of it exists."""
    for key, name in _templates(pod).items():
        if name == template and (claim := claims(key)) is not None:
            return {"spec": {"spec": plain(claim)["spec"]}}
    return None


def _where_made(change: Change, claim: ResourceClaim, templates: Mapping[str, str]) -> Change:
    """Return the change of a claim as a change of the template that it was made from, if there is one."""
    template = templates.get(claim.key)
    if template is None:
        return change
    namespace, weaker = claim.metadata.namespace, change.weaker
    steps = tuple(_moved(step, _IN_TEMPLATE + step.path) for edit in change.edits for step in edit.patch)
    again = change.text.removeprefix(f"create claim {claim.key} again ")
    return replace(
        change,
        text=f"create ResourceClaimTemplate {namespace}/{template} again {again}, and then the pod",
        edits=(Edit("patch", TEMPLATE, template, namespace, patch=steps),),
        weaker=None if weaker is None else lambda amount: _where_made(weaker(amount), claim, templates),
    )


def _moved(step: Step, path: str) -> Step:
    return msgspec.structs.replace(step, path=path)


def devices(site: Site) -> Iterator[Option]:
    """Request less of the claims that are not allocated; or delete pods that have devices of the node."""
    open_ = [claim for claim in claims_of(site).values() if claim is not None and not claim.is_allocated]
    templates = _templates(site.pod)
    lowered = [_where_made(change, claim, templates) for claim in open_ for change in _of_claim(site, claim)]
    for change in (_where_made(split, claim, templates) for claim in open_ for split in _splits(site, claim)):
        yield [change]
    if lowered:
        yield lowered
    others = [(claim, change) for claim in open_ for change in _classes_of(site, claim)]
    for change in (_where_made(change, claim, templates) for claim, change in others):
        yield [change]
        if lowered:
            yield [*lowered, change]
    holders = removable(site, (each for each in site.pods() if each.pod.spec.resource_claims))
    for each in holders[:_HOLDERS_MAX]:
        yield deletion(site, [each], "DeleteHolder")
    if 1 < len(holders) <= _HOLDERS_MAX:
        yield deletion(site, holders, "DeleteHolder")
    if lowered and holders:
        yield [*lowered, *deletion(site, holders[:_HOLDERS_MAX], "DeleteHolder")]


def _of_claim(site: Site, claim: ResourceClaim) -> Iterator[Change]:
    for at, constraint in enumerate(claim.spec.devices.constraints):
        name = constraint.match_attribute or constraint.distinct_attribute
        what = f"without the constraint on attribute {name}"
        step = Step("remove", pointer("spec", "devices", "constraints", at))
        yield _of(claim, "RemoveDeviceConstraint", 3, what, step)
    for name, request, where in _requests(claim):
        yield from _of_request(site, claim, name, request, where)


def _requests(claim: ResourceClaim) -> Iterator[tuple[str, ExactDeviceRequest, tuple[str | int, ...]]]:
    """Yield the name, the request and its path for each request and each of its alternatives."""
    for at, request in enumerate(claim.spec.devices.requests):
        where: tuple[str | int, ...] = ("spec", "devices", "requests", at)
        if request.exactly is not None:
            yield request.name, request.exactly, (*where, "exactly")
        for number, each in enumerate(request.first_available):
            yield f"{request.name}/{each.name}", each, (*where, "firstAvailable", number)


def _classes_of(site: Site, claim: ResourceClaim) -> Iterator[Change]:
    """Yield the other device classes of each request: all if its class does not exist, else those of the same drivers."""
    class_names = sorted(each.metadata.name for each in site.cluster.devices.classes)
    for name, request, where in _requests(claim):
        before = request.device_class_name
        drivers = _drivers(site, before)
        alike = (
            each
            for each in class_names
            if each != before and (before not in class_names or drivers & _drivers(site, each))
        )
        for other in itertools.islice(alike, _CLASSES_MAX):
            what = f"with device class {other} instead of {before} in {name}"
            yield _of(claim, "OtherDeviceClass", 6, what, Step("replace", pointer(*where, "deviceClassName"), other))


def _drivers(site: Site, device_class: str) -> frozenset[str]:
    """Return the drivers of devices that a class selects, on a node of each kind."""
    manager, found = site.cluster.devices, site.cluster.devices.classes.get(device_class)
    expressions = [each.cel.expression for each in found.spec.selectors if each.cel] if found is not None else []
    nodes = [next(nodeset.each(kind.nodes)) for kind in itertools.islice(manager.on_nodes.kinds(), _KINDS_MAX)]
    kinds = {each.kind for slot in nodes for view in manager.on_nodes.pools(slot) for each in view.devices}
    return frozenset(
        kind.driver for kind in kinds if all(manager.holds(expression, kind) is True for expression in expressions)
    )


def _of_request(
    site: Site, claim: ResourceClaim, name: str, request: ExactDeviceRequest, where: tuple[str | int, ...]
) -> Iterator[Change]:
    for at, selector in enumerate(request.selectors):
        expression = selector.cel.expression if selector.cel is not None else ""
        what = f"without the selector {expression} of request {name}"
        yield _of(claim, "RemoveDeviceSelector", 4, what, Step("remove", pointer(*where, "selectors", at)))
    for taint in (each for each in _device_taints(site) if not is_owned(each.key)):
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        what = f"with a toleration of {taint.key}:{taint.effect} in request {name}"
        yield _of(claim, "TolerateDeviceTaint", 3, what, Step("add", pointer(*where, "tolerations", "-"), toleration))
    if request.count > 1 and request.allocation_mode != "All":
        yield _fewer(claim, name, request.count, where, 1)
    wanted = request.capacity.requests if request.capacity is not None else {}
    capacities = _capacities_of(site)
    for capacity, amount in wanted.items():
        nearest = (
            [] if capacity in capacities else difflib.get_close_matches(capacity, sorted(capacities - wanted.keys()), 1)
        )
        if nearest:
            yield _renamed(claim, name, (capacity, nearest[0]), amount, (*where, "capacity", "requests"))
        else:
            yield _less(claim, name, capacity, amount, where, 1)


def _renamed(
    claim: ResourceClaim, name: str, capacities: tuple[str, str], amount: Quantity, where: tuple[str | int, ...]
) -> Change:
    before, now = capacities
    steps = Step("add", pointer(*where, now), text(amount)), Step("remove", pointer(*where, before))
    what = f"with capacity {now} instead of {before}, which no device of the node has, in request {name}"
    return _of(claim, "RenameDeviceCapacity", 2, what, *steps)


def _splits(site: Site, claim: ResourceClaim) -> Iterator[Change]:
    """Yield for each request of several devices the same number of requests: each can have a share of one device."""
    requests = claim.spec.devices.requests
    is_shared = any(each.allow_multiple_allocations for each in _devices_of(site))
    devices = claim.spec.devices
    is_named = any(each.requests for each in devices.constraints) or any(each.requests for each in devices.config)
    if not is_shared or is_named:
        return
    for at, request in enumerate(requests):
        exactly = request.exactly
        if exactly is None or exactly.allocation_mode == ALL or not 1 < exactly.count <= _SPLIT_MAX:
            continue
        body = plain(request)
        one = body | {"exactly": body["exactly"] | {"count": 1}}
        more = [one | {"name": f"{request.name}-{number}"} for number in range(2, exactly.count + 1)]
        if {each["name"] for each in more}.isdisjoint(each.name for each in requests):
            steps = [Step("replace", pointer("spec", "devices", "requests", at, "exactly", "count"), 1)]
            steps += [Step("add", pointer("spec", "devices", "requests", "-"), each) for each in more]
            what = f"with {exactly.count} requests of one device instead of request {request.name} of {exactly.count}"
            yield _of(claim, "SplitDeviceRequest", 3, f"{what}: each can have a share of one device", *steps)


def _of(claim: ResourceClaim, code: str, cost: int, what: str, *steps: Step, **more: Any) -> Change:
    edits = (_claim_patch(claim, "ResourceClaim", *steps),)
    return Change(code, Actor.USER, cost, f"create claim {claim.key} again {what}", edits, **more)


def _fewer(claim: ResourceClaim, name: str, count: int, where: tuple[str | int, ...], remaining: int) -> Change:
    what = f"with {remaining} instead of {count} devices in request {name}"
    return _of(
        claim,
        "FewerDevices",
        3,
        what,
        Step("replace", pointer(*where, "count"), remaining),
        weaker=lambda given_up: _fewer(claim, name, count, where, count - given_up),
        bounds=(1, count - 1),
    )


def _less(  # noqa: PLR0917 (what the change is made of)
    claim: ResourceClaim, name: str, capacity: str, amount: Quantity, where: tuple[str | int, ...], remaining: int
) -> Change:
    whole = max(amount.nano // _NANO, 1)
    what = f"with {text(Quantity(remaining * _NANO))} instead of {text(amount)} of {capacity} in {name}"
    return _of(
        claim,
        "LessDeviceCapacity",
        3,
        what,
        Step("replace", pointer(*where, "capacity", "requests", capacity), text(Quantity(remaining * _NANO))),
        weaker=lambda given_up: _less(claim, name, capacity, amount, where, max(whole - given_up, 1)),
        bounds=(1, max(whole - 1, 1)),
    )


def _devices_of(site: Site) -> Iterator[Device]:
    """Yield the devices that the node can use."""
    for view in site.cluster.devices.on_nodes.pools(site.slot):
        yield from (each.device for each in view.devices)


def _capacities_of(site: Site) -> set[str]:
    """Return the names of capacities that a request can use: a driver's own domain can be left out."""
    views = site.cluster.devices.on_nodes.pools(site.slot)
    named = {(view.key.driver, name) for view in views for each in view.devices for name in each.device.capacity}
    return {spelled for driver, name in named for spelled in (bare_name(driver, name), full_name(driver, name))}


def _device_taints(site: Site) -> list[DeviceTaint]:
    """Return a few different taints of the devices that the node can use."""
    found: Mapping[tuple[str, str], DeviceTaint] = {
        (taint.key, taint.effect): taint for each in _devices_of(site) for taint in each.taints
    }
    return list(found.values())[:_TAINTS_MAX]
