"""VolumeRestrictions: docs/spec/volumes.md §9.3 and §7.4; ids begin with the rows of §11.12 and §11.15."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event as noted, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import Cluster
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler.framework.interface import CycleState, Hint
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins.volumerestrictions import VolumeRestrictions
from tests.examples import SLOW_SHARE, examples
from tests.support.volumebuilders import a_claim
from tests.unit.objects import handle, node
from tests.unit.plugins.ask import hinted, is_concerned, named, stored, unreadable, using

NO_DISK = (Code.UNSCHEDULABLE, ("node(s) had no available disk",))
_BY_ANOTHER = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
TAKEN = (Code.UNSCHEDULABLE, (f"node(s) unavailable due to {_BY_ANOTHER}",))


def gce(name: str = "d", *, ro: bool = False) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": ro}}


def ebs(name: str = "d", *, ro: bool = False) -> dict[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": ro}}


def iscsi(name: str = "d", *, ro: bool = False, lun: int = 0) -> dict[str, Any]:
    return {"iscsi": {"iqn": name, "targetPortal": f"10.0.0.{lun}", "lun": lun, "readOnly": ro}}


def rbd(name: str = "d", *monitors: str, ro: bool = False, pool: str = "rbd") -> dict[str, Any]:
    return {"rbd": {"image": name, "pool": pool, "monitors": list(monitors or ("a", "b")), "readOnly": ro}}


def plugin(seen: Cluster) -> VolumeRestrictions:
    return VolumeRestrictions(None, handle(seen))


def verdicts(seen: Cluster, pod: PodInfo) -> Any:
    """ "skip", PreFilter's rejection, or what Filter says of all nodes."""
    made, state = plugin(seen), CycleState()
    answer = made.pre_filter(state, pod, seen.nodes.present)
    if isinstance(answer, Rejection):
        return answer.code, answer.reasons
    return "skip" if answer is SKIP else named(seen, made.filter(state, pod, seen.nodes.present))


def one_pod(name: str = "c", *modes: str, ns: str = "default") -> Any:
    """A claim that one pod can have."""
    return a_claim(name, ns=ns).modes(*(modes or ("ReadWriteOncePod",)))


# -- disks -------------------------------------------------------------------------------------------------------------


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("things", "pod", "says"), [
    pytest.param((one_pod(), using("q", "c", on="n1", ns="other")), using("p", "c"), "skip",
        id="B-13 a namesake is taken"),
    pytest.param((), using("p", ephemeral=("data",)), "skip", id="its own ephemeral claim is not looked at"),
    pytest.param((one_pod("q-data"), using("q", on="n1", ephemeral=("data",))), using("p", "q-data"), "taken",
        id="a pod with it by an ephemeral volume uses it"),
])  # fmt: skip
def test_claims(things: tuple[Any, ...], pod: PodInfo, says: str) -> None:
    """Skip, refused everywhere, or a reason that no eviction helps against."""
    expected = {"skip": "skip", "taken": {"n1": TAKEN, "n2": TAKEN}}.get(says, (Code.UNRESOLVABLE, (says,)))

    assert verdicts(stored(node("n1"), node("n2"), *things), pod) == expected


def test_a_claim_that_cannot_be_read_is_named() -> None:
    seen = stored(node("n1"))
    unreadable(seen, "PersistentVolumeClaim", "default/c", "$.spec: no")

    assert verdicts(seen, using("p", "c")) == (
        Code.UNRESOLVABLE,
        ('persistentvolumeclaim "c" cannot be read: $.spec: no',),
    )


def test_r12_filter_without_prefilter() -> None:
    """A failure, but where a disk is taken that is said first."""
    seen = stored(node("n1"), node("n2"), using("q", on="n1", **ebs()))
    failed = (Code.ERROR, ('cannot read "PreFilterVolumeRestrictions" from cycleState',))
    made, present = plugin(seen), seen.nodes.present

    assert named(seen, made.filter(CycleState(), using("p"), present)) == {"n1": failed, "n2": failed}
    assert named(seen, made.filter(CycleState(), using("p", **ebs()), present)) == {"n1": NO_DISK, "n2": failed}


# -- what if -----------------------------------------------------------------------------------------------------------


def test_a_pod_on_a_node_that_is_gone_has_no_claim() -> None:
    """Upstream's snapshot has no such node; the pod may be there for a while yet, and its node may come back."""
    seen = stored(node("n1"), node("n2"), one_pod(), one_pod("d"), using("q", "c", on="n2"))
    made, pod, both = plugin(seen), using("p", "c"), using("p", "c", "d")
    with_node = verdicts(seen, pod), made.tally_shape(pod)
    seen.remove_node("n2")
    gone = verdicts(seen, pod)
    here = using("r", "d", on="n1")
    seen.add_pod(here)
    state, slot = CycleState(), seen.nodes.present_slot("n1")
    assert slot is not None
    assert made.pre_filter(state, both, seen.nodes.present) is None
    tally = made.tally(state, both, slot)
    tally.remove(here)
    assert (with_node[0], gone, tally.verdict()) == ({"n1": TAKEN, "n2": TAKEN}, "skip", None)
    assert made.tally_shape(pod) != with_node[1]

    seen.set_node(node("n2"))
    assert (verdicts(seen, pod), made.tally_shape(pod)) == (with_node[0], with_node[1])


