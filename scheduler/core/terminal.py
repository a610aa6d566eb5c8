"""Texts for a terminal: what a cluster wrote, and numbers with their nouns."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with control characters as escapes, but for line ends and tabs.

    Names and messages of a cluster must not move the cursor or change the terminal. Also escaped are characters that
    change the direction of a text.
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, in the plural unless it is 1: `1 pod`, `2 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
