"""Code blocks of a page of docs/, so that a test can run them unchanged."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FENCED = re.compile(r"^```(\w+) (\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^```console\n\$ ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def named(page: str) -> dict[str, str]:
    """The fenced blocks with a name after their language, by name."""
    found = _FENCED.findall((DOCS / page).read_text(encoding="utf-8"))
    blocks = {name: text for _, name, text in found}
    assert len(blocks) == len(found), "two blocks of one name"
    return blocks


def sessions(page: str) -> dict[str, str]:
    """Command → output on the page."""
    return dict(_SESSION.findall((DOCS / page).read_text(encoding="utf-8")))
