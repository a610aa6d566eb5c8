"""The configuration that a real kube-scheduler writes is one that Kubestow takes: so users begin to migrate."""

import subprocess
from pathlib import Path

import pytest

from scheduler.config.load import gates_on, parse
from scheduler.core.feature_gates import closest_version
from scheduler.profiles.build import build_profiles
from tests.e2e.controlplane.build import VERSION
from tests.e2e.controlplane.gate import binaries_or_skip

OF_GROUPS = {
    "1.36": "GenericWorkload=true,GangScheduling=true",
    "1.37": "GenericWorkload=true",
    "1.38": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
}
"""The feature gates of pod groups, which add plugins to the default ones."""


def written(directory: Path, *flags: str) -> str:
    """What kube-scheduler writes; it contacts no server."""
    path = directory / "configuration.yaml"
    command = [f"{binaries_or_skip('kube-scheduler')}/kube-scheduler", f"--write-config-to={path}", *flags]
    subprocess.run([*command, "--master=http://127.0.0.1:9", "--secure-port=0"], check=True, capture_output=True)
    return path.read_text()


@pytest.mark.parametrize("gates", ["", "groups"])
def test_a_configuration_that_kube_scheduler_wrote_loads(tmp_path: Path, gates: str) -> None:
    """Only the names must be changed that two schedulers may not share; two plugins for groups are left out."""
    version = closest_version(VERSION)
    flags = [f"--feature-gates={OF_GROUPS[version]}"] if gates else []
    text = written(tmp_path, *flags)
    assert "schedulerName: default-scheduler" in text
    text = text.replace("default-scheduler", "kubestow").replace(
        "resourceName: kube-scheduler", "resourceName: kubestow"
    )

    configuration = parse(text, source="configuration.yaml", feature_gates=gates_on({}, version))
    profile = build_profiles(configuration)["kubestow"]

    assert set(profile.resolved.absent) <= {"TopologyPlacementGenerator", "PodGroupPodsCount"}
    assert bool(profile.resolved.absent) == (bool(gates) and "Topology" in OF_GROUPS[version])
    assert [plugin.name for plugin in profile.pre_enqueue].count("GangScheduling") == 1
    assert "VolumeBinding" in [ref.name for ref in profile.resolved.points["filter"]]
