"""The table of kube-scheduler's flags has the flags of the binary."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.test_upstream_flags import FLAGS, name_of

pytestmark = pytest.mark.e2e


def test_the_table_has_every_flag_of_the_binary(control_plane_binaries: Path) -> None:
    command = [str(control_plane_binaries / "kube-scheduler"), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    flags = set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z0-9-]+)", text, re.MULTILINE)) - {"--help"}
    assert flags == {name_of(flag) for flag in FLAGS}
