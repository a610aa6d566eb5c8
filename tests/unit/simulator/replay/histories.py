"""Small recordings: `history(path, events)` writes one, and `replay(path)` plays it with the default configuration."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scheduler.config import load
from simulator.replay.answer import ReplayAnswer, RunAnswer
from simulator.replay.command import Candidate, ReplayArguments, replay_of

Object = dict[str, Any]
HEADER: Object = {"kubestowRecording": 1, "startedAt": "2026-06-01T00:00:00Z"}
SYNCED = (0, "SYNCED", None)


def obj(kind: str, name: str, *, api: str = "v1", namespace: str = "", **more: Any) -> Object:
    metadata = {"name": name, "uid": f"{kind}-{name}".lower()} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata | more.pop("metadata", {}), **more}


def a_node(name: str, cpu: str = "4", **labels: str) -> Object:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    metadata = {"labels": {"kubernetes.io/hostname": name} | labels}
    return obj("Node", name, metadata=metadata, spec={}, status={"allocatable": amounts, "conditions": ready})


def a_pod(name: str, cpu: str = "1", *, node: str = "", scheduler: str = "kubestow", **spec: Any) -> Object:
    """A pod of a Job, so that it arrives again if it is evicted."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"schedulerName": scheduler, "containers": containers} | ({"nodeName": node} if node else {}) | spec
    status = {"phase": "Running" if node else "Pending"}
    return obj("Pod", name, namespace="default", metadata={"ownerReferences": [owner]}, spec=spec, status=status)


def gone(of: Object) -> Object:
    names = {key: value for key, value in of["metadata"].items() if key in {"name", "namespace", "uid"}}
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], "metadata": names}


def lines(events: Iterable[tuple[float, str, Object | None]], header: Object = HEADER) -> bytes:
    rows = [header, *({"t": t, "type": type_} | ({"object": o} if o else {}) for t, type_, o in events)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def history(path: Path, events: Iterable[tuple[float, str, Object | None]]) -> Path:
    path.write_bytes(gzip.compress(lines(events), mtime=0))
    return path


def arguments(path: Path, **options: Any) -> ReplayArguments:
    configuration = load.default(feature_gates=load.gates_on({}, "1.37"))
    return ReplayArguments(str(path), options.pop("candidates", [Candidate.of(configuration, "1.37")]), **options)


def replay(path: Path, **options: Any) -> ReplayAnswer:
    return replay_of(arguments(path, **options))


def run_a(answer: ReplayAnswer) -> RunAnswer:
    return next(run for run in answer.runs if run.name == "A")


def times(run: RunAnswer) -> dict[str, tuple[float | None, str, float | None]]:
    """Name → seconds until the Binding, node, and end, in whole seconds."""
    return {pod.pod.partition("/")[2]: (_whole(pod.waited_s), pod.node, _whole(pod.ended_s)) for pod in run.pods}


def _whole(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds)
