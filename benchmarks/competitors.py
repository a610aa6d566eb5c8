"""Who is measured, and how each is started: kube-scheduler, the floor client, and ours, under the same client limits."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from scheduler.binding import WRITES_IN_FLIGHT
from tests.e2e.controlplane.build import binaries


@dataclass(frozen=True, slots=True)
class Limits:
    """clientConnection of every competitor."""

    qps: float = 5000
    burst: int = 5000


@dataclass(frozen=True, slots=True)
class Competitor:
    """`command(kubeconfig, scratch directory, limits)` writes what files it needs and answers the command line."""

    name: str
    scheduler_name: str
    command: Callable[[Path, Path, Limits], list[str]]


def _config(path: Path, scheduler_name: str, kubeconfig: Path, limits: Limits) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": limits.qps, "burst": limits.burst},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": scheduler_name}],
            }
        )
    )
    return path


def _kube(kubeconfig: Path, scratch: Path, limits: Limits) -> list[str]:
    config = _config(scratch / "kube.yaml", "kube", kubeconfig, limits)
    return [str(binaries() / "kube-scheduler"), f"--config={config}", "--secure-port=0"]


def _floor(kubeconfig: Path, _scratch: Path, limits: Limits) -> list[str]:
    return [
        *(sys.executable, "-m", "benchmarks.floor", "--kubeconfig", str(kubeconfig)),
        *("--scheduler-name", "floor", "--in-flight", str(WRITES_IN_FLIGHT)),
        *("--qps", str(limits.qps), "--burst", str(limits.burst)),
    ]


def _ours(kubeconfig: Path, scratch: Path, limits: Limits) -> list[str]:
    config = _config(scratch / "ours.yaml", "ours", kubeconfig, limits)
    return [sys.executable, "-m", "scheduler", "run", "--config", str(config), "--kubeconfig", str(kubeconfig)]


COMPETITORS: Mapping[str, Competitor] = {
    "kube": Competitor("kube", "kube", _kube),
    "floor": Competitor("floor", "floor", _floor),
    "ours": Competitor("ours", "ours", _ours),
}
