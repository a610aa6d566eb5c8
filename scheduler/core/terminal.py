"""The one rule for texts of a cluster that are printed on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with control characters as escapes, but for line ends and tabs.

    Names and messages of a cluster must not move the cursor or change the terminal. Also escaped are characters that
    change the direction of a text.
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )
