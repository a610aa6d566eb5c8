"""Collections of an object that should be empty, found by reflection: laws check that nothing is left behind."""

from __future__ import annotations

from typing import Any

from scheduler.cache.nodes.node_multiset import NodeMultiset


def leftovers(owner: object, *, spared: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the attributes that are non-empty dicts, sets, lists of keys or multisets, except the spared ones."""
    slots = [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {*getattr(owner, "__dict__", ()), *slots} - spared
    found = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
    return {name: value for name, value in found.items() if isinstance(value, (dict, set, NodeMultiset)) and len(value)}
