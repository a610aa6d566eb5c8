"""The module that stands in for one that the Go module proxy does not serve, without Go."""

from pathlib import Path

import pytest

from tests.e2e.controlplane import standin

FOLDER = standin.CUSTOM_RESOURCES.folder


def put(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_the_packages_have_their_new_import_path(tmp_path: Path) -> None:
    """Tests stay behind, and so do conversions, which need internal types."""
    source, place = tmp_path / "source", tmp_path / "place"
    types = source / "pkg/apis/apiextensions/v1"
    put(types / "types.go", "package v1\n")
    put(types / "types_test.go", "package v1\n")
    put(types / "conversion.go", "package v1\n")
    put(source / "pkg/apis/apiextensions/v1beta1/types.go", "package v1beta1\n")
    put(
        source / "pkg/client/listers/v1.go",
        'import "k8s.io/apiextensions-apiserver/pkg/apis"\nimport "sigs.k8s.io/structured-merge-diff/v6/typed"\n',
    )

    standin.CUSTOM_RESOURCES.write(source, place)

    assert sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()) == [
        "go.mod",
        "pkg/apis/apiextensions/v1/null.go",
        "pkg/apis/apiextensions/v1/types.go",
        "pkg/apis/apiextensions/v1beta1/null.go",
        "pkg/apis/apiextensions/v1beta1/types.go",
        "pkg/client/listers/v1.go",
    ]
    assert (place / "pkg/client/listers/v1.go").read_text() == (
        'import "k8s.io/apiextensions-api/pkg/apis"\nimport "sigs.k8s.io/structured-merge-diff/v7/typed"\n'
    )


def test_nothing_is_downloaded_without_need(tmp_path: Path) -> None:
    """No `replace` line names the stand-in: the command is not run."""
    put(tmp_path / "go.mod", "module m\n")

    standin.provide(tmp_path, "/no/go")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module that needs the stand-in, with a command that names a source in the place of Go."""
    source = tmp_path / "source"
    for version in ("v1", "v1beta1"):
        put(source / f"pkg/apis/apiextensions/{version}/types.go", f"package {version}\n")
    put(tmp_path / "module/go.mod", "module m\n\nreplace k8s.io/apiextensions-api => ./apiextensions-api\n")
    go = tmp_path / "go"
    put(go, f'#!/bin/sh\necho \'{{"Dir": "{source}"}}\'\n')
    go.chmod(0o755)
    return tmp_path / "module"


def test_the_standin_is_written_once(module: Path) -> None:
    standin.provide(module, str(module.with_name("go")))

    standin.provide(module, "/no/go")

    assert sorted(file.name for file in module.iterdir()) == ["apiextensions-api", "go.mod"]
    assert (module / FOLDER / "pkg/apis/apiextensions/v1/types.go").exists()


def test_what_another_text_of_the_writer_wrote_is_written_again(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(module / FOLDER / "go.mod", "written before the file said by what\n")
    standin.provide(module, str(module.with_name("go")))
    assert (module / FOLDER / "go.mod").read_text().startswith("module k8s.io/apiextensions-api\n")
    changed = module.with_name("changed.py")
    changed.write_text("# another text\n")
    (module / FOLDER / "go.mod").write_text("written by another text\n")
    monkeypatch.setattr(standin, "__file__", str(changed))

    standin.provide(module, str(module.with_name("go")))

    assert (module / FOLDER / "go.mod").read_text().startswith("module k8s.io/apiextensions-api\n")
