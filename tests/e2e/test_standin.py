"""The module that stands in for one that the Go module proxy does not serve, without Go."""

from pathlib import Path

import pytest

from tests.e2e.controlplane import standin


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

    standin.write(source, place)

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


@pytest.mark.parametrize(
    "replaced", [pytest.param("", id="no replace line"), pytest.param(" => ./apiextensions-api\n", id="it is there")]
)
def test_nothing_is_downloaded_without_need(tmp_path: Path, replaced: str) -> None:
    """No `replace` line names the stand-in, or the folder exists: the command is not run."""
    put(tmp_path / "go.mod", f"module m\n{replaced}")
    if replaced:
        (tmp_path / standin.NAME).mkdir()

    standin.provide(tmp_path, "/no/go")
