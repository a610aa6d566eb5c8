"""ImageLocality: docs/spec/core.md §5.7."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.framework.interface import CycleState
from scheduler.plugins.imagelocality import ImageLocality, full_name
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import cluster, handle, info
from tests.unit.plugins.ask import scored

MIB = 2**20


def pulled(name: str, **sizes_mib: int) -> Node:
    """Has `<keyword>:latest` of each size."""
    return reporting(name, *({"names": [f"{image}:latest"], "sizeBytes": s * MIB} for image, s in sizes_mib.items()))


def reporting(name: str, *images: dict[str, Any]) -> Node:
    return from_manifest(Node, {"metadata": {"name": name}, "status": {"images": images}})


def using(*images: str, init: tuple[str, ...] = (), mounted: tuple[str, ...] = ()) -> PodInfo:
    return info(
        containers=[{"name": f"c{at}", "image": image} for at, image in enumerate(images)],
        initContainers=[{"name": f"i{at}", "image": image} for at, image in enumerate(init)],
        volumes=[
            {"name": "scratch", "emptyDir": {}},
            *({"name": f"v{at}", "image": {"reference": image}} for at, image in enumerate(mounted)),
        ],
    )


BIG = pulled("n1", four=4000, thirty=30)
DIGEST = "app@sha256:0123"
BY_TWO_NAMES = reporting("n1", {"names": [DIGEST, "reg:5000/app:v1"], "sizeBytes": 1000 * MIB})


@pytest.mark.parametrize(("nodes", "pod", "scores"), [
    pytest.param([pulled("n2", three=300), BIG], using("thirty", mounted=("three",)), [12, 0],
        id="a mounted image counts"),
    pytest.param([BY_TWO_NAMES], using(DIGEST), [100], id="by digest"),
    pytest.param([BY_TWO_NAMES], using("app:v1"), [0], id="names are compared, registries not guessed"),
    pytest.param([pulled("n1", a=100), pulled("n2", a=900)], using("a"), [7, 7], id="the size first seen is for all"),
    pytest.param([reporting("n1", {"names": ["a:latest"], "sizeBytes": 2**63 - 1})], using("a", "a"), [100],
        id="too large"),
])  # fmt: skip
def test_scores(nodes: list[Node], pod: PodInfo, scores: list[int]) -> None:
    """By node, in the order of the row; a node that nothing is known of scores 0."""
    seen = cluster(*nodes)
    by_name = scored(ImageLocality(None, handle(seen)), seen, pod)
    assert by_name is not None

    assert scores == [by_name[node.metadata.name] for node in nodes]


def test_a_share_is_a_float() -> None:
    """49 * (1 / 49) is less than 1, so what would be 50 exactly is 49, as upstream."""
    at_the_step = 536_346_624  # 23Mi and half of 977Mi
    others = [reporting(f"m{at}") for at in range(48)]
    seen = cluster(reporting("n1", {"names": ["a:latest"], "sizeBytes": 49 * at_the_step}), *others)
    scores = scored(ImageLocality(None, handle(seen)), seen, using("a"))

    assert scores is not None
    assert scores["n1"] == 49


@pytest.mark.parametrize(
    ("name", "full"),
    [
        pytest.param("app", "app:latest", id="neither tag nor digest"),
        pytest.param("reg:5000/app", "reg:5000/app:latest", id="a port is no tag"),
        pytest.param("reg:5000/team/app:v1", "reg:5000/team/app:v1", id="a port and a tag"),
        pytest.param(DIGEST, DIGEST, id="a digest"),
        pytest.param("app:v1@sha256:0123", "app:v1@sha256:0123", id="tag and digest"),
    ],
)
def test_full_names(name: str, full: str) -> None:
    """As container runtimes list them."""
    assert full == full_name(name)


def test_a_column_is_kept_until_its_images_change() -> None:
    """Pods of one shape, other pods' images, and heartbeats cost a look-up; what is on no node is one zero column."""
    seen = cluster(pulled("n1", a=500, b=100), pulled("n2"))
    plugin = ImageLocality(None, handle(seen))

    def column(*images: str) -> Any:
        return plugin.score(CycleState(), using(*images), seen.nodes.present)

    first, nothing = column("a"), column("x")
    seen.set_node(pulled("n2", b=100, other=7))
    seen.set_node(pulled("n1", a=500, b=100))

    assert first is column("a:latest")
    assert nothing is column("y", "z")
    assert not nothing.any()

    seen.set_node(pulled("n2", a=500))

    assert first is not column("a")


steps = st.tuples(
    st.sampled_from(["set", "set", "remove", "check", "check"]),
    st.integers(0, 5),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3000), max_size=3),
    st.lists(st.sampled_from(["a", "a:latest", "b", "c", "d"]), min_size=1, max_size=3),
)


def slow(seen: Cluster, pod: PodInfo) -> dict[str, int]:
    """Upstream's formula, node by node; every name has one size per cluster, that of the index."""
    nodes, images = seen.nodes, seen.nodes.images.states
    names = [full_name(c.image) for c in (*pod.pod.spec.init_containers, *pod.pod.spec.containers)]
    out = {}
    for slot in nodeset.each(nodes.present):
        here = nodes.node(slot)
        assert here is not None
        reported = {name for image in here.status.images for name in image.names or ()}
        total = 0
        for name in names:
            if name in reported:
                state = images.get(name)
                assert state is not None
                holders = sum(
                    any(name in (image.names or ()) for image in other.status.images)
                    for each in nodeset.each(nodes.present)
                    if (other := nodes.node(each)) is not None
                )
                total += int(float(state.size_bytes) * (float(holders) / float(len(nodes))))
        most = 1000 * MIB * len(names)
        out[nodes.name(slot)] = 100 * (min(max(total, 23 * MIB), most) - 23 * MIB) // (most - 23 * MIB)
    return out


@settings(max_examples=examples(150, share=SLOW_SHARE), deadline=None)
@given(st.lists(steps, max_size=25))
def test_memoised_equals_slow(history: list[tuple[str, int, dict[str, int], list[str]]]) -> None:
    """87, 142: whatever came, changed, went, or made the columns grow since the last pod of the shape."""
    seen = Cluster()
    seen.nodes = Nodes(capacity=1)
    plugin = ImageLocality(None, handle(seen))
    pods = [using("a"), using("b", "c", init=("a",)), using("d")]
    for what, at, sizes, images in history:
        if what == "set":
            seen.set_node(pulled(f"n{at}", **sizes))
        elif what == "remove":
            seen.remove_node(f"n{at}")
        else:
            pods = [*pods[-5:], using(*images[1:], init=tuple(images[:1]))]
        if what == "check":
            for pod in pods:
                assert slow(seen, pod) == scored(plugin, seen, pod)
    for pod in pods:
        assert slow(seen, pod) == scored(plugin, seen, pod)
