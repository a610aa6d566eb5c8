"""The plugin of pytest: tests that fail when the workloads of a repository no longer fit on a cluster.

pytest loads this module in every test run where Kubestow is installed, so it imports nothing of Kubestow at the top.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from kubestow import Cluster, Options, Result
    from kubestow.simulation import Input

_CLUSTER = "kubestow_cluster"


class AssertFits(Protocol):
    """The value of the fixture `assert_fits`."""

    def __call__(self, *workload: Input, **options: Unpack[Options]) -> Result:
        """Simulate the workload on the fixture `kubestow_cluster`. Raises AssertionError if a pod does not fit."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `kubestow_cluster`."""
    parser.addini(
        _CLUSTER,
        "files and directories with the manifests of the cluster for the fixture kubestow_cluster, relative to rootdir",
        type="linelist",
        default=[],
    )


@pytest.fixture
def kubestow_cluster(pytestconfig: pytest.Config) -> Cluster:
    """Return the cluster of the setting `kubestow_cluster`; without the setting an empty one. Raises UsageError."""
    from kubestow import Cluster

    paths = [Path(pytestconfig.rootpath, each) for each in pytestconfig.getini(_CLUSTER)]
    for path in paths:
        if not path.exists():
            raise pytest.UsageError(f"{_CLUSTER}: {path} does not exist; each line is one file or directory")
    return Cluster(*paths)


@pytest.fixture
def assert_fits(kubestow_cluster: Cluster) -> AssertFits:
    """Return a function that simulates a workload on `kubestow_cluster` and fails if a pod does not fit."""

    def check(*workload: Input, **options: Unpack[Options]) -> Result:
        __tracebackhide__ = True
        result = kubestow_cluster.simulate(*workload, **options)
        if not result.ok:
            raise AssertionError(str(result))
        return result

    return check
