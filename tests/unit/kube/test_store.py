from typing import Any

import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.kube.store import Store
from tests.unit.kube import scripted

DECODER = ObjectDecoder("Pod", Pod)


def pod(name: str, version: str, uid: str = "u", **spec: Any) -> Pod:
    made = DECODER.decode(scripted.raw(scripted.pod(name, uid=uid, version=version, **spec)))
    assert isinstance(made, Pod)
    return made


def versions(deltas) -> list[tuple[str | None, str | None]]:
    def version_of(obj):
        return obj.metadata.resource_version if obj else None

    return [(version_of(delta.old), version_of(delta.new)) for delta in deltas]


def after(*objects: Pod) -> Store[Pod]:
    store: Store[Pod] = Store()
    store.replace(objects)
    return store


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(pod("a", "2"), [("1", "2")], id="a newer version is an update"),
        pytest.param(pod("a", "1"), [], id="the object we have is nothing"),
        pytest.param(
            pod("a", "1", nodeName="n"),
            [("1", None), (None, "1")],
            id="other content at the version we have is another object: etcd was restored",
        ),
        pytest.param(
            pod("a", "2", uid="v"), [("1", None), (None, "2")], id="another uid is a deletion and an addition"
        ),
        pytest.param(
            pod("a", "1", uid="v"), [("1", None), (None, "1")], id="another uid counts even at an equal version"
        ),
        pytest.param(pod("b", "2"), [(None, "2")], id="another name is an addition"),
    ],
)
def test_set(new, expected):
    deltas: list[Delta[Pod]] = []
    after(pod("a", "1")).set(new, deltas)

    assert expected == versions(deltas)


@pytest.mark.parametrize(
    ("gone", "expected", "left"),
    [
        pytest.param(pod("a", "2"), [("1", None)], 0, id="known"),
        pytest.param(pod("b", "2"), [], 1, id="unknown"),
        pytest.param(pod("a", "2", uid="v"), [], 1, id="the name belongs to another object by now"),
    ],
)
def test_remove(gone, expected, left):
    store = after(pod("a", "1"))
    deltas: list[Delta[Pod]] = []
    store.remove(gone, deltas)

    assert expected == versions(deltas)
    assert left == len(store)


def test_replace_reports_vanished_objects_first():
    store = after(pod("same", "1"), pod("gone", "2"), pod("reused", "3"), pod("newer", "4"))

    deltas, vanished = store.replace(
        [pod("same", "1"), pod("reused", "5", uid="v"), pod("newer", "6"), pod("new", "7")]
    )

    assert [("2", None), ("3", None), (None, "5"), ("4", "6"), (None, "7")] == versions(deltas)
    assert 2 == vanished
    assert {"same", "reused", "newer", "new"} == {obj.metadata.name for obj in store}


def test_replace_compares_content():
    """After an etcd restore a version is given twice. Such an object counts as vanished, like one with another uid."""
    store = after(pod("same", "1"), pod("other", "2"))

    deltas, vanished = store.replace([pod("same", "1"), pod("other", "2", nodeName="n")])

    assert [("2", None), (None, "2")] == versions(deltas)
    assert 1 == vanished


@pytest.mark.parametrize(
    ("new", "believes_version", "is_held"),
    [
        pytest.param(pod("a", "1"), False, True, id="the same content at the same version"),
        pytest.param(pod("a", "1", nodeName="n"), False, False, id="other content at the same version"),
        pytest.param(
            pod("a", "1", nodeName="n"), True, True, id="other content at the same version, in another API version"
        ),
        pytest.param(pod("a", "1", uid="v", nodeName="n"), True, False, id="another uid"),
        pytest.param(pod("a", "2"), True, False, id="another version"),
        pytest.param(pod("b", "1"), True, False, id="another name"),
    ],
)
def test_held(new, believes_version, is_held):
    held = pod("a", "1")

    assert (after(held).held(new, believes_version=believes_version) is held) == is_held


@pytest.mark.parametrize(
    ("new", "is_news"),
    [
        pytest.param(pod("a", "10"), True, id="a larger number"),
        pytest.param(pod("a", "9"), False, id="the same"),
        pytest.param(pod("a", "8"), False, id="a smaller number"),
        pytest.param(pod("a", "x"), False, id="no number"),
        pytest.param(pod("a", "9" * 5000), False, id="more digits than any version has"),
        pytest.param(pod("b", "1"), True, id="another name"),
    ],
)
def test_is_news(new, is_news):
    assert after(pod("a", "9")).is_news(new) == is_news
