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


class _Finder:
    """Find a moved module under its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self  # no subclass of importlib.abc.Loader, whose import takes 28 ms
        return ModuleSpec(fullname, loader) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is {MOVED[spec.name]} now", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(MOVED[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own specification, which the import system has replaced.

        The module was executed before.
        """
        spec = module.__spec__
        if spec is not None and spec.name in MOVED:
            module.__spec__ = spec.loader_state


def install() -> None:
    """Make the old names importable. Safe to repeat."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
