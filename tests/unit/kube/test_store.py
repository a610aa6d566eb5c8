import pytest

from scheduler.core.decode import ObjectDecoder
from scheduler.core.deltas import Delta
from scheduler.core.pod import Pod
from scheduler.kube.store import Store
from tests.unit.kube import scripted

DECODER = ObjectDecoder("Pod", Pod)


def pod(name: str, version: str, uid: str = "u") -> Pod:
    made = DECODER.decode(scripted.raw(scripted.pod(name, uid=uid, version=version)))
    assert isinstance(made, Pod)
    return made


def told(deltas) -> list[tuple[str | None, str | None]]:
    def version(obj):
        return obj.metadata.resource_version if obj else None

    return [(version(delta.old), version(delta.new)) for delta in deltas]


def after(*objects: Pod) -> Store[Pod]:
    store: Store[Pod] = Store()
    store.replace(objects)
    return store


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(pod("a", "2"), [("1", "2")], id="a newer version is an update"),
        pytest.param(pod("a", "1"), [], id="the version we have is nothing"),
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
    """An object is told apart by name and uid, its versions by equality."""
    deltas: list[Delta[Pod]] = []
    after(pod("a", "1")).set(new, deltas)

    assert expected == told(deltas)


@pytest.mark.parametrize(
    ("gone", "expected", "left"),
    [
        pytest.param(pod("a", "2"), [("1", None)], 0, id="known"),
        pytest.param(pod("b", "2"), [], 1, id="unknown"),
        pytest.param(pod("a", "2", uid="v"), [], 1, id="the name belongs to another object by now"),
    ],
)
def test_remove(gone, expected, left):
    """The delta carries the object as it was known."""
    store = after(pod("a", "1"))
    deltas: list[Delta[Pod]] = []
    store.remove(gone, deltas)

    assert expected == told(deltas)
    assert left == len(store)


def test_replace_tells_what_vanished_first():
    """Unchanged objects are not mentioned; a reused name counts as vanished."""
    store = after(pod("same", "1"), pod("gone", "2"), pod("reused", "3"), pod("newer", "4"))

    deltas, vanished = store.replace(
        [pod("same", "1"), pod("reused", "5", uid="v"), pod("newer", "6"), pod("new", "7")]
    )

    assert [("2", None), ("3", None), (None, "5"), ("4", "6"), (None, "7")] == told(deltas)
    assert 2 == vanished
    assert {"same", "reused", "newer", "new"} == {obj.metadata.name for obj in store}
