"""The real daemon, `python -m scheduler run`, as a subprocess that cannot outlive the test."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import Group, Server

SCHEDULER_NAME = "kubestow"
_REPOSITORY = Path(__file__).parents[2]


@contextmanager
def daemon(
    plane: ControlPlane,
    *scheduler_names: str,
    config: Mapping[str, object] | None = None,
    flags: Sequence[str] = (),
    name: str = "kubestow",
) -> Iterator[Server]:
    """Kubestow on this plane with one default profile per name. Starts and does not wait: a bound pod proves that it runs.

    `config` overrides the default configuration; `flags` come last and override both. `name` distinguishes replicas. Nothing
    is served unless a flag says so."""
    path = plane.directory / f"{name}.yaml"
    full = scheduler_config(*(scheduler_names or (SCHEDULER_NAME,))) | dict(config or {})
    path.write_text(yaml.safe_dump(full))
    group = Group(plane.logs)
    try:
        yield group.start(
            name,
            [
                *("/usr/bin/env", f"PYTHONPATH={_REPOSITORY}", sys.executable, "-m", "scheduler", "run"),
                *("--config", str(path), "--kubeconfig", str(plane.kubeconfig), "--secure-port", "0"),
                *flags,
            ],
        )
    finally:
        group.stop()
