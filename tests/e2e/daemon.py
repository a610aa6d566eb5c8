"""The real daemon, `python -m scheduler run`, as a subprocess that cannot outlive the test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.controlplane.process import Group, Server

SCHEDULER_NAME = "kubestow"
_REPOSITORY = Path(__file__).parents[2]


@contextmanager
def daemon(plane: ControlPlane, *scheduler_names: str) -> Iterator[Server]:
    """Kubestow on this plane with one default profile per name. Starts and does not wait: a bound pod says it runs."""
    config = plane.directory / "kubestow.yaml"
    config.write_text(yaml.safe_dump(scheduler_config(*(scheduler_names or (SCHEDULER_NAME,)))))
    group = Group(plane.logs)
    try:
        yield group.start(
            "kubestow",
            [
                *("/usr/bin/env", f"PYTHONPATH={_REPOSITORY}", sys.executable, "-m", "scheduler", "run"),
                *("--config", str(config), "--kubeconfig", str(plane.kubeconfig)),
            ],
        )
    finally:
        group.stop()
