"""Write requests and limits of pods for /metrics/resources, in Prometheus' text format.

The page has a series for each resource of each pod, so it is written in pieces: 20,000 pods must not block the event
loop. Amounts are those of the specification, without in-place resize.

Upstream: pkg/scheduler/metrics/resources/resources.go podResourceCollector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.utils import floatToGoString

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import Requests, limits_of, spec_requests_of

_UNITS: Final = {"cpu": "cores", "memory": "bytes", "storage": "bytes", "ephemeral-storage": "bytes"}
_PREFIX_UNITS: Final = {"hugepages-": "bytes", "attachable-volumes-": "integer"}
_PODS: Final = 100
"""Pods in one piece: some milliseconds of the event loop."""
_TEXT: Final = (
    "{} workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect"
    " per pod for resources along with the unit for the resource if any."
)
_FAMILIES: Final[tuple[tuple[str, str, Callable[[Pod], Requests]], ...]] = (
    ("kube_pod_resource_limit", _TEXT.format("Resources limit for"), limits_of),
    ("kube_pod_resource_request", _TEXT.format("Resources requested by"), spec_requests_of),
)


def pieces(pods: Sequence[Pod]) -> Iterator[bytes]:
    """Yield the page. Pods that have ended on their node, and amounts of zero, have no series."""
    running = [pod for pod in pods if not (pod.spec.node_name and pod.status.phase in {"Succeeded", "Failed"})]
    for name, text, amounts in _FAMILIES:
        yield f"# HELP {name} [STABLE] {text}\n# TYPE {name} gauge\n".encode()
        for at in range(0, len(running), _PODS):
            some = running[at : at + _PODS]
            yield "".join(line for pod in some for line in _series(name, pod, amounts(pod))).encode()


def _series(name: str, pod: Pod, amounts: Requests) -> Iterator[str]:
    priority = "" if pod.spec.priority is None else str(pod.spec.priority)
    metadata, scheduler = pod.metadata, _escaped(pod.spec.scheduler_name)
    whose = f'namespace="{metadata.namespace}",node="{pod.spec.node_name}",pod="{metadata.name}",priority="{priority}"'
    for resource, nano in sorted(amounts.items()):
        if nano:
            labels = f'{whose},resource="{_escaped(resource)}",scheduler="{scheduler}",unit="{_unit(resource)}"'
            yield f"{name}{{{labels}}} {_number(nano / 1e9)}\n"


def _number(value: float) -> str:
    shown: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return shown


def _unit(resource: str) -> str:
    found = _UNITS.get(resource)
    return found or next((unit for prefix, unit in _PREFIX_UNITS.items() if resource.startswith(prefix)), "")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
