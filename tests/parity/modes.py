"""The two values of `parity` in which every scenario is replayed."""

from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """Which value the asked profiles have."""

    PARITY = "parity"
    """`parity: true`, but in the profile `OWN_WAYS`."""
    DEFAULT = "default"
    """`parity: false`, which a profile has that does not name the switch."""


PREFIXES: Final = {Mode.PARITY: "kubestow", Mode.DEFAULT: "kubestow-by-default"}
"""The beginning of the scheduler names of a mode's profiles."""