def test_the_second_look_does_not_mistake_the_pod_for_another() -> None:
    """Filter runs again with the state of PreFilter, while the pod itself is assumed on its node."""
    seen = stored(node("n1"), node("n2"), one_pod())
    made, state, pod = plugin(seen), CycleState(), using("p", "c", **gce())
    assert made.pre_filter(state, pod, seen.nodes.present) is None
    on_node = placed(pod, "n1")
    seen.assume(on_node)
    with seen.trial(remove=[on_node]):
        assert made.filter(state, on_node, seen.nodes.present) == {}
    seen.add_pod(using("q", "c", on="n2", **gce()))
    with seen.trial(remove=[on_node]):
        assert named(seen, made.filter(state, on_node, seen.nodes.present)) == {"n1": TAKEN, "n2": NO_DISK}


# -- laws --------------------------------------------------------------------------------------------------------------

disks = st.one_of(
    st.builds(lambda name, ro: gce(name, ro=ro), st.sampled_from("de"), st.booleans()),
    st.builds(lambda name, ro: ebs(name, ro=ro), st.sampled_from("de"), st.booleans()),
    st.builds(lambda name, ro: iscsi(name, ro=ro), st.sampled_from("de"), st.booleans()),
    st.builds(
        lambda monitors, ro, pool: rbd("d", *monitors, ro=ro, pool=pool),
        st.sets(st.sampled_from("abc"), min_size=1),
        st.booleans(),
        st.sampled_from(["rbd", "other"]),
    ),
)
CLAIMS = (one_pod("c"), one_pod("d"), a_claim("e"), one_pod("c", ns="other"), a_claim("d", ns="other"))


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> PodInfo:
    ns = draw(st.sampled_from(["default", "default", "other"]))
    claims = draw(st.sets(st.sampled_from("cd" if ns == "other" else "cde"), max_size=2))
    sources: dict[str, Any] = {}
    for one in draw(st.lists(disks, max_size=2)):
        sources.update(one)
    return using(name, *sorted(claims), on=on, ns=ns, **sources)


