"""The PriorityClasses of a simulation. An API server computes each pod's priority and policy from them, and takes no other.

Dumps of pods alone have priorities without their classes: those are made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.testing.simulate.manifests import Found, Manifest

SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has."""
_PREEMPTS: Final = "PreemptLowerPriority"
_POLICIES: Final = ("Never", _PREEMPTS)


class _Class(NamedTuple):
    value: int
    policy: str = _PREEMPTS


class Classes:
    """Asked for one pod after the other; then `made_up` has what had to be added."""

    def __init__(self, objects: Iterable[Found]) -> None:
        """Raises InputError for a class that no server takes."""
        self._known = {name: _Class(value) for name, value in SYSTEM_CLASSES.items()}
        self._default = _Class(0)
        self._made_up: dict[str, _Class] = {}
        for found in objects:
            if found.kind == "PriorityClass":
                made = _Class(_value(found), _policy(found, found.value, "preemptionPolicy"))
                self._known[found.name] = made
                if found.value.get("globalDefault"):
                    self._default = made

    def settle(self, found: Found, spec: Manifest) -> None:
        """Make the pod's class say what the pod says itself. Raises InputError for a class that nobody knows."""
        name, value = spec.get("priorityClassName"), spec.pop("priority", None)
        if name is not None and not isinstance(name, str):
            raise found.wrong("spec.priorityClassName", f"must be a text, got {name!r}")
        known = self._known.get(name) if name else self._default
        if known is None and value is None:
            raise found.wrong("spec.priorityClassName", f"no PriorityClass {name!r} among the objects")
        wanted = known or _Class(0)
        wanted = _Class(
            wanted.value if value is None else value,
            _policy(found, spec, "spec.preemptionPolicy", usual=wanted.policy),
        )
        spec.pop("preemptionPolicy", None)
        if wanted != known:
            spec["priorityClassName"] = self._named(wanted, name if name and known is None else "")

    def _named(self, wanted: _Class, name: str) -> str:
        """A class that says just this, made up if there is none; under this name if one is given."""
        names = [known for known, made in self._known.items() if made == wanted]
        if names and not name:
            return names[0]
        name = name or _name_of(wanted)
        self._known[name] = self._made_up[name] = wanted
        return name

    def made_up(self) -> list[Found]:
        """The classes that had to be added, once every pod is settled."""
        return [
            Found(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": made.value,
                    "preemptionPolicy": made.policy,
                },
                f"PriorityClass {name}, made up for pods that have its priority",
            )
            for name, made in self._made_up.items()
        ]


def _name_of(made: _Class) -> str:
    name = f"priority-{made.value}".replace("--", "-minus-")
    return name if made.policy == _PREEMPTS else f"{name}-never"


def _value(found: Found) -> int:
    value = found.value.get("value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise found.wrong("value", f"must be a number, got {value!r}")
    return value


def _policy(found: Found, of: Manifest, field: str, *, usual: str = _PREEMPTS) -> str:
    policy = of.get("preemptionPolicy", usual)
    if policy not in _POLICIES:
        raise found.wrong(field, f"must be {' or '.join(_POLICIES)}, got {policy!r}")
    return str(policy)
