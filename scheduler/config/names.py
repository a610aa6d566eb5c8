"""Which names Kubernetes accepts: label keys (also called qualified names), label values, objects, extended resources.

Each function answers "" for a good name, else what is wrong with it.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and start and end with an alphanumeric character"
)


def qualified_name_problem(name: str) -> str:
    """`example.com/gpu`, `cpu`: an optional DNS subdomain and `/`, then a name of at most 63 characters."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        return "must have at most one '/'"
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return "prefix part must be a lower-case DNS subdomain of at most 253 characters"
    if not last:
        return "name part must be non-empty"
    if len(last) > 63:
        return "name part must be no more than 63 characters"
    return "" if _NAME.fullmatch(last) else f"name part {_NAME_RULE}"


def label_value_problem(value: str) -> str:
    """Empty, or at most 63 characters of the same form as a name."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    return "" if not value or _NAME.fullmatch(value) else _NAME_RULE


def subdomain_problem(name: str) -> str:
    """What most objects may be called."""
    return (
        ""
        if len(name) <= 253 and _SUBDOMAIN.fullmatch(name)
        else "must be a lower-case DNS subdomain of at most 253 characters"
    )


def csi_driver_problem(name: str) -> str:
    """What a CSI driver may be called: a subdomain of at most 63 characters, upper case allowed."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if _SUBDOMAIN.fullmatch(name.lower()) else "must be a DNS subdomain"


def dns_label_problem(name: str) -> str:
    """What a namespace may be called: a subdomain without dots."""
    is_good = len(name) <= 63 and "." not in name and _SUBDOMAIN.fullmatch(name)
    return "" if is_good else "must be a lower-case DNS label of at most 63 characters"


def extended_resource_problem(name: str) -> str:
    """A qualified name with a prefix outside kubernetes.io, short enough to be written as a quota (`requests.<name>`)."""
    problem = qualified_name_problem(name)
    if problem:
        return problem
    native = "/" not in name or "kubernetes.io/" in name
    if native or name.startswith("requests.") or qualified_name_problem(f"requests.{name}"):
        return "is not an extended resource name"
    return ""
