"""Names that only a configuration has to judge; the rules for all others are in `core.names`."""

from __future__ import annotations

from scheduler.core.names import label_key, subdomain


def csi_driver(name: str) -> list[str]:
    """What a CSI driver may be called: a subdomain of at most 63 characters, upper case allowed."""
    return ["must be no more than 63 characters"] if len(name) > 63 else subdomain(name.lower())


def resource_group(group: str) -> list[str]:
    """The part of extended resources' names before the `/`."""
    slash = ["resource group name can't contain '/'"] if "/" in group else []
    return slash + label_key(group)


def extended_resource(name: str) -> list[str]:
    """A label key with a domain outside kubernetes.io, short enough to be written as a quota (`requests.<name>`)."""
    if found := label_key(name):
        return found
    is_native = "/" not in name or "kubernetes.io/" in name
    if is_native or name.startswith("requests.") or label_key(f"requests.{name}"):
        return ["is an invalid extended resource name"]
    return []
