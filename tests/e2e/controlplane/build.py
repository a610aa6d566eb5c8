"""Where the control plane's binaries come from.

In this order: the directory `KUBEBUILDER_ASSETS` if it holds the binaries; a per-user cache keyed by everything
that decides the result (both modules' go.mod, go.sum and tools.go, and the flags below); `go build` into that cache,
which takes some ten minutes once. Parallel runs build once: a lock makes the rest wait.

The environment variable `KUBERNETES` chooses the minor version: 1.37 (the default), 1.38, 1.36, or 1.34 for a smoke run.

`python -m tests.e2e.controlplane.build` does it ahead of the tests and says what it does.
`program()` builds programs of this repository from the same packages, in their module and next to them in the cache.
`built()` is for modules of other directories, such as Kubernetes' own end-to-end tests (`tests/upstream/build.py`).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.e2e.controlplane import standin

RELEASES = {"1.34": "v1.34.4", "1.36": "v1.36.3", "1.37": "v1.37.2", "1.38": "v1.38.0-beta.0"}
MINOR = os.environ.get("KUBERNETES") or "1.37"
if MINOR not in RELEASES:
    raise ValueError(f"KUBERNETES={MINOR}: expected one of {', '.join(RELEASES)}")
VERSION = RELEASES[MINOR]
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CORE_NAMES = ("etcd", "kube-apiserver")  # what other people's KUBEBUILDER_ASSETS hold


def key_files(*modules: Path) -> tuple[Path, ...]:
    """Return the files that decide which source these modules build: their own, and the writer of a stand-in that they need."""
    own = tuple(module / name for module in modules for name in ("go.mod", "go.sum", "tools.go"))
    return (*own, Path(standin.__file__)) if any(map(standin.needed, modules)) else own


_HERE = Path(__file__).parent
_KUBERNETES = f"kubernetes-{MINOR}"
_KEY_FILES = key_files(_HERE / _KUBERNETES, _HERE / "etcd")
_LINKED = "k8s.io/component-base/version"
# Without the version strings, feature gates take the wrong defaults.
LDFLAGS = (
    f"-s -w -X {_LINKED}.gitVersion={VERSION} -X {_LINKED}.gitMajor=1 -X {_LINKED}.gitMinor={MINOR.partition('.')[2]}"
)
_Build = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Module, packages or files, and flags, of which the last is where the result goes."""
_BUILDS: tuple[_Build, ...] = (
    ("etcd", ("go.etcd.io/etcd/server/v3",), ("-o", "etcd")),
    (
        _KUBERNETES,
        tuple(f"k8s.io/kubernetes/cmd/{name}" for name in NAMES[1:]),
        ("-trimpath", "-ldflags", LDFLAGS, "-o", "./"),
    ),
)


class GoBuild(NamedTuple):
    """One call of Go. The last of the flags is the output's path, relative to the directory of the results."""

    module: Path
    packages: tuple[str, ...]
    flags: tuple[str, ...]
    command: tuple[str, ...] = ("build",)


_NO_PLANE = "no control plane: KUBEBUILDER_ASSETS is not set and Go is not installed to build kube-apiserver with"


class Unavailable(Exception):
    """There are no binaries and no Go to build them with. The message is one line for the user."""


class BuildFailed(Exception):
    """Go is there, but did not build. The message ends with its last words."""


def binaries(*names: str) -> Path:
    """The directory that holds the named binaries (all four if none is named); builds them if need be.

    Costs nothing if they exist, minutes of all cores if they do not.
    """
    wanted = names or NAMES
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        if _complete(Path(assets), wanted):
            return Path(assets)
        print(f"KUBEBUILDER_ASSETS={assets} lacks some of {', '.join(wanted)}: not used", file=sys.stderr)  # noqa: T201
    builds = (GoBuild(_HERE / module, packages, flags) for module, packages, flags in _BUILDS)
    return built(cache_directory(), NAMES, builds, without=_NO_PLANE)


