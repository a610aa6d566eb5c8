"""The second generator of scenarios with volumes: what it makes, what it must not make, and that nothing is left to chance."""

from collections import Counter
from collections.abc import Mapping

from tests.parity.recordings import FIRST, Recording
from tests.parity.suite import varied_volume_ones
from tests.parity.varied_places import SCORED_GATES, SHAPED
from tests.parity.words import Json

ONCE_POD = ["ReadWriteOncePod"]


def test_no_two_pvs_are_of_one_size() -> None:
    """Else chance would choose."""
    sizes = [[volume["spec"]["capacity"]["storage"] for volume in one.storage.volumes] for one in varied_volume_ones()]

    assert [len(set(some)) for some in sizes] == [len(some) for some in sizes]


def test_no_claim_for_one_pod_is_used_by_two() -> None:
    """Where one is, we are known to differ."""
    for one in varied_volume_ones():
        exclusive = {_key(claim) for claim in one.storage.claims if claim["spec"]["accessModes"] == ONCE_POD}
        users = Counter(key for pod in one.pods for key in _claims(pod) if key in exclusive)
        assert not [key for key, count in users.items() if count > 1], one.key


def test_nothing_written_is_chance(recorded: Mapping[str, dict[str, Recording]]) -> None:
    """Of two nodes that are as good, any may be chosen, and something else would be written."""
    told = [(key, name, one) for key in _keys() for name, one in recorded[FIRST][key].verdicts.items() if one.writes]

    assert len(told) > 30
    assert [(key, name) for key, name, one in told if len(one.best()) > 1] == []


def test_most_is_neither_bound_nor_hopeless(recorded: Mapping[str, dict[str, Recording]]) -> None:
    """A pod that is refused before any node is looked at shows little."""
    told = [one for key in _keys() for one in recorded[FIRST][key].verdicts.values()]
    placed = sum(bool(one.node) for one in told)
    looked_at = sum("node(s)" in one.message for one in told)

    assert min(placed, looked_at) > len(told) // 4
    assert sum(one.preempts for one in told) >= 10


def test_random_scenarios_are_rich() -> None:
    """Everything that the plugins look at occurs."""
    drawn = varied_volume_ones()
    text = str([(one.storage, one.pods, one.asked) for one in drawn])

    assert sum(one.feature_gates == SCORED_GATES for one in drawn) >= 15
    assert sum(one.profile == SHAPED for one in drawn) >= 5
    missing = [word for word in _WORDS if text.count(word) < 4]
    assert missing == []


_WORDS = (
    *("matchFields", "'Gt'", "'Lt'", "'NotIn'", "'DoesNotExist'", "failure-domain.beta", "__", "allowedTopologies"),
    *("maximumVolumeSize", "nodeTopology", "preventPodSchedulingIfMissing", "'gone'", "'elsewhere'", "no-such-volume"),
    *(
        "awsElasticBlockStore",
        "gcePersistentDisk",
        "azureDisk",
        "cinder",
        "portworxVolume",
        "vsphereVolume",
        "azureFile",
    ),
    *("'rbd'", "'iscsi'", "'csi'", "ephemeral", "inlineVolumeSpec", "'Dedicated'", "aws://us-1-a/bad", "'Block'"),
    *("'Released'", "'Failed'", "'Lost'", "claimRef", "bound-by-controller", "selected-node", "silver", "'red'"),
    *("beta.kubernetes.io/storage-class", "migrated-plugins", "ReadWriteOncePod", "'controller': False", "'count': 0"),
)


def _keys() -> list[str]:
    return [one.key for one in varied_volume_ones()]


def _key(claim: Json) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]


def _claims(pod: Json) -> list[tuple[str, str]]:
    namespace = pod["metadata"]["namespace"]
    volumes = pod["spec"].get("volumes", ())
    named = [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]
    own = [f"{pod['metadata']['name']}-{one['name']}" for one in volumes if "ephemeral" in one]
    return [(namespace, name) for name in (*named, *own)]
