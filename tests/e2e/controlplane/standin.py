"""Local modules in the place of modules that the Go module proxy does not serve.

1.38 imports three modules whose packages were parts of other modules until 1.37: the types and clients of
CustomResourceDefinitions, the helpers of upstream's own tests, and the caller of iptables. This copies packages from the
last release that had them and rewrites their import paths. Nothing that the tests compare depends on them.
Remove a stand-in and its `replace` lines as soon as the proxy serves its module.
"""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_STAMP: Final = ".revision"
"""A file of the stand-in: which text of this module wrote it."""


@dataclass(frozen=True)
class StandIn:
    """A module that is written from another one, or from nothing if that has no `source`.

    `path` is its import path; the last part names the folder next to go.mod, which a `replace` line there names too. Git ignores it.
    `trees` has folders of the source to folders of the stand-in, `texts` what is replaced in each file, and `added` files
    that the source lacks. Folders and files whose name is in `left_out` are not copied.
    """

    path: str
    added: Mapping[str, str]
    source: str = ""
    trees: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: frozenset[str] = frozenset()

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[2]

    def write(self, source: Path, place: Path) -> None:
        """Write the packages of the source under their new import path to the place. Tests are left out."""
        for tree, new in self.trees.items():
            for file in self._files(source / tree):
                _put(place / new / file.relative_to(source / tree), self._rewritten(file.read_text()))
        for name, text in self.added.items():
            _put(place / name, text)
        _put(place / "go.mod", f"module {self.path}\n\ngo 1.26.0\n")

    def _files(self, tree: Path) -> Iterator[Path]:
        for file in sorted(tree.rglob("*.go")):
            if self.left_out.isdisjoint(file.relative_to(tree).parts) and not file.name.endswith("_test.go"):
                yield file

    def _rewritten(self, text: str) -> str:
        for old, new in self.texts.items():
            text = text.replace(old, new)
        return text


_CUSTOM: Final = "pkg/apis/apiextensions/v1"
_NULL: Final = 'var nullLiteral = []byte("null")\n'
"""A variable of conversion.go that marshal.go reads."""
CUSTOM_RESOURCES: Final = StandIn(
    path="k8s.io/apiextensions-api",
    source="k8s.io/apiextensions-apiserver@v0.37.2",
    trees={name: name for name in (_CUSTOM, f"{_CUSTOM}beta1", "pkg/client")},
    texts={
        '"k8s.io/apiextensions-apiserver/pkg/': '"k8s.io/apiextensions-api/pkg/',
        '"sigs.k8s.io/structured-merge-diff/v6/': '"sigs.k8s.io/structured-merge-diff/v7/',
    },
    added={
        f"{_CUSTOM}/null.go": f"package v1\n\n{_NULL}",
        f"{_CUSTOM}beta1/null.go": f"package v1beta1\n\n{_NULL}",
    },
    # They convert to the internal types, which stay in k8s.io/apiextensions-apiserver with their conversions.
    left_out=frozenset({"conversion.go", "zz_generated.conversion.go"}),
)
_MORE: Final = """package ktesting

import "time"

func (tCtx TContext) WithDeadline(deadline time.Time, timeoutCause string) TContext {
	return tCtx.WithTimeout(time.Until(deadline), timeoutCause)
}

func (tCtx TContext) CancelBecause(cause error) {
	tCtx.Cancel(cause.Error())
}
"""
"""What 1.38 calls and 1.37 does not have."""
_NO_IPTABLES: Final = """package iptables

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

type (
	Chain        string
	Mode         int
	Protocol     string
	RulePosition string
	Table        string
)

const (
	Append           RulePosition = "-A"
	Prepend          RulePosition = "-I"
	ChainInput       Chain        = "INPUT"
	ChainOutput      Chain        = "OUTPUT"
	TableFilter      Table        = "filter"
	TableMangle      Table        = "mangle"
	TableNAT         Table        = "nat"
	UseInstalledMode Mode         = 0
)

type Interface interface {
	EnsureChain(context.Context, Table, Chain) (bool, error)
	EnsureRule(context.Context, RulePosition, Table, Chain, ...string) (bool, error)
	IsIPv6() bool
	Monitor(context.Context, Chain, []Table, func(), time.Duration)
	Protocol() Protocol
}

// NewBestEffort finds no iptables.
func NewBestEffort(context.Context, Mode) map[v1.IPFamily]Interface {
	return nil
}
"""
"""What the kubelet calls. Upstream's tests are linked with it and do not run it."""
STANDINS: Final = (
    CUSTOM_RESOURCES,
    StandIn(
        path="k8s.io/ktesting",
        source="k8s.io/kubernetes@v1.37.2",
        trees={"test/utils/ktesting": ""},
        texts={'"k8s.io/kubernetes/test/utils/ktesting': '"k8s.io/ktesting'},
        added={"more.go": _MORE},
        left_out=frozenset({"examples"}),
    ),
    StandIn(
        path="sigs.k8s.io/iptables-wrappers",
        added={"pkg/iptables/iptables.go": _NO_IPTABLES},
    ),
)


def needed(module: Path) -> list[StandIn]:
    """Return the stand-ins that `replace` lines of go.mod name. This file, which decides them, then decides the build."""
    text = (module / "go.mod").read_text()
    return [standin for standin in STANDINS if f"{standin.path} => ./{standin.folder}\n" in text]


def provide(module: Path, go: str) -> None:
    """Write the stand-ins next to go.mod that it needs and that this text of the module has not written. Downloads their sources."""
    revision = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    for standin in needed(module):
        place = module / standin.folder
        if _revision(place) != revision:
            with tempfile.TemporaryDirectory(prefix=".standin-", dir=module) as scratch:
                written = Path(scratch, standin.folder)
                standin.write(_downloaded(go, standin.source, Path(scratch)) if standin.source else written, written)
                (written / _STAMP).write_text(revision)
                if place.exists():
                    place.rename(Path(scratch, "before"))
                written.rename(place)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _downloaded(go: str, source: str, outside: Path) -> Path:
    """Return the folder of the source in the module cache. `outside`: a folder whose module replaces nothing."""
    (outside / "go.mod").write_text("module scratch\n")
    command = [go, "mod", "download", "-json", source]
    ran = subprocess.run(command, cwd=outside, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    answer = json.loads(ran.stdout or "{}")
    if "Dir" not in answer:
        msg = f"{' '.join(command)}\n{answer.get('Error', ran.stderr)}"
        raise OSError(msg)
    return Path(answer["Dir"])


def _revision(place: Path) -> str | None:
    stamp = place / _STAMP
    return stamp.read_text() if stamp.exists() else None
