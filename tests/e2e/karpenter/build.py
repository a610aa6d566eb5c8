"""Build Karpenter's own rule for the pods that it adds nodes for: `python -m tests.e2e.karpenter.build`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.build import GoBuild, Unavailable, built, cache

_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-o", "./provisionable")


def provisionable() -> Path:
    """Return the program of main.go, which is built once per user. Raises Unavailable without Go."""
    files = [_HERE / name for name in ("main.go", "go.mod", "go.sum")]
    place = cache("programs", _FLAGS, files)
    return (
        built(place, ("provisionable",), [GoBuild(_HERE, (".",), _FLAGS)], without="Go is not installed")
        / "provisionable"
    )


if __name__ == "__main__":
    try:
        print(f"karpenter: {provisionable()}", file=sys.stderr)  # noqa: T201
    except Unavailable:
        sys.exit(1 if os.environ.get("E2E") == "required" else 0)
