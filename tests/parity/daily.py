"""What each run replays: the default version whole, and of each further version the scenarios with other verdicts.

The rest of these versions is replayed each night. There our decisions take the same paths as in the default version.
"""

import functools
from typing import Any, Final

import pytest

from tests.e2e.controlplane.build import MINOR
from tests.parity import extenders, recordings
from tests.parity.known import REASONS
from tests.parity.recordings import RECORDED, Mode, Run, in_words_of
from tests.parity.verdict import Verdict

NIGHTLY: Final = pytest.mark.nightly


def nightly_unless_default(version: str) -> Any:
    """Return the marks of a test of many scenarios in this version."""
    return () if version == MINOR else NIGHTLY


VERSIONS: Final = [pytest.param(each, marks=nightly_unless_default(each)) for each in RECORDED]
"""For tests that need a whole replay."""


def marks(version: str, key: str) -> Any:
    """Return the marks of a test of this scenario in this version."""
    return () if key in special(version) else nightly_unless_default(version)


def marks_of_scene(version: str, key: str) -> Any:
    """Return the marks of a test of this scenario with extenders in this version."""
    is_special = extenders.ANSWERS.of(version)[key] != extenders.ANSWERS.of(MINOR)[key]
    return () if is_special else nightly_unless_default(version)


@functools.cache
def special(version: str) -> frozenset[str]:
    """Return the keys of scenarios whose verdicts, or known differences, differ from those of the default version."""
    here, there = _in_last_words(version), _in_last_words(MINOR)
    said = {key for key, verdicts in here.items() if verdicts != there.get(key)}
    for mode in Mode:
        ours, theirs = REASONS[Run(version, mode)], REASONS[Run(MINOR, mode)]
        said |= {key for key, _ in ours.keys() ^ theirs.keys()}
    return frozenset(said)


def _in_last_words(version: str) -> dict[str, dict[str, Verdict]]:
    return {
        key: {name: in_words_of(RECORDED[-1], said) for name, said in one.verdicts.items()}
        for key, one in recordings.read(version).items()
    }
