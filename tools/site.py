"""Hooks of mkdocs: README.md is the first page, and links to files outside of docs/ lead to the repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(\]\()([^()\s:]+)(\))")
_README: Final = "index.md"


def slug(text: str, separator: str) -> str:
    """Return the anchor of a heading as GitHub makes it, so that links work there and here."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_files(files: Any, config: Any) -> Any:
    """Add README.md as the first page."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found]

    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, _README, content=_LINK.sub(_inside, text)))
    return files


def _inside(link: re.Match[str]) -> str:
    """Return a link of README.md, which is one folder above, as a link of a page in docs/."""
    target = link[2]
    moved = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    return f"{link[1]}{moved}{link[3]}"


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Replace links that leave docs/, and links to folders, by links to the repository."""

    def replaced(link: re.Match[str]) -> str:
        path, _, anchor = link[2].partition("#")
        if not path:
            return link[0]
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), path))
        is_page = target.startswith("docs/") and (_ROOT / target).is_file()
        if is_page and not target.endswith((".json", ".jsonl")):
            return link[0]
        place = "tree" if (_ROOT / target).is_dir() else "blob"
        suffix = f"#{anchor}" if anchor else ""
        return f"{link[1]}{config['repo_url']}/{place}/main/{target}{suffix}{link[3]}"

    return _LINK.sub(replaced, markdown)