def sources(folder: Path) -> list[Path]:
    """Return the Go files of a program for the version under test: all but one of `until_1_37.go` and `since_1_38.go`.

    The two have the same functions, because upstream's own changed.
    """
    other = "until_1_37.go" if MINOR == "1.38" else "since_1_38.go"
    return sorted(file for file in folder.glob("*.go") if file.name != other)


def program(name: str, sources: Sequence[Path]) -> Path:
    """A program of these Go files, which may import whatever kube-scheduler is made of, and reach what it does not export.

    Built if need be: in seconds where the control plane was, whose compiled packages it takes. Keyed by the files' text.
    Raises `Unavailable` without Go, whatever `KUBEBUILDER_ASSETS` holds.
    """
    flags = ("-trimpath", "-ldflags", f"{LDFLAGS} -checklinkname=0", "-o", f"./{name}")
    files = tuple(str(file) for file in sources)
    place = cache("programs", (name, flags), (*_KEY_FILES, *sources))
    builds = (GoBuild(_HERE / _KUBERNETES, files, flags),)
    return built(place, (name,), builds, without=f"no {name}: Go is not installed to build it with") / name


def built(place: Path, names: tuple[str, ...], builds: Iterable[GoBuild], *, without: str) -> Path:
    """Return `place` once it holds all names; run the builds if it does not. Raises `Unavailable(without)` without Go."""
    if not _complete(place, names):
        with _locked(place.parent):
            if not _complete(place, names):
                _build_into(place, builds, without=without)
    return place


def is_built() -> bool:
    """Whether `binaries()` would answer at once."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    return (assets is not None and _complete(Path(assets), NAMES)) or _complete(cache_directory(), NAMES)


def cache_directory() -> Path:
    """Where this revision's binaries are kept, whether they exist or not."""
    return cache("controlplane", _BUILDS, _KEY_FILES)


def cache(kind: str, flags: object, files: Iterable[Path]) -> Path:
    """Return the directory for results of this kind; flags and files, which decide the result, are its key."""
    key = hashlib.sha256(repr(flags).encode())
    for file in files:
        key.update(file.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "kubestow" / kind / key.hexdigest()[:16]


def _complete(place: Path, names: tuple[str, ...]) -> bool:
    return all(os.access(place / name, os.X_OK) for name in names)


def _go(without: str) -> str:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise Unavailable(without)
    return found


def go_environment() -> dict[str, str]:
    """Return the environment for Go. A go.mod may name a newer Go than the machine has; the Go module proxy serves it as a module."""
    return os.environ | {"GOTOOLCHAIN": "auto"}


def _build_into(place: Path, builds: Iterable[GoBuild], *, without: str) -> None:
    """Build in a temporary directory and rename, so that the place is either absent or complete. `without`: the text without Go."""
    go = _go(without)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=place.parent) as scratch:
        results = Path(scratch, "bin")
        results.mkdir()
        for module, packages, (*flags, output), verb in builds:
            standin.provide(module, go)
            command = [go, "-C", str(module), *verb, *flags, f"{results}/{output.removeprefix('./')}", *packages]
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=go_environment()
            )
            if ran.returncode:
                msg = f"{' '.join(command)}\n{ran.stderr[-4000:]}"
                raise BuildFailed(msg)
        if place.exists():  # left incomplete by a hand: it is in the way of the rename
            shutil.rmtree(place)
        results.rename(place)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build now if needed. 1 if there are no means to build and `E2E=required`, else 0."""
    if not is_built():
        print(f"control plane {VERSION}: building once, some ten minutes ...", file=sys.stderr, flush=True)  # noqa: T201
    try:
        print(f"control plane {VERSION}: {binaries()}", file=sys.stderr)  # noqa: T201
    except Unavailable as why:
        print(why, file=sys.stderr)  # noqa: T201
        return 1 if os.environ.get("E2E") == "required" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
