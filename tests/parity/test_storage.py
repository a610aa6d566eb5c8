"""The short form of storage, and the words for what is written to it: what the recordings with volumes rest on."""

from collections import Counter
from collections.abc import Mapping

import pytest

from simulator.apiserver import ApiServer
from tests.parity.api import InProcess, create_whole, put_settings, wipe
from tests.parity.recordings import FIRST, Recording
from tests.parity.storage import OTHER_UID, uid_to_come
from tests.parity.suite import varied_volume_ones, volume_ones
from tests.parity.test_scenario import of
from tests.parity.varied_places import SCORED_GATES, SHAPED
from tests.parity.volumes import changes, hand_over, put_volumes, volumes, will_be_for, will_be_for_node, will_be_marked
from tests.parity.words import Json

SELECTED = "volume.kubernetes.io/selected-node"


WHOLE: Json = {
    "classes": {"w": {}},
    "pods": {"owner": {"at": "n", "volumes": [{"ephemeral": "data"}]}},
    "pvs": {
        "free": {},
        "mine": {"for": "c", "uid": "own"},
        "going": {"leaving": True},
        "gone": {"for": "c", "uid": "other", "phase": "Released"},
    },
    "claims": {
        "c": {"class": "w"},
        "lost": {"bound": "v", "phase": "Lost"},
        "owner-data": {"owner": "owner"},
        "later-data": {"owner": "later"},
        "far": {"namespace": "red"},
    },
}


async def test_everything_is_stored_as_it_is_written() -> None:
    """Phases, uids that were not known, and what is being deleted; and wiped, finalizers or not."""
    async with ApiServer() as server:
        api, one = InProcess(server), of(**WHOLE)
        server.ensure_namespace("red")
        await put_settings(api, one)
        (owner,) = one.pods
        await create_whole(api, owner)

        await put_volumes(api, one)

        stored = await volumes(api)
        claim = stored["PersistentVolumeClaim", "default/c"]
        uid = server.get("Pod", "owner")["metadata"]["uid"]
        assert stored["PersistentVolume", "/mine"]["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert stored["PersistentVolume", "/gone"]["status"]["phase"] == "Released"
        assert stored["PersistentVolumeClaim", "default/lost"]["status"]["phase"] == "Lost"
        assert "deletionTimestamp" in stored["PersistentVolume", "/going"]["metadata"]
        assert _owner(stored, "owner-data") == uid
        assert _owner(stored, "later-data") == uid_to_come("later")
        assert ("PersistentVolumeClaim", "red/far") in stored

        await wipe(api)
        assert await volumes(api) == {}


async def test_a_claim_is_handed_over_to_the_pod_that_it_was_made_for() -> None:
    """Its owner is known only when that is there."""
    async with ApiServer() as server:
        api = InProcess(server)
        one = of(claims={"later-data": {"owner": "later"}, "x": {}}, asked={"later": {}})
        await put_volumes(api, one)

        later = await api.create(one.asked["later"])
        await hand_over(api, one, later)

        assert _owner(await volumes(api), "later-data") == later["metadata"]["uid"]


def _owner(stored: dict[tuple[str, str], Json], name: str) -> str:
    (owner,) = stored["PersistentVolumeClaim", f"default/{name}"]["metadata"]["ownerReferences"]
    return str(owner["uid"])


@pytest.mark.parametrize(
    ("kind", "name", "patch", "told"),
    [
        pytest.param("PersistentVolume", "v", {"metadata": {"labels": None}}, (), id="nothing"),
        pytest.param(
            "PersistentVolumeClaim",
            "c",
            {"metadata": {"annotations": {SELECTED: "n1"}}},
            (will_be_for_node("default/c", "n1"),),
            id="a node is selected",
        ),
        pytest.param(
            "PersistentVolumeClaim", "s", {"metadata": {"annotations": None}}, (f"claim default/s: no {SELECTED}",),
            id="a node is selected no more",
        ),
        pytest.param(
            "PersistentVolume",
            "v",
            {"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}},
            (will_be_marked("v"),),
            id="a mark",
        ),
        pytest.param(
            "PersistentVolume",
            "v",
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            ("pv v: persistentVolumeReclaimPolicy Delete",),
            id="something that must not be written",
        ),
    ],
)  # fmt: skip
async def test_what_was_written_in_words(kind: str, name: str, patch: Json, told: tuple[str, ...]) -> None:
    async with ApiServer() as server:
        api = InProcess(server)
        await put_volumes(api, of(pvs={"v": {}}, claims={"c": {}, "s": {"selected": "n"}}))
        before = await volumes(api)

        await api.patch(kind, name, "default", patch)

        assert changes(before, await volumes(api)) == told


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({}, will_be_for("v", "default/c"), id="as it is to be"),
        pytest.param(
            {"uid": None},
            "pv v: claimRef PersistentVolumeClaim v1 default/c, no uid, its version",
            id="without the uid",
        ),
        pytest.param(
            {"uid": OTHER_UID, "resourceVersion": "1"},
            "pv v: claimRef PersistentVolumeClaim v1 default/c, another uid, another version",
            id="of an earlier claim",
        ),
    ],
)
async def test_a_claim_ref_in_words(changed: Json, told: str) -> None:
    """Uids and versions differ from server to server: the words do not."""
    async with ApiServer() as server:
        api = InProcess(server)
        await put_volumes(api, of(pvs={"v": {}}, claims={"c": {}}))
        before = await volumes(api)
        meant = before["PersistentVolumeClaim", "default/c"]["metadata"]
        whole = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c"}

        reference = whole | {"uid": meant["uid"], "resourceVersion": meant["resourceVersion"]} | changed
        await api.patch("PersistentVolume", "v", "", {"spec": {"claimRef": reference}})

        assert changes(before, await volumes(api)) == (told,)


def test_no_two_pvs_are_of_one_size() -> None:
    """Else chance would choose."""
    every = (*volume_ones(), *varied_volume_ones())
    sizes = [[volume["spec"]["capacity"]["storage"] for volume in one.storage.volumes] for one in every]

    assert [len(set(some)) for some in sizes] == [len(some) for some in sizes]


def test_random_scenarios_are_rich() -> None:
    """Everything that the plugins look at occurs, most of it often."""
    drawn = volume_ones()
    settings = [item for one in drawn for item in one.storage.settings]
    claims = [claim for one in drawn for claim in one.storage.claims]
    text = str([(one.storage, one.pods, one.asked) for one in drawn])

    assert sum("volumeName" in claim["spec"] for claim in claims) > 100
    assert sum("volumeName" not in claim["spec"] for claim in claims) > 100
    assert sum("ownerReferences" in claim["metadata"] for claim in claims) > 10
    assert sum(len(one.storage.leaving) for one in drawn) > 10
    for kind in ("CSINode", "CSIStorageCapacity", "VolumeAttachment", "CSIDriver"):
        assert sum(item["kind"] == kind for item in settings) > 20, kind
    for word in ("claimRef", SELECTED, "ReadWriteOncePod", "Block", "gold", "allowedTopologies", "migrated-plugins"):
        assert text.count(word) > 10, word
    for word in ("nodeAffinity", "matchLabels", "gcePersistentDisk", "awsElasticBlockStore", "ephemeral", "Released"):
        assert text.count(word) > 5, word


# -- the second generator of scenarios with volumes --------------------------------------------------------------------


ONCE_POD = ["ReadWriteOncePod"]


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


def test_varied_scenarios_are_rich() -> None:
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