def conflict_literally(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Two volumes as manifests, by the table of §9.3."""
    for kind, same in {
        "gcePersistentDisk": lambda a, b: a["pdName"] == b["pdName"],
        "iscsi": lambda a, b: a["iqn"] == b["iqn"],
        "rbd": lambda a, b: (
            set(a["monitors"]) & set(b["monitors"]) and (a["pool"], a["image"]) == (b["pool"], b["image"])
        ),
    }.items():
        if kind in one and kind in other and same(one[kind], other[kind]):
            return not (one[kind]["readOnly"] and other[kind]["readOnly"])
    kind = "awsElasticBlockStore"
    return kind in one and kind in other and one[kind]["volumeID"] == other[kind]["volumeID"]


def sources(pod: PodInfo) -> list[dict[str, Any]]:
    fields = {
        "gcePersistentDisk": "gce_persistent_disk",
        "awsElasticBlockStore": "aws_elastic_block_store",
        "iscsi": "iscsi",
        "rbd": "rbd",
    }
    return [
        {kind: getattr(volume, field) for kind, field in fields.items() if getattr(volume, field) is not None}
        for volume in pod.pod.spec.volumes
    ]


def literally(pod: PodInfo, there: list[PodInfo], everywhere: list[PodInfo]) -> Any:
    """What §9.3 says of one node."""
    if any(conflict_literally(one, held) for other in there for one in sources(pod) for held in sources(other)):
        return NO_DISK
    exclusive = {claim.typed().key for claim in CLAIMS if "ReadWriteOncePod" in claim.typed().spec.access_modes}
    wanted = {use.key for use in pod.claims} & exclusive
    return TAKEN if any(use.key in wanted for other in everywhere for use in other.claims) else None


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None)
@given(data=st.data(), pod=pods("p"))
def test_sets_and_counts_say_what_each_node_would(data: st.DataObject, pod: PodInfo) -> None:
    """Filter for all nodes, Filter while some have left, and the count aside: all as the rule for one node."""
    names = ("n1", "n2", "n3")
    there = [data.draw(pods(f"q{at}", data.draw(st.sampled_from(names)))) for at in range(data.draw(st.integers(0, 6)))]
    seen = stored(*map(node, names), *CLAIMS, *there)
    made, state = plugin(seen), CycleState()
    if made.pre_filter(state, pod, seen.nodes.present) is SKIP:
        assert all(literally(pod, there, there) is None for _ in names)
        noted("skipped")
        return

    def expected(name: str, left: set[str]) -> Any:
        stayed = [other for other in there if other.uid not in left]
        return literally(pod, [other for other in stayed if other.node_name == name], stayed)

    says = named(seen, made.filter(state, pod, seen.nodes.present))
    assert says == {name: no for name in names if (no := expected(name, set())) is not None}

    name = data.draw(st.sampled_from(names))
    slot = seen.nodes.slot(name)
    assert slot is not None
    tally = made.tally(state, pod, slot)
    movable = [other for other in there if other.node_name == name]
    left: set[str] = set()
    with seen.trial() as trial:
        for other in data.draw(st.lists(st.sampled_from(movable), max_size=6)) if movable else ():
            (tally.add if other.uid in left else tally.remove)(other)
            if other.uid in left:
                trial.add(other, name)
            else:
                trial.remove(other)
            left ^= {other.uid}
            counted, tried = tally.verdict(), named(seen, made.filter(state, pod, 1 << slot)).get(name)
            assert (None if counted is None else (counted.code, counted.reasons)) == tried == expected(name, left)
            noted(f"{len(left)} left: {counted.reasons[0][:20] if counted else 'fits'}")

    assert says == named(seen, made.filter(state, pod, seen.nodes.present))


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), one=pods("p"), other=pods("p"))
def test_equal_tally_shapes_mean_equal_verdicts(data: st.DataObject, one: PodInfo, other: PodInfo) -> None:
    """Also where a claim is taken on another node: what is remembered of a node would not notice that."""
    elsewhere = [data.draw(pods(f"e{at}", "n2")) for at in range(data.draw(st.integers(0, 2)))]
    here = [data.draw(pods(f"h{at}", "n1")) for at in range(data.draw(st.integers(0, 3)))]
    worlds = [stored(node("n1"), node("n2"), *CLAIMS, *here, *there) for there in ([], elsewhere)]
    said = []
    for seen, pod in zip(worlds, (one, other), strict=True):
        made, state = plugin(seen), CycleState()
        skips = made.pre_filter(state, pod, seen.nodes.present) is SKIP
        slot = seen.nodes.slot("n1")
        assert slot is not None
        said.append((made.tally_shape(pod), None if skips else made.tally(state, pod, slot).verdict()))
    (shape, verdict), (other_shape, other_verdict) = said
    noted(f"{'equal' if shape == other_shape else 'different'} shapes")

    assert shape != other_shape or verdict == other_verdict


# -- hints -------------------------------------------------------------------------------------------------------------

CLAIM_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)


@pytest.mark.parametrize(("pod", "gone", "hint"), [
    pytest.param(using("p", **rbd()), using("q", on="n", **rbd("e")), Hint.SKIP, id="H19 another RBD image"),
    pytest.param(using("p", **gce(ro=True)), using("q", on="n", **gce(ro=True)), Hint.SKIP, id="both only read"),
    pytest.param(using("p", "c"), using("q", "c", on="n", ns="other"), Hint.SKIP, id="a claim's namesake"),
    pytest.param(using("p", **ebs()), using("q", on="n", ns="other", **ebs()), Hint.QUEUE,
        id="H20 B-13 another namespace"),
    pytest.param(using("p", "q-data"), using("q", on="n", ephemeral=("data",)), Hint.QUEUE,
        id="its ephemeral volume's claim"),
])  # fmt: skip
def test_a_pod_went(pod: PodInfo, gone: PodInfo, hint: Hint) -> None:
    """Queue exactly when it had what is wanted; more rows are in the table of hints."""
    assert hinted(plugin(stored()), ASSIGNED_POD_DELETE, pod, old=gone) is hint


def test_h21_a_namesake_of_its_claim_came() -> None:
    pod = using("p", "c", ns="other")

    assert hinted(plugin(stored()), CLAIM_ADD, pod, new=one_pod().typed()) is Hint.SKIP


@settings(max_examples=examples(300, share=SLOW_SHARE), deadline=None)
@given(waiting=pods("p"), gone=pods("q", "n1"))
def test_topics_keep_the_law(waiting: PodInfo, gone: PodInfo) -> None:
    """No pod that gives back what is wanted goes unheard."""
    registration = plugin(stored()).events_to_register()[0]
    assert registration.hint is not None
    answer = registration.hint(waiting, gone, None)
    concerned = is_concerned(registration, waiting, old=gone, new=None)
    noted(f"{answer.value}, {'' if concerned else 'not '}concerned")

    assert concerned or answer is Hint.SKIP
