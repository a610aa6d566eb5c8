"""Every reference of a docstring or comment to docs/ names a page, a section or a heading that exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_SECTION = r"§(?:[A-Z]|\d+)(?:\.\d+)*"
_PAGE = re.compile(
    rf'docs/(?P<page>[\w/-]+\.md)(?:,? "(?P<heading>[^"]+)"|(?P<sections>(?:(?:, | |–| and )(?:{_SECTION}))+))?'
)
_DECISION = re.compile(r"(?:\bADR |docs/adr/)(\d{4})\b")
_LABEL = re.compile(r"\barchitecture D\d+")


@cache
def headings(page: str) -> frozenset[str]:
    """Return the headings of a page, and the number of each numbered one."""
    found = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE)
    numbers = (re.match(r"(?:Appendix )?([A-Z]|\d+)((?:\.\d+)*)[. ]", each) for each in found)
    return frozenset(found) | {f"§{each[1]}{each[2]}" for each in numbers if each}


def problems(source: str) -> list[str]:
    """Return the references of a file that lead nowhere. A line break counts as a space."""
    text = re.sub(r"\n[ #]*", " ", source)
    wrong = [f"ADR {number}" for number in _DECISION.findall(text) if not list(DOCS.glob(f"adr/{number}-*.md"))]
    for found in _PAGE.finditer(text):
        if not (DOCS / found["page"]).is_file():
            wrong.append(found["page"])
            continue
        named = [found["heading"]] if found["heading"] else re.findall(_SECTION, found["sections"] or "")
        wrong += [f"{found['page']} {each}" for each in named if each not in headings(found["page"])]
    return wrong + _LABEL.findall(text)


def test_every_reference_leads_somewhere() -> None:
    files = [
        path
        for folder in ("kubestow", "scheduler", "simulator", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    found = {path: problems(path.read_text()) for path in files if path != Path(__file__)}

    assert {str(path.relative_to(ROOT)): wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        pytest.param('(docs/architecture.md, "Architecture")', [], id="a heading"),
        pytest.param('(docs/architecture.md,\n    "Architecture")', [], id="a heading on the next line"),
        pytest.param('(docs/architecture.md, "Nothing")', ["architecture.md Nothing"], id="no such heading"),
        pytest.param("docs/nothing.md §1", ["nothing.md"], id="no such page"),
        pytest.param("docs/spec/core.md §5.8, §A.1–§A.4", [], id="sections"),
        pytest.param("docs/spec/core.md §5.8, §5.99", ["spec/core.md §5.99"], id="no such section"),
        pytest.param("ADR 0003, docs/adr/0003", [], id="a decision"),
        pytest.param("ADR 0999, docs/adr/0998", ["ADR 0999", "ADR 0998"], id="no such decision"),
        pytest.param("(architecture D3)", ["architecture D3"], id="a label that is defined nowhere"),
    ],
)
def test_a_wrong_reference_is_caught(source: str, wrong: list[str]) -> None:
    assert problems(source) == wrong
