"""Old names of the modules that plugins import (docs/plugins.md). They work with a DeprecationWarning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MOVED: Final = {
    "scheduler.core.events": "scheduler.core.cluster_events",
    "scheduler.core.podinfo": "scheduler.api.podinfo",
    "scheduler.core.verdicts": "scheduler.framework.status",
    "scheduler.framework.hints": "scheduler.framework.interface",
    "scheduler.framework.points": "scheduler.framework.interface",
    "scheduler.framework.ports": "scheduler.framework.handle",
    "scheduler.framework.state": "scheduler.framework.interface",
}
_TESTING: Final = "scheduler.testing"
"""The package that is `simulator` now (ADR 0013)."""


def new_name(fullname: str) -> str:
    """Return the present name of a module that was moved, or "" for another module."""
    if fullname == _TESTING or fullname.startswith(f"{_TESTING}."):
        return f"simulator{fullname.removeprefix(_TESTING)}"
    return MOVED.get(fullname, "")


class _Finder:
    """Find a moved module under its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self  # no subclass of importlib.abc.Loader, whose import takes 28 ms
        return ModuleSpec(fullname, loader) if new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = new_name(spec.name)
        warnings.warn(f"{spec.name} is {name} now", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification that the import system has replaced. The module was executed before."""
        spec = module.__spec__
        if spec is not None and new_name(spec.name):
            module.__spec__ = spec.loader_state


def install() -> None:
    """Make the old names importable. Safe to repeat.

    The finder comes first: a later one would find `scheduler.testing.builders` by the path of `simulator` and import it twice.
    """
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
