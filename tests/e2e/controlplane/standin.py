"""A local module in the place of k8s.io/apiextensions-api, which the Go module proxy does not serve.

kube-apiserver and kube-controller-manager of 1.38 import the module for the types and clients of CustomResourceDefinitions.
The packages moved there from k8s.io/apiextensions-apiserver, so this copies them from the last release that had them and
rewrites their import paths. Nothing that the tests compare depends on them.
Remove this module and the `replace` lines of go.mod as soon as the proxy serves k8s.io/apiextensions-api.
"""

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

NAME: Final = "apiextensions-api"
"""The folder next to go.mod, which names it in a `replace` line. Git ignores it."""
SOURCE: Final = "k8s.io/apiextensions-apiserver@v0.37.2"
_IMPORTS: Final = {
    '"k8s.io/apiextensions-apiserver/pkg/': '"k8s.io/apiextensions-api/pkg/',
    '"sigs.k8s.io/structured-merge-diff/v6/': '"sigs.k8s.io/structured-merge-diff/v7/',
}
"""Import path in the source → import path in the stand-in."""
_TREES: Final = ("pkg/apis/apiextensions/v1", "pkg/apis/apiextensions/v1beta1", "pkg/client")
_CONVERSIONS: Final = frozenset({"conversion.go", "zz_generated.conversion.go"})
"""They convert to the internal types, which stay in k8s.io/apiextensions-apiserver with their conversions."""
_NULL: Final = 'var nullLiteral = []byte("null")\n'
"""A variable of conversion.go that marshal.go reads."""
_GO_MOD: Final = "module k8s.io/apiextensions-api\n\ngo 1.26.0\n"
_STAMP: Final = ".revision"
"""A file of the stand-in: which text of this module wrote it."""


def needed(module: Path) -> bool:
    """Whether go.mod has the `replace` line of the stand-in. What decides the stand-in, this file, then decides the build."""
    return f"=> ./{NAME}\n" in (module / "go.mod").read_text()


def provide(module: Path, go: str) -> None:
    """Write the stand-in next to go.mod if that file needs it and this text of the module has not written it. Downloads `SOURCE`."""
    place = module / NAME
    revision = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if not needed(module) or _revision(place) == revision:
        return
    with tempfile.TemporaryDirectory(prefix=".standin-", dir=module) as scratch:
        written = Path(scratch, NAME)
        write(_downloaded(go, Path(scratch)), written)
        (written / _STAMP).write_text(revision)
        if place.exists():
            place.rename(Path(scratch, "before"))
        written.rename(place)


def write(source: Path, place: Path) -> None:
    """Write the packages of the source under their new import path to the place. Tests and conversions are left out."""
    for tree in _TREES:
        for file in sorted((source / tree).rglob("*.go")):
            if file.name in _CONVERSIONS or file.name.endswith("_test.go"):
                continue
            text = file.read_text()
            for old, new in _IMPORTS.items():
                text = text.replace(old, new)
            target = place / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    for version in ("v1", "v1beta1"):
        (place / _TREES[0]).with_name(version).joinpath("null.go").write_text(f"package {version}\n\n{_NULL}")
    (place / "go.mod").write_text(_GO_MOD)


def _downloaded(go: str, outside: Path) -> Path:
    """Return the folder of `SOURCE` in the module cache. `outside`: a folder whose module replaces nothing."""
    (outside / "go.mod").write_text("module scratch\n")
    command = [go, "mod", "download", "-json", SOURCE]
    ran = subprocess.run(command, cwd=outside, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    answer = json.loads(ran.stdout or "{}")
    if "Dir" not in answer:
        msg = f"{' '.join(command)}\n{answer.get('Error', ran.stderr)}"
        raise OSError(msg)
    return Path(answer["Dir"])


def _revision(place: Path) -> str | None:
    stamp = place / _STAMP
    return stamp.read_text() if stamp.exists() else None
