"""deploy/helm/README.md: equal to what `tools.chart_readme` prints, and complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.chart import CHART
from tools.chart_readme import page, values


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from leaves(below, (*path, name))
    else:
        yield path


def test_the_page_is_up_to_date() -> None:
    """Write it with: python -m tools.chart_readme > deploy/helm/README.md"""
    assert (CHART / "README.md").read_text(encoding="utf-8") == page()


def test_every_value_has_a_row() -> None:
    rows = {tuple(row.key.split(".")) for row in values()}
    given = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    missing = [path for path in leaves(given) if not any(path[:end] in rows for end in range(1, len(path) + 1))]
    assert missing == []
