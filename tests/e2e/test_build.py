"""Where the control plane's binaries come from, without building any."""

from pathlib import Path

import pytest

from tests.e2e.controlplane import build
from tests.e2e.controlplane.gate import binaries_or_skip


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, no assets, no Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)


def fill(place: Path, *names: str) -> Path:
    place.mkdir(parents=True)
    for name in names:
        (place / name).touch(0o755)
    return place


def test_without_go_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2E", raising=False)

    with pytest.raises(pytest.skip.Exception, match=r"^no control plane: KUBEBUILDER_ASSETS .* Go is not installed"):
        binaries_or_skip()
    assert build.main() == 0


def test_required_means_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2E", "required")

    with pytest.raises(pytest.fail.Exception, match="E2E=required, but no control plane"):
        binaries_or_skip()
    assert build.main() == 1


def test_assets_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cached = fill(build.cache_directory(), *build.NAMES)
    assets = fill(tmp_path / "assets", *build.CORE_NAMES)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert build.binaries(*build.CORE_NAMES) == assets
    assert build.binaries() == cached


def test_a_program_is_built_with_go_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(fill(tmp_path / "assets", *build.NAMES)))
    (tmp_path / "main.go").write_text("package main\n")

    with pytest.raises(build.Unavailable, match=r"^no oracle: Go is not installed"):
        build.program("oracle", [tmp_path / "main.go"])


def test_the_cache_is_keyed_by_what_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = build.cache_directory()
    changed = tmp_path / "go.mod"
    changed.write_text("module other\n")
    monkeypatch.setattr(build, "_KEY_FILES", (changed,))

    assert build.cache_directory() != before


@pytest.mark.parametrize(
    ("minor", "names"), [("1.37", []), ("1.38", ["standin.py"])], ids=["nothing stands in", "a stand-in"]
)
def test_the_writer_of_a_standin_decides_what_is_built(minor: str, names: list[str]) -> None:
    """Another text of it writes another source, which must not go on as what was built before."""
    files = build.key_files(Path(build.__file__).with_name(f"kubernetes-{minor}"))

    assert [file.name for file in files] == ["go.mod", "go.sum", "tools.go", *names]
