"""The measured schedulers and how each is started: kube-scheduler, the floor client, and Kubestow, with the same client limits."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.gangs import GATES
from scheduler.binding import WRITES_IN_FLIGHT
from tests.e2e.controlplane.build import binaries


@dataclass(frozen=True, slots=True)
class Limits:
    """clientConnection of every competitor."""

    qps: float = 5000
    burst: int = 5000


@dataclass(frozen=True, slots=True)
class Competitor:
    """How to start it."""

    name: str
    scheduler_name: str
    command: Callable[[Path, Path, Limits, int], list[str]]
    """`(kubeconfig, scratch directory, limits, port)` → the command line; writes what files it needs."""
    ready_path: str = ""
    """Of its endpoints on that port; empty if it has none."""
    scheme: str = "http"


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


def kube(scheduler_name: str, program: Path | None = None, *flags: str) -> Competitor:
    """kube-scheduler under a name: that of the control plane, or another program, such as the one of an older version."""

    def command(kubeconfig: Path, scratch: Path, limits: Limits, port: int) -> list[str]:
        config = _config(scratch / f"{scheduler_name}.yaml", scheduler_name, kubeconfig, limits)
        return [
            *(str(program or binaries() / "kube-scheduler"), f"--config={config}", "--bind-address=127.0.0.1"),
            *(f"--secure-port={port}", f"--authentication-kubeconfig={kubeconfig}"),
            *(f"--authorization-kubeconfig={kubeconfig}", *flags),
        ]

    return Competitor(scheduler_name, scheduler_name, command, "/readyz", "https")


def _floor(kubeconfig: Path, _scratch: Path, limits: Limits, _port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "benchmarks.floor", "--kubeconfig", str(kubeconfig)),
        *("--scheduler-name", "floor", "--in-flight", str(WRITES_IN_FLIGHT)),
        *("--qps", str(limits.qps), "--burst", str(limits.burst)),
    ]


def ours(scheduler_name: str, checkout: Path | None = None) -> Competitor:
    """Kubestow under a name, from this checkout or from another one, such as an older commit."""
    program = [sys.executable, "-m", "scheduler"]
    if checkout is not None:  # -P: not from the current directory
        program = ["env", f"PYTHONPATH={checkout.resolve()}", sys.executable, "-P", "-m", "scheduler"]

    def command(kubeconfig: Path, scratch: Path, limits: Limits, port: int) -> list[str]:
        config = _config(scratch / f"{scheduler_name}.yaml", scheduler_name, kubeconfig, limits)
        return [
            *(*program, "run", "--config", str(config)),
            *("--kubeconfig", str(kubeconfig), "--secure-port", "0", "--plain-port", str(port)),
        ]

    return Competitor(scheduler_name, scheduler_name, command, "/readyz")


COMPETITORS: Mapping[str, Competitor] = {
    "kube": kube("kube"),
    "floor": Competitor("floor", "floor", _floor),
    "ours": ours("ours"),
}
WITH_GROUPS = {**COMPETITORS, "kube": kube("kube", None, GATES)}
"""kube-scheduler has the gates for groups of pods; Kubestow needs none."""
