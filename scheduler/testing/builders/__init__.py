"""Manifests in one line: pods, nodes, volumes, devices, claims."""
