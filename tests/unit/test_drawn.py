"""The seed of a run: settable, printed, and another one in each run."""

import runpy

import pytest

from tests import drawn


def read() -> dict[str, object]:
    """What the plugin would have in another run."""
    return runpy.run_path(drawn.__file__)


def test_the_environment_sets_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBESTOW_SEED", "4711")

    assert read()["SEED"] == 4711


@pytest.mark.parametrize("empty", [None, ""])
def test_each_run_draws_a_seed(monkeypatch: pytest.MonkeyPatch, empty: str | None) -> None:
    """Most of twenty runs have different seeds."""
    if empty is None:
        monkeypatch.delenv("KUBESTOW_SEED", raising=False)
    else:
        monkeypatch.setenv("KUBESTOW_SEED", empty)

    assert len({read()["SEED"] for _ in range(20)}) > 10


def test_the_header_says_the_seed() -> None:
    assert drawn.pytest_report_header() == f"drawn scenarios: KUBESTOW_SEED={drawn.SEED}"


def test_a_test_that_draws_says_the_seed_if_it_fails(seed: int, request: pytest.FixtureRequest) -> None:
    """Its report has a section that names the variable."""
    assert seed == drawn.SEED
    assert ("setup", "seed", f"KUBESTOW_SEED={seed} draws the same again") in request.node._report_sections
