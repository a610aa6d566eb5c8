"""Kinds of upstream's error texts of selectors.

They are apart from `selectors`, which loads the expression language: most clusters have no device class and need none.
"""

from __future__ import annotations


class CompileProblem(str):
    """Upstream's text for an error in an expression, which does not depend on the device."""

    __slots__ = ()


class MissingKey(str):
    """Upstream's text for an expression that reads an attribute which the device does not have."""

    __slots__ = ()
