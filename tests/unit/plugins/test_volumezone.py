"""VolumeZone: docs/spec/volumes.md §9.2 and §7.3; ids begin with the rows of §11.12 and §11.14."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event as noted, given, settings, strategies as st

from scheduler.api.csi_translation import BETA_REGION, BETA_ZONE, REGION, ZONE
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins.volumezone import VolumeZone
from simulator.builders.core import Builder
from tests.examples import examples
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.objects import handle, node
from tests.unit.plugins.ask import Refusals, hinted, is_concerned, named, put, stored, unreadable, using

NO_ZONE = (Code.UNRESOLVABLE, ("node(s) had no available volume zone",))
PARITY = KubestowArgs(parity=True)
OWN = a_claim("p-data").bound_to("v").owned_by("p", "default/p")
CLAIM = a_claim("c").bound_to("v")


def plugin(seen: Cluster, ours: KubestowArgs | None = None) -> VolumeZone:
    return VolumeZone(None, replace(handle(seen), ours=ours or KubestowArgs()))


def pre_filtered(seen: Cluster, pod: PodInfo, ours: KubestowArgs | None = None) -> Any:
    """ "skip", the rejection, or what Filter then says of all nodes."""
    made, state = plugin(seen, ours), CycleState()
    answer = made.pre_filter(state, pod, seen.nodes.present)
    if answer is SKIP:
        return "skip"
    if isinstance(answer, Rejection):
        return answer.code, answer.reasons
    return named(seen, made.filter(state, pod, seen.nodes.present))


def a_volume(labels: Mapping[str, str], name: str = "v") -> Builder[Any]:
    return a_pv(name).labels(dict(labels))


GA = {ZONE: "z", REGION: "r"}


@pytest.mark.parametrize(("things", "pod", "says"), [
    pytest.param((CLAIM, a_volume({})), using("p", "c"), "skip", id="a volume that is at home everywhere"),
    pytest.param((), using("p", ""), "PersistentVolumeClaim had no name", id="a claim without a name"),
    pytest.param((a_claim("p-data").bound_to("v"), a_volume(GA)), using("p", ephemeral=("data",)),
        "PVC default/p-data was not created for pod default/p (pod is not owner)",
        id="B-14 an ephemeral claim of another pod"),
])  # fmt: skip
def test_claims(things: tuple[Any, ...], pod: PodInfo, says: str) -> None:
    """Skip, or a reason that no eviction helps against."""
    seen = stored(node("n1", labels=GA), *things)

    assert pre_filtered(seen, pod) == ("skip" if says == "skip" else (Code.UNRESOLVABLE, (says,)))


@pytest.mark.parametrize(
    ("kind", "key", "says"),
    [
        ("PersistentVolumeClaim", "default/c", 'persistentvolumeclaim "c" cannot be read: $.spec: no'),
        ("PersistentVolume", "v", 'persistentvolume "v" cannot be read: $.spec: no'),
        ("StorageClass", "s", 'storageclass.storage.k8s.io "s" cannot be read: $.spec: no'),
    ],
)
def test_what_cannot_be_read_is_named(kind: str, key: str, says: str) -> None:
    """It counts as absent, but the reason says what is wrong with it."""
    things = {"PersistentVolume": [CLAIM], "StorageClass": [a_claim("c", "1Gi", "s")]}.get(kind, [])
    seen = stored(node("n1"), *things)
    unreadable(seen, kind, key, "$.spec: no")

    assert pre_filtered(seen, using("p", "c")) == (Code.UNRESOLVABLE, (says,))


def test_z12_filter_without_prefilter() -> None:
    """It looks itself."""
    seen = stored(node("n1", labels=GA), node("n2", labels={**GA, ZONE: "y"}), CLAIM, a_volume(GA))
    made = plugin(seen)

    assert named(seen, made.filter(CycleState(), using("p", "c"), seen.nodes.present)) == {"n2": NO_ZONE}
    assert made.filter(CycleState(), using("p"), seen.nodes.present) == {}
    missing = (Code.UNRESOLVABLE, ('persistentvolumeclaim "d" not found',))
    assert named(seen, made.filter(CycleState(), using("p", "d"), seen.nodes.present)) == {"n1": missing, "n2": missing}


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        pytest.param(None, {"n1": NO_ZONE}, id="Z13 B-14 an ephemeral volume is at home somewhere, too"),
        pytest.param(KubestowArgs(zone_ephemeral="none"), "skip", id="Z13 unless it is switched off"),
        pytest.param(PARITY, "skip", id="Z13 or all is as upstream"),
    ],
)
def test_ephemeral(ours: KubestowArgs | None, says: Refusals | str) -> None:
    """The claim is the pod's own."""
    seen = stored(node("n1", labels={ZONE: "y"}), OWN, a_volume({ZONE: "z"}))

    assert pre_filtered(seen, using("p", ephemeral=("data",)), ours) == says


# -- the law -----------------------------------------------------------------------------------------------------------

topologies = st.dictionaries(
    st.sampled_from([ZONE, REGION, BETA_ZONE, BETA_REGION]), st.sampled_from(["a", "b", "a__b", " b__c ", "a__", ""])
)
node_topologies = st.dictionaries(
    st.sampled_from([ZONE, REGION, BETA_ZONE, BETA_REGION, "other"]), st.sampled_from(["a", "b", "c", ""])
)


def literally(volumes: list[dict[str, str]], node_labels: dict[str, str]) -> bool:
    """§9.2 for one node, word for word."""
    keys = (BETA_ZONE, BETA_REGION, ZONE, REGION)
    today = {BETA_ZONE: ZONE, BETA_REGION: REGION}
    if not any(key in node_labels for key in keys):
        return True
    for labels in volumes:
        for key in keys:
            pieces = [piece.strip() for piece in labels.get(key, "").split("__")]
            if "" in pieces:
                continue
            there = node_labels[key] if key in node_labels else node_labels.get(today.get(key, key))
            if there not in pieces:
                return False
    return True


