"""WhatIf objects and pods for tests of the objects."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def what_if(
    spec: Object, name: str = "w", *, generation: int = 4, version: int = 5, namespace: str = "demo", **more: Any
) -> Object:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"u-{namespace}-{name}",
        "resourceVersion": str(version),
        "generation": generation,
    }
    return {"metadata": metadata, "spec": spec, **more}


def pod(name: str = "p", *, namespace: Any = None, **spec: Any) -> Object:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [], **spec}}
