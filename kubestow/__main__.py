"""`python -m kubestow`: the commands `kubestow` and `kubectl kubestow`, after a check of the package `scheduler`."""

from __future__ import annotations

import importlib
import sys

from kubestow.own_package import ForeignPackage, require_own_package


def main() -> int:
    """Run `kubestow` and return its exit code."""
    return _run("scheduler.cli.main", "main")


def kubectl_plugin() -> int:
    """Run `kubectl kubestow` and return its exit code."""
    return _run("scheduler.cli.kubectl_plugin", "main")


def kubectl_complete() -> int:
    """Print the candidates for `kubectl kubestow` at the TAB key and return the exit code."""
    return _run("scheduler.cli.kubectl_plugin", "complete")


def _run(module: str, function: str) -> int:
    try:
        require_own_package()
    except ForeignPackage as foreign:
        print(foreign, file=sys.stderr)
        return 1
    code: int = getattr(importlib.import_module(module), function)()
    return code


if __name__ == "__main__":
    sys.exit(main())
