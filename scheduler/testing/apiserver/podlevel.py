"""What a pod asks for as a whole, as a server completes it from what it is limited to and what its containers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.core.decode import from_manifest
from scheduler.core.pod import Pod
from scheduler.core.podinfo import CPU, MEMORY, requests_of
from scheduler.core.quantity import from_nano, text

_HUGE: Final = "hugepages-"
_NANO: Final = 10**9
_NANO_PER_MILLI: Final = 10**6


def with_pod_level(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's own `resources`: limits for its containers' huge pages; and with any limit, requests for all that is named.

    What the containers ask for together comes before the limit. The containers must have their own defaults already.
    """
    given = spec.get("resources") or {}
    requests, limits = dict(given.get("requests") or {}), dict(given.get("limits") or {})
    if not (requests or limits):
        return dict(given)
    for name, amount in _together(spec, "limits").items():
        if name.startswith(_HUGE) and name not in requests:
            limits.setdefault(name, amount)
    if limits:
        asked = {name: amount for name, amount in _together(spec, "requests").items() if name in {CPU, MEMORY}}
        whole = {name: amount for name, amount in limits.items() if name in {CPU, MEMORY} or name.startswith(_HUGE)}
        requests = whole | asked | requests
    return dict(given) | {kind: have for kind, have in (("limits", limits), ("requests", requests)) if have}


def _together(spec: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The `requests` or `limits` of all containers, start-up included."""
    alone = {
        name: [
            {key: container[key] for key in ("name", "restartPolicy") if key in container}
            | {"resources": {"requests": (container.get("resources") or {}).get(kind) or {}}}
            for container in spec.get(name) or []
        ]
        for name in ("containers", "initContainers")
    }
    amounts = requests_of(from_manifest(Pod, {"metadata": {}, "spec": alone}))
    return {n: text(from_nano(a * (_NANO_PER_MILLI if n == CPU else _NANO))) for n, a in amounts.items()}
