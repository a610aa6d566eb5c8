"""Check that the package `scheduler` is Kubestow's. PyPI has a distribution that installs a package of this name."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Final

_OWN: Final = Path(__file__).parents[1] / "scheduler"


class ForeignPackage(ImportError):
    """`import scheduler` loads a package of another distribution."""


def require_own_package() -> None:
    """Load `scheduler`. Raises ForeignPackage, which says what to uninstall, if it is not Kubestow's.

    Its place alone does not show that: another distribution replaces files in the same directory of site-packages.
    """
    if _is_own():
        return
    spec = importlib.util.find_spec("scheduler")
    assert spec is not None
    place = Path(spec.origin or next(iter(spec.submodule_search_locations or ())))
    owners = sorted(set(importlib.metadata.packages_distributions().get("scheduler", ())) - {"kubestow"})
    if owners or _OWN in {place, place.parent}:
        uninstall = f"pip uninstall {' '.join(owners)} && " if owners else ""
        advice = f"run: {uninstall}pip install --force-reinstall --no-deps kubestow"
    else:
        advice = "rename it, or remove its directory from PYTHONPATH and from the current directory"
    raise ForeignPackage(f"kubestow: the package scheduler in {place} is not Kubestow's; {advice}")


def _is_own() -> bool:
    try:
        package = importlib.import_module("scheduler")
    except Exception as failed:
        if isinstance(failed, ModuleNotFoundError) and failed.name == "scheduler":
            raise
        return False
    return getattr(package, "DISTRIBUTION", "") == "kubestow"
