"""Which pods belong to a group, and when it is complete (docs/spec/groups.md §2, §3)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.pod_group import POD_GROUP, GroupKey, PodGroup
from scheduler.cache.pod_groups import PodGroups, joined
from tests.examples import examples
from tests.unit.harness import manifest, typed

G, H = GroupKey(POD_GROUP, "default/g"), GroupKey(POD_GROUP, "default/h")


def pod(name: str, of: str = "g", **spec: Any) -> Pod:
    return typed(manifest(name, schedulingGroup={"podGroupName": of} if of else None, **spec))


def group(name: str, least: int) -> PodGroup:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return from_manifest(PodGroup, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def test_a_group_that_has_started_is_complete_with_fewer_pods() -> None:
    groups = PodGroups()
    groups.set(group("g", 3))
    groups.pod_changed(None, pod("a", on="n1"))
    assert groups.is_complete(G)

    groups.pod_changed(pod("a", on="n1"), pod("a", on="n1", deleting=True))
    assert not groups.is_complete(G), "a terminating pod does not run for the group"


def test_a_group_without_an_object_is_not_complete() -> None:
    groups = PodGroups()
    groups.pod_changed(None, pod("a", on="n1"))
    assert not groups.is_complete(G)

    groups.set(group("g", 1))
    assert groups.is_complete(G)
    groups.remove(G)
    assert not groups.is_complete(G)
    assert groups.running_count(G) == 1


_states = st.one_of(
    st.none(),
    st.builds(
        lambda of, on, deleting, phase: (of, on, deleting, phase),
        st.sampled_from(["", "g", "h"]),
        st.sampled_from(["", "n1"]),
        st.booleans(),
        st.sampled_from(["Pending", "Succeeded"]),
    ),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), _states), max_size=20))
def test_the_members_are_those_of_the_newest_objects(history: list[tuple[str, Any]]) -> None:
    groups, seen = PodGroups(), dict[str, Pod]()
    for name, state in history:
        old = seen.pop(name, None)
        if state is not None:
            of, on, deleting, phase = state
            seen[name] = pod(name, of, on=on, deleting=deleting, phase=phase)
        groups.pod_changed(old, seen.get(name))
        for key in (G, H):
            here = {each.key: each for each in seen.values() if joined(each) == key}
            assert groups.members(key) == here
            assert groups.running_count(key) == sum(bool(each.spec.node_name) for each in here.values())
        assert all(groups.by_group.values()), "an empty group takes no memory"
        assert all(groups.running.values())
