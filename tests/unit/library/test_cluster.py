"""`kubestow.Cluster`: the builder."""

from __future__ import annotations

import pytest

from kubestow import Cluster, InputError
from tests.unit.library.manifests import NODE, a_pod

TEXT = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: c, image: i}]}
---
# no object
"""


def test_a_cluster_is_built_step_by_step_and_simulated() -> None:
    cluster = Cluster(NODE).with_node("large", {"cpu": "8", "memory": "32Gi"}, labels={"tier": "large"}).with_yaml(TEXT)
    workload = a_pod("b") | {"spec": {**a_pod("b")["spec"], "nodeSelector": {"tier": "large"}}}

    result = cluster.simulate(workload, seed=1)

    assert set(result.placements) == {"default/a", "default/b"}
    assert result.placements["default/b"] == "large"


def test_a_cluster_never_changes() -> None:
    cluster = Cluster(NODE)

    assert cluster.with_manifests(a_pod("a"), "b.yaml").inputs == (NODE, a_pod("a"), "b.yaml")
    assert cluster.inputs == (NODE,)


def test_the_text_shows_the_inputs() -> None:
    assert repr(Cluster("dir").with_manifests(NODE, {})) == "Cluster(dir, Node n, ? ?)"


def test_a_broken_text_is_refused() -> None:
    with pytest.raises(InputError, match="text: line 2: is not YAML"):
        Cluster().with_yaml("a: [")


@pytest.mark.parametrize("text", ["examples/volumes.yaml", "[1]", "3"])
def test_a_text_without_objects_is_refused(text: str) -> None:
    """It may be the path of a file."""
    with pytest.raises(InputError, match="text: document 1: must be an object, got "):
        Cluster().with_yaml(text)


def test_a_node_has_the_extended_resources() -> None:
    (node,) = Cluster().with_node("n", {"cpu": "1", "example.com/gpu": "4"}).inputs

    assert isinstance(node, dict)
    assert node["status"]["allocatable"] == {"pods": "110", "cpu": "1", "example.com/gpu": "4"}
