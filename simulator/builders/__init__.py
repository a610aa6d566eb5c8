"""Manifests in one line: pods, nodes, volumes, devices, claims."""

from simulator.builders.core import node, pod

__all__ = ["node", "pod"]
