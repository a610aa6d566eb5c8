"""`python -m kubestow`: the commands `kubestow` and `kubectl kubestow`, after a check of the package `scheduler`."""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial

from kubestow.own_package import ForeignPackage, require_own_package


def main() -> int:
    """Run `kubestow` and return its exit code. A shell that completes a command gets the candidates."""
    if "_ARGCOMPLETE" in os.environ:
        return _run("kubestow.commands.completion", "complete_for_shell")
    return _run("scheduler.cli.main", "main", has_more=True)


def kubectl_plugin() -> int:
    """Run `kubectl kubestow` and return its exit code."""
    return _run("scheduler.cli.kubectl_plugin", "main", has_more=True)


def kubectl_complete() -> int:
    """Print the candidates for `kubectl kubestow` at the TAB key and return the exit code."""
    return _run("kubestow.commands.completion", "complete_for_kubectl")


def _run(module: str, function: str, *, has_more: bool = False) -> int:
    """Run a function; with `has_more` it gets the operator's commands, of which the scheduler's package knows nothing."""
    try:
        require_own_package()
    except ForeignPackage as foreign:
        print(foreign, file=sys.stderr)
        return 1
    run = getattr(importlib.import_module(module), function)
    if has_more:
        from kubestow.commands.flags import OPERATOR_COMMANDS

        run = partial(run, more=OPERATOR_COMMANDS)
    code: int = run()
    return code


if __name__ == "__main__":
    sys.exit(main())
