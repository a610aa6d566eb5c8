"""Kubeconfigs of one cluster and one user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kubeconfig(user: Mapping[str, Any], server: str, *, name: str = "k", **cluster: Any) -> dict[str, Any]:
    """`cluster` has further fields of the cluster; `name` is that of cluster, context and user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server} | cluster}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
