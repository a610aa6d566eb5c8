"""`kubestow check-config`: list all mistakes of a file in one run, or print the plugins of its profiles."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from scheduler.config import load
from scheduler.config.errors import ConfigError, ConfigErrors, Findings
from scheduler.core.feature_gates import GATES

if TYPE_CHECKING:
    from scheduler.config.types import Configuration
    from scheduler.framework.profile import Profile


def check_file(file: str, *, allow_default_scheduler: bool, version: str, gates: frozenset[str]) -> int:
    """Print the mistakes of the file to standard error, or its profiles to standard output. Return the exit code.

    `gates` are the feature gates that are on, with the defaults of this `version` of kube-scheduler.
    """
    configuration, profiles, errors = examine_file(
        file, allow_default_scheduler=allow_default_scheduler, feature_gates=gates
    )
    if errors or configuration is None:
        sys.stderr.write("".join(f"{line}\n" for line in lines_of(file, errors)))
        return 1
    print(f"{file}: ok", flush=True)
    _print_profiles(configuration, profiles)
    are_on = ", ".join(sorted(configuration.feature_gates & GATES.keys()))
    print(f"as kube-scheduler {version} decides, with the feature gates {are_on}")
    return 0


def examine_file(
    file: str, **options: Unpack[load.ReadOptions]
) -> tuple[Configuration | None, Mapping[str, Profile], Sequence[ConfigError]]:
    """Return the configuration, its profiles and all mistakes of the file, in the order of its lines.

    The profiles are empty if there is a mistake in the plugins. A file that is not YAML has no configuration.
    """
    try:
        configuration, findings = load.examine(load.read_text(file), source=file, **options)
    except ConfigErrors as wrong:
        return None, {}, wrong.errors
    profiles = _profiles(configuration, findings)
    return configuration, profiles, sorted(findings.errors, key=lambda error: error.line)


def lines_of(file: str, errors: Sequence[ConfigError]) -> list[str]:
    """Return one line per mistake: the file, the path of the field and the message."""
    return [f"{file}: {error.message if error.path == file else error}" for error in errors]


def _profiles(configuration: Configuration, findings: Findings) -> Mapping[str, Profile]:
    """Build the profiles; mistakes that are not in the findings yet are added to them."""
    from scheduler.profiles.build import build_profiles

    try:
        return build_profiles(configuration)
    except ConfigErrors as wrong:
        reported = {(error.path, error.message) for error in findings.errors}
        for error in wrong.errors:
            if (error.path, error.message) not in reported:
                findings.error(error.path, error.message)
        return {}


def _print_profiles(configuration: Configuration, profiles: Mapping[str, Profile]) -> None:
    """Print one line per extension point; a terminal gets lines of its width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for name, profile in profiles.items():
        points = profile.plugins
        indent = max(map(len, points)) + 4
        print(f"profile {name}")
        for point, plugins in points.items():
            line = f"  {point:{indent - 2}}{', '.join(plugins)}"
            print(textwrap.fill(line, max(width, 40), subsequent_indent=" " * indent, break_on_hyphens=False))
        if profile.resolved.absent:
            print(f"not available in this version, and left out: {', '.join(profile.resolved.absent)}")
    for path in configuration.ignored:
        print(f"accepted without effect: {path}")
