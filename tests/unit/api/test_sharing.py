import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api import core_v1 as sharing
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import ObjectDecoder, from_manifest
from scheduler.api.podinfo import pod_info
from scheduler.core.caching import Interner
from tests.examples import examples

DECODER = ObjectDecoder("Pod", Pod)


def manifest(name="a", *, node="n", labels=None, cpu="100m", tolerations=(), statuses=(), **spec):
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            "tolerations": list(tolerations),
            **spec,
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": list(statuses),
        },
    }


def decoded(raw):
    pod = DECODER.decode(msgspec.json.encode(raw))
    assert isinstance(pod, Pod)
    return pod


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
STATUS = {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "allocatedResources": {"cpu": "100m"}}
NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
TOLERATION = {"key": "k", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda pod: pod.metadata.namespace, id="namespace"),
        pytest.param(lambda pod: pod.metadata.labels, id="labels"),
        pytest.param(lambda pod: pod.spec.node_name, id="node name"),
        pytest.param(lambda pod: pod.spec.containers, id="containers"),
        pytest.param(lambda pod: pod.spec.init_containers, id="init containers"),
        pytest.param(lambda pod: pod.spec.tolerations, id="tolerations"),
        pytest.param(lambda pod: pod.spec.affinity, id="affinity"),
        pytest.param(lambda pod: pod.spec.topology_spread_constraints, id="spread constraints"),
        pytest.param(lambda pod: pod_info(pod).placement_shape, id="what its nodeSelector and affinity are known by"),
        pytest.param(lambda pod: pod_info(pod).spread_shape, id="what its spread constraints are known by"),
        pytest.param(lambda pod: pod.spec.overhead, id="an empty map"),
        pytest.param(lambda pod: pod.status.conditions, id="conditions"),
        pytest.param(lambda pod: pod.status.container_statuses, id="container statuses"),
    ],
)
def test_pods_of_a_template_share_what_it_gives_them(part):
    """Two pods that differ in name only are one object but for the name."""
    one, other = (
        decoded(
            manifest(
                name,
                labels={"app": "x"},
                tolerations=[TOLERATION],
                statuses=[STATUS],
                initContainers=[{"name": "i", "image": "j"}],
                affinity={"podAffinity": {HARD: [NEAR]}},
                topologySpreadConstraints=[NEAR],
            )
        )
        for name in "ab"
    )

    assert part(one) is part(other)
    assert ("a", "b") == (one.metadata.name, other.metadata.name)


def test_a_pod_that_waits_is_left_alone():
    """It is replaced soon: sharing would not pay."""
    one, other = (decoded(manifest(name, node="", labels={"app": "x"})) for name in "ab")

    assert one.metadata.labels == other.metadata.labels
    assert one.metadata.labels is not other.metadata.labels


def test_a_pod_that_is_read_leniently_shares_as_well():
    """A null where a list should be costs a second decoding, and nothing else."""
    plain = decoded(manifest("a", labels={"app": "lenient"}))
    lenient = decoded(manifest("b", labels={"app": "lenient"}, volumes=None))

    assert plain.metadata.labels is lenient.metadata.labels


def test_what_is_remembered_has_a_limit(monkeypatch):
    monkeypatch.setattr(sharing, "_known_labels", Interner(10))

    for number in range(100):
        decoded(manifest(labels={"index": str(number)}))

    assert 0 < len(sharing._known_labels) <= 10


texts = st.sampled_from(["", "a", "b"])
quantities = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "1000m", "2", 1]))
containers = st.lists(
    st.fixed_dictionaries(
        {"name": texts, "image": texts, "resources": st.fixed_dictionaries({"requests": quantities})},
        optional={
            "restartPolicy": texts,
            "ports": st.lists(st.fixed_dictionaries({"hostPort": st.integers(0, 2), "hostIP": texts}), max_size=2),
        },
    ),
    max_size=2,
)
statuses = st.lists(
    st.fixed_dictionaries(
        {"name": texts},
        optional={
            "allocatedResources": quantities,
            "resources": st.fixed_dictionaries({}, optional={"requests": quantities}),
        },
    ),
    max_size=2,
)
terms = st.fixed_dictionaries(
    {"topologyKey": texts},
    optional={
        "labelSelector": st.fixed_dictionaries({}, optional={"matchLabels": st.dictionaries(texts, texts)}),
        "namespaceSelector": st.just({}),
        "minDomains": st.none() | st.integers(0, 1),
    },
)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": texts},
            optional={
                "namespace": texts,
                "labels": st.dictionaries(texts, texts),
                "ownerReferences": st.lists(st.fixed_dictionaries({"uid": texts, "controller": st.booleans()})),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"nodeName": texts},
            optional={
                "containers": containers,
                "initContainers": containers,
                "tolerations": st.lists(st.fixed_dictionaries({}, optional={"key": texts, "effect": texts})),
                "affinity": st.fixed_dictionaries(
                    {}, optional={"podAntiAffinity": st.fixed_dictionaries({HARD: st.lists(terms, max_size=2)})}
                ),
                "topologySpreadConstraints": st.lists(terms, max_size=2),
                "preemptionPolicy": texts,
                "overhead": quantities,
                "nodeSelector": st.dictionaries(texts, texts),
            },
        ),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "phase": texts,
                "conditions": st.lists(
                    st.fixed_dictionaries({"type": texts}, optional={"observedGeneration": st.integers(0, 2)})
                ),
                "containerStatuses": statuses,
                "initContainerStatuses": statuses,
            },
        ),
    }
)


@settings(max_examples=examples(50))
@given(st.lists(pods, max_size=4))
def test_a_shared_pod_equals_a_pod_of_its_manifest(raws):
    """Whatever was decoded before, a pod is what it would be by itself."""
    for raw in raws:
        assert decoded(raw) == from_manifest(Pod, raw)