@settings(max_examples=examples(300), deadline=None)
@given(volumes=st.lists(topologies, max_size=3), nodes=st.lists(node_topologies, min_size=1, max_size=5))
def test_sets_say_what_each_node_would(volumes: list[dict[str, str]], nodes: list[dict[str, str]]) -> None:
    seen = stored(
        *(node(f"n{at}", labels=labels) for at, labels in enumerate(nodes)),
        *(a_volume(labels, f"v{at}") for at, labels in enumerate(volumes)),
        *(a_claim(f"c{at}").bound_to(f"v{at}") for at in range(len(volumes))),
    )
    pod = using("p", *(f"c{at}" for at in range(len(volumes))))
    out = {f"n{at}" for at, labels in enumerate(nodes) if not literally(volumes, labels)}
    noted(f"{len(out)} of {len(nodes)} refused")

    answer = pre_filtered(seen, pod)
    assert (set() if answer == "skip" else set(answer)) == out


# -- hints -------------------------------------------------------------------------------------------------------------

CLASS_ADD = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
CLAIM_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
CLAIM_UPDATE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
VOLUME_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD)
VOLUME_UPDATE = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER)
UNBOUND = a_claim("c", "1Gi", "s")
EPHEMERAL = using("p", ephemeral=("data",))


@pytest.mark.parametrize(("there", "pod", "event", "old", "new", "hint"), [
    pytest.param(UNBOUND, using("p", "c", ns="other"), CLAIM_ADD, None, CLAIM, Hint.SKIP,
        id="H16 a claim's namesake came"),
    pytest.param(OWN, EPHEMERAL, CLAIM_ADD, None, OWN, Hint.QUEUE, id="B-14 its ephemeral claim came"),
    pytest.param(UNBOUND, using("p", "c"), CLASS_ADD, None, a_class("s").binding_mode(None), Hint.SKIP,
        id="H17 a class without binding mode came"),
    pytest.param(CLAIM, using("p", "c"), VOLUME_UPDATE, a_volume({ZONE: "a__b"}), a_volume({ZONE: "b__a"}), Hint.SKIP,
        id="H18 its volume names the same zones in another order"),
])  # fmt: skip
def test_hints(
    there: Builder[Any], pod: PodInfo, event: ClusterEvent, old: Builder[Any] | None, new: Builder[Any], hint: Hint
) -> None:
    """More rows are in the table of hints."""
    seen = stored(there)

    assert hint is hinted(plugin(seen), event, pod, old=old and old.typed(), new=new.typed())


def test_hints_of_ephemeral_claims_with_the_switch() -> None:
    """What is not looked at is not waited for."""
    seen = stored(OWN)

    assert hinted(plugin(seen, PARITY), CLAIM_UPDATE, EPHEMERAL, old=OWN.typed(), new=OWN.typed()) is Hint.SKIP
    assert hinted(plugin(seen, PARITY), VOLUME_ADD, EPHEMERAL, new=a_volume({}).typed()) is Hint.SKIP


def test_a_claim_that_names_another_volume_is_an_event_itself() -> None:
    """So a pod that waits for one volume hears of the claim first, and of the other volume from then on."""
    seen = stored(CLAIM)
    made, pod = plugin(seen), using("p", "c")
    other = a_volume({}, "w").typed()
    before = hinted(made, VOLUME_ADD, pod, new=other)
    moved = a_claim("c").bound_to("w")
    put(seen, moved)

    assert before is Hint.SKIP
    assert hinted(made, CLAIM_UPDATE, pod, old=CLAIM.typed(), new=moved.typed()) is Hint.QUEUE
    assert hinted(made, VOLUME_ADD, pod, new=other) is Hint.QUEUE


keys_used = st.lists(st.sampled_from("cd"), max_size=2)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), uses=keys_used)
def test_topics_keep_the_law(data: st.DataObject, uses: list[str]) -> None:
    """No event that helps is kept from a pod, whatever its claims name."""
    seen = stored(
        *(
            data.draw(st.sampled_from([a_claim(name, "1Gi", "s"), a_claim(name).bound_to("v")]))
            for name in data.draw(st.sets(st.sampled_from("cd")))
        )
    )
    made, pod = plugin(seen), using("p", *uses)
    volumes = st.builds(a_volume, topologies, st.sampled_from("vw")).map(Builder.typed)
    new = data.draw(
        st.one_of(
            volumes, st.sampled_from([CLAIM.typed(), UNBOUND.typed(), a_class("s").typed(), a_class("t").typed()])
        )
    )
    kind = {
        "PersistentVolume": Resource.PERSISTENT_VOLUME,
        "PersistentVolumeClaim": Resource.PERSISTENT_VOLUME_CLAIM,
        "StorageClass": Resource.STORAGE_CLASS,
    }[type(new).__name__]
    for registration in made.events_to_register():
        if registration.event.wants(ClusterEvent(kind, Action.ADD)) and registration.hint is not None:
            answer = registration.hint(pod, None, new)
            noted(f"{kind.value} {answer.value}")
            assert answer is Hint.SKIP or is_concerned(registration, pod, old=None, new=new)


def test_what_it_says_of_itself() -> None:
    """Pods on nodes never matter, and three kinds do."""
    assert VolumeZone.depends_on_pods is False
    assert set(VolumeZone.reads) == {"PersistentVolumeClaim", "PersistentVolume", "StorageClass"}
    assert UPDATE & plugin(stored()).events_to_register()[2].event.action == UPDATE
