"""Print the tables of codes in docs/explain.md: `python -m tools.explanation_page`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scheduler.explain.codes import CHANGES, MEANINGS

PAGE: Final = Path(__file__).parents[1] / "docs/explain.md"
_BEGIN, _END = "<!-- codes, generated -->", "<!-- end of codes -->"


def tables() -> Iterator[str]:
    """Yield the lines of both tables."""
    yield from ("| code of a reason | meaning | usual remedy |", "| --- | --- | --- |")
    for code, each in MEANINGS.items():
        yield f"| `{code}` | {each.meaning} | {each.remedy} |"
    yield from ("", "| code of a change | what it does |", "| --- | --- |")
    for code, text in CHANGES.items():
        yield f"| `{code}` | {text} |"


def with_tables(page: str) -> str:
    """Return the page with the current tables between its marks."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}\n\n" + "\n".join(tables()) + f"\n\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
