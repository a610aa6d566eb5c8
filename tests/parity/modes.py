"""The versions and the values of `parity` in which every scenario is replayed."""

from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.core.feature_gates import VERSIONS


class Mode(StrEnum):
    """The value in the profiles that are compared."""

    PARITY = "parity"
    """`parity: true`, but in the profile `OWN_WAYS`."""
    DEFAULT = "default"
    """`parity: false`, which a profile has that does not name the switch."""


class Run(NamedTuple):
    """How ours runs: with the feature gates of this version of kube-scheduler, and in this mode."""

    version: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.version}, {self.mode}"


ALL: Final = tuple(Run(version, mode) for version in VERSIONS for mode in Mode)

PREFIXES: Final = {Mode.PARITY: "kubestow", Mode.DEFAULT: "kubestow-by-default"}
"""The beginning of the scheduler names of a mode's profiles."""
