"""Build the port forwarding of a kubelet from upstream's code: `python -m tests.e2e.kubelet.build`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.build import GoBuild, Unavailable, built, cache

_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-trimpath", "-o", "./kubelet")


def kubelet() -> Path:
    """Return the program of main.go, which is built once per user. Raises Unavailable without Go."""
    files = [_HERE / name for name in ("main.go", "go.mod", "go.sum")]
    place = cache("programs", _FLAGS, files)
    return built(place, ("kubelet",), [GoBuild(_HERE, (".",), _FLAGS)], without="Go is not installed") / "kubelet"


if __name__ == "__main__":
    try:
        print(f"kubelet: {kubelet()}", file=sys.stderr)  # noqa: T201
    except Unavailable:
        sys.exit(1 if os.environ.get("E2E") == "required" else 0)
