"""Kubestow as a library: simulate clusters, and write plugins (docs/library.md).

The names load when they are used, so `python -m kubestow` and the plugin of pytest start without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubestow.cluster import Cluster
    from kubestow.result import Answer, Result
    from kubestow.simulation import (
        ConfigErrors,
        InputError,
        NodesNeededAnswer,
        Options,
        PluginLoadError,
        ReplayAnswer,
        nodes_needed,
        replay,
        simulate,
    )
    from scheduler import __version__

__all__ = [
    "Answer",
    "Cluster",
    "ConfigErrors",
    "InputError",
    "NodesNeededAnswer",
    "Options",
    "PluginLoadError",
    "ReplayAnswer",
    "Result",
    "__version__",
    "nodes_needed",
    "replay",
    "simulate",
]

_MODULES: Final = {
    "Answer": "kubestow.result",
    "Cluster": "kubestow.cluster",
    "ConfigErrors": "kubestow.simulation",
    "InputError": "kubestow.simulation",
    "NodesNeededAnswer": "kubestow.simulation",
    "Options": "kubestow.simulation",
    "PluginLoadError": "kubestow.simulation",
    "ReplayAnswer": "kubestow.simulation",
    "Result": "kubestow.result",
    "__version__": "scheduler",
    "nodes_needed": "kubestow.simulation",
    "replay": "kubestow.simulation",
    "simulate": "kubestow.simulation",
}


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kubestow.own_package import require_own_package

        require_own_package()
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
