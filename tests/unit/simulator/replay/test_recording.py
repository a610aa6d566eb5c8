"""The format: what is written is read; files that are cut short, damaged or hostile give one clear error, or a prefix."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.replay import history as histories_module
from simulator.replay.history import History, read_history
from simulator.replay.recording import LINE_BYTES_MAX, RecordingReader, RecordingWriter
from simulator.simulate.input.sources import InputError
from tests.unit.simulator.replay.histories import HEADER, SYNCED, a_node, a_pod, gone, history, lines, obj

NODE, POD = a_node("n"), a_pod("p")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    writer = RecordingWriter(str(path), started_s=1.78e9, server="v1.37.2")
    writer.event(0.0, "ADDED", NODE)
    writer.event(0.0, "SYNCED")
    writer.event(1.2345, "ADDED", POD)
    writer.event(2.0, "DELETED", gone(POD))
    writer.close()

    reader = RecordingReader(str(path))
    found = [event and (event.at_s, event.type, event.kind, event.name) for event in reader.events()]
    assert found == [(0, "ADDED", "Node", "n"), None, (1.234, "ADDED", "Pod", "p"), (2, "DELETED", "Pod", "p")]
    assert (reader.header.server, reader.header.started_s, reader.is_cut_short) == ("v1.37.2", 1.78e9, False)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_text("mine")

    with pytest.raises(FileExistsError):
        RecordingWriter(str(tmp_path / "a.gz"), started_s=0, server="")


def test_a_killed_process_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    writer = RecordingWriter(str(path), started_s=0, server="")
    writer.event(0.0, "SYNCED")
    for second in range(1, 6):
        writer.event(second, "ADDED", a_pod(f"p{second}"))
    copied = tmp_path / "killed.gz"
    copied.write_bytes(path.read_bytes())  # without `close`
    writer.close()

    found = read_history(str(copied))
    assert found.is_cut_short
    assert len(found.pods) == 5


def test_a_file_that_is_cut_anywhere_is_a_prefix(tmp_path: Path) -> None:
    whole = lines([(0, "ADDED", NODE), SYNCED, *((at, "ADDED", a_pod(f"p{at}")) for at in range(20))])
    packed = gzip.compress(whole)
    full = read_history(str(history(tmp_path / "full.gz", [(0, "ADDED", NODE), SYNCED]))).present.keys()
    for cut in range(0, len(packed), 7):
        path = tmp_path / "cut.gz"
        path.write_bytes(packed[:cut])
        found, refusal = read_or_refused(path)
        if found is None:
            assert "expected the header" in refusal or "ends before its first state" in refusal
        else:
            assert found.is_cut_short
            assert found.present.keys() == full
            assert list(found.pods) == [f"pod-p{at}" for at in range(len(found.pods))]


def read_or_refused(path: Path) -> tuple[History | None, str]:
    try:
        return read_history(str(path)), ""
    except InputError as why:
        return None, str(why)


def test_plain_text_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(lines([(0, "ADDED", NODE), SYNCED]) + b'{"t":1,"type":"ADDED","obj')

    assert read_history(str(tmp_path / "a.json")).is_cut_short


def event(**changes: Any) -> bytes:
    return json.dumps({"t": 1, "type": "ADDED", "object": POD} | changes).encode() + b"\n"


def pod(**changes: Any) -> dict[str, Any]:
    return POD | changes


BEGIN = lines([(0, "ADDED", NODE), SYNCED])


@pytest.mark.parametrize(("content", "expected"), [
    pytest.param(b"", "line 1: expected the header", id="nothing"),
    pytest.param(b"\x1f\x8b" + b"garbage" * 50, "line 1: ", id="garbage after the mark of gzip"),
    pytest.param(lines([], {"apiVersion": "v1"}), "line 1: expected the header", id="another file"),
    pytest.param(lines([], HEADER | {"kubestowRecording": 2}), "the format has version 2, and this Kubestow reads version 1", id="a later version"),
    pytest.param(lines([], HEADER | {"startedAt": "yesterday"}), "startedAt: 'yesterday' is not a time", id="no time"),
    pytest.param(lines([], HEADER | {"startedAt": "2026-06-01T00:00:00"}), "has no time zone", id="a time without zone"),
    pytest.param(lines([(0, "ADDED", NODE)]), "ends before its first state is complete", id="no first state"),
    pytest.param(BEGIN + b"[" * 100_000 + b"\n", "line 4: is not an event", id="nested lists"),
    pytest.param(BEGIN + event(object={"a": 1})[:-1] + b"\n", "line 4: object.kind: '' is no kind", id="no kind"),
    pytest.param(BEGIN + event(object=pod(kind="Secret")), "line 4: object.kind: 'Secret' is no kind", id="a Secret"),
    pytest.param(BEGIN + event(type="BOUND"), "line 4: is not an event: Invalid enum value 'BOUND'", id="an unknown type"),
    pytest.param(BEGIN + event() + event(t=0.5), "line 5: t: is 0.5, and 1.0 in an earlier line; time must not go back", id="time goes back"),
    pytest.param(BEGIN + event(t=-1), "line 4: t: must be 0 to", id="before the start"),
    pytest.param(BEGIN + event(t=1e18), "line 4: t: must be 0 to", id="far in the future"),
    pytest.param(BEGIN + b'{"t":NaN,"type":"ADDED"}\n', "line 4: is not an event", id="not a number"),
    pytest.param(BEGIN + lines([SYNCED])[len(lines([])):], "line 4: SYNCED comes twice", id="two first states"),
    pytest.param(BEGIN + event(object=pod(metadata={"name": "p", "uid": "u"})), "line 4: object.metadata: Pod must have name, namespace and uid", id="no namespace"),
    pytest.param(BEGIN + event(object=pod(metadata={"name": "p", "namespace": "a"})), "Pod must have name", id="no uid"),
    pytest.param(BEGIN + event(object=pod(spec={"containers": 3})), "line 4: object: Pod p: Expected `array`", id="an unreadable pod"),
    pytest.param(BEGIN + event(object=a_pod("p", node="n") | {"status": [1]}), "line 4: object: Pod p: Expected `object`", id="an unreadable status of a bound pod"),
    pytest.param(BEGIN + event(object=obj("CSINode", "n", api="storage.k8s.io/v1", spec={"drivers": [{"name": "d", "topologyKeys": [3]}]})),
        "line 4: object: CSINode n: Expected `str`, got `int` - at `$.spec.drivers[0].topologyKeys[0]`", id="a field that only controllers read"),
    pytest.param(BEGIN + event(object=a_pod("p") | {"metadata": POD["metadata"] | {"ownerReferences": [{"kind": "Job", "uid": "1"}]}}),
        "line 4: object: Object missing required field `name` - at `$.metadata.ownerReferences[", id="an owner without a name"),
    pytest.param(BEGIN + b'{"t":1,"x":"' + b"a" * LINE_BYTES_MAX + b'"}\n', f"line 4: is longer than {LINE_BYTES_MAX} bytes", id="a huge line"),
])  # fmt: skip
@pytest.mark.parametrize("is_packed", [True, False])
def test_hostile_files(tmp_path: Path, content: bytes, expected: str, is_packed: bool) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(content) if is_packed else content)

    with pytest.raises(InputError) as refused:
        read_history(str(path))
    assert str(path) in str(refused.value)
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 2000


def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    """A gigabyte without a line end is read up to the limit of a line."""
    import tracemalloc

    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(BEGIN)
        for _ in range(64):
            file.write(b" " * 2**20)
    tracemalloc.start()
    with pytest.raises(InputError, match="is longer than"):
        read_history(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * LINE_BYTES_MAX


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(BEGIN + b"".join(event(object=a_pod(f"p{at}")) for at in range(200))))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "a.gz"
    path.write_bytes(bytes(packed))

    with pytest.raises(InputError, match=r"line \d+: "):
        read_history(str(path))


@pytest.mark.parametrize(
    ("limit", "expected"), [("PODS_MAX", "more than 1 pods"), ("PRESENT_MAX", "more than 1 objects")]
)
def test_numbers_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: str) -> None:
    monkeypatch.setattr(histories_module, limit, 1)
    path = history(
        tmp_path / "a.gz", [(0, "ADDED", a_node("n")), (0, "ADDED", a_pod("a")), (0, "ADDED", a_pod("b")), SYNCED]
    )

    with pytest.raises(InputError, match=expected):
        read_history(str(path))


def test_a_history_has_the_times_of_its_pods(tmp_path: Path) -> None:
    bound = a_pod("p", node="n")
    path = history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), (0, "ADDED", a_pod("old", node="n")), SYNCED,
        (5, "ADDED", POD), (7, "MODIFIED", bound), (9, "MODIFIED", bound), (20, "DELETED", gone(POD)),
        (21, "ADDED", a_pod("late")), (30, "DELETED", gone(a_pod("late"))),
    ])  # fmt: skip
    found = read_history(str(path))

    pods = {uid: (pod.arrived_s, pod.bound_s, pod.ended_s, pod.run_s, pod.was_bound) for uid, pod in found.pods.items()}
    assert pods == {
        "pod-old": (0, 0, None, None, True),
        "pod-p": (5, 7, 20, 13, False),
        "pod-late": (21, None, 30, None, False),
    }
    assert (found.duration_s, found.events) == (30, 8)
    assert [found.is_free(uid, {"kubestow"}) for uid in ("pod-old", "pod-p", "pod-late")] == [False, True, True]
