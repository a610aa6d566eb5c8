"""Manifests for tests of the library."""

from __future__ import annotations

from typing import Any

from simulator.builders import node, pod

NODE = node("n").cpu("2").memory("4Gi").obj()


def a_pod(name: str, cpu: str = "1") -> dict[str, Any]:
    """Return the manifest of a pod without a scheduler name."""
    return pod(name).cpu(cpu).scheduler("").obj()


def as_list(*objects: dict[str, Any]) -> dict[str, Any]:
    """Return a List of the objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}
