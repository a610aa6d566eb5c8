"""Build Kubernetes' own end-to-end tests and kwok, once per user.

Both are Go modules of the module proxy. `e2e.test` is the test binary of k8s.io/kubernetes/test/e2e, at the version of
the control plane. kwok runs no container but reports the pods of its nodes as running. The cache is keyed by the
files that decide both modules' source and by the flags.

`python -m tests.upstream.build` builds ahead of a run and prints where the binaries are.
"""

import sys
from pathlib import Path

from tests.e2e.controlplane import build
from tests.e2e.controlplane.build import GoBuild, Unavailable

E2E_TEST, KWOK = "e2e.test", "kwok"

_HERE = Path(__file__).parent
_E2E = f"e2e-{build.MINOR}"
_KEY_FILES = build.key_files(_HERE / _E2E, _HERE / "kwok")
_COMMON = ("-p", "2", "-trimpath", "-ldflags")
_E2E_FLAGS = (*_COMMON, build.LDFLAGS, "-o", E2E_TEST)
_KWOK_FLAGS = (*_COMMON, "-s -w", "-o", KWOK)
_NO_GO = "no upstream end-to-end tests: Go is not installed to build them with"


def binaries() -> Path:
    """Return the directory of `e2e.test` and `kwok`; builds them if need be. Raises `Unavailable` without Go."""
    builds = (
        GoBuild(_HERE / _E2E, ("k8s.io/kubernetes/test/e2e",), _E2E_FLAGS, ("test", "-c", "-vet=off")),
        GoBuild(_HERE / "kwok", ("sigs.k8s.io/kwok/cmd/kwok",), _KWOK_FLAGS),
    )
    return build.built(cache_directory(), (E2E_TEST, KWOK), builds, without=_NO_GO)


def cache_directory() -> Path:
    """Return where this revision's binaries are kept, whether they exist or not."""
    return build.cache("upstream", (_E2E_FLAGS, _KWOK_FLAGS), _KEY_FILES)


def main() -> int:
    if not cache_directory().exists():
        print(f"e2e.test {build.VERSION} and kwok: building once, some ten minutes ...", file=sys.stderr, flush=True)  # noqa: T201
    try:
        print(f"e2e.test {build.VERSION} and kwok: {binaries()}", file=sys.stderr)  # noqa: T201
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
