"""Ways to get the claims for extended resources wrong, and what is given back: some of `device_mutants`."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.plugins.dra.binding.claim_binder import NOT_HELPED, ClaimBinder
from scheduler.plugins.dra.extended_resources import _share

_DRA: Final = "scheduler.plugins.dra"
_EXTENDED: Final = f"{_DRA}.extended_resources.ExtendedResources"
_REQUESTS: Final = f"{_DRA}.extended_resources"
_free = ClaimBinder.free


def _borrowing_nothing(at: int, container: Any, resource: str, *, reusable: object = ()) -> Any:
    return _share(at, container, resource)


def _not_renamed(shares: Any, _extra: object) -> Any:
    return [mapped for share in shares for mapped in share.mappings]


def _of_any_pod(binder: ClaimBinder, known: Any, pod: Any, useless: Any) -> str:
    nobodys = [
        msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=()))
        for claim in useless
    ]
    return _free(binder, known, pod, nobodys)


CLAIM_MUTATIONS: Final[Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]]] = {
    "init containers borrow nothing": ({f"{_REQUESTS}._share": _borrowing_nothing}, ("ExtendedDevices",)),
    "init containers request one by one": ({f"{_REQUESTS}._renamed": _not_renamed}, ("ExtendedDevices",)),
    "nodes have nothing of it themselves": ({f"{_EXTENDED}._offering": lambda *_: 0}, ("ExtendedDevices",)),
    "devices that no node has can be had": ({f"{_EXTENDED}._lacking": lambda *_: 0}, ("ExtendedDevices",)),
    "claims of earlier attempts do no harm": (
        {"scheduler.cache.devices.claim_tracker.ClaimTracker.made_for": lambda *_: None},
        ("ExtendedDevices",),
    ),
    "no devices are given back": (
        {f"{_DRA}.binding.claim_binder.ClaimBinder.free": lambda *_: NOT_HELPED},
        ("DeviceClaims",),
    ),
    "devices of other pods are given back": (
        {f"{_DRA}.binding.claim_binder.ClaimBinder.free": _of_any_pod},
        ("DeviceClaims",),
    ),
}
"""Name → what stands where instead, and the groups of scenarios that are to notice."""
