"""The format of a recording: one JSON object per line, compressed by gzip (docs/replay.md).

The first line is the header, each other line is one event. `t` is in seconds since the start and never decreases. The
events before SYNCED are the first state: the objects that existed when the recording began. Every second the file is
flushed, so a recording that ended abruptly is readable up to its last whole line.
"""

from __future__ import annotations

import datetime as dt
import gzip
import math
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from scheduler import __version__
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder, PartlyReadPod, from_manifest
from scheduler.api.meta import seconds
from simulator.replay.reduction import RECORDED, type_of
from simulator.simulate.input.json_values import without_nulls
from simulator.simulate.input.sources import InputError

FORMAT_VERSION: Final = 1
LINE_BYTES_MAX: Final = 4 * 2**20
"""An API server stores no object larger than about 1.5 MiB."""
SECONDS_MAX: Final = 366 * 86_400.0
"""The longest recording."""
_FLUSH_S: Final = 1.0
_MAGIC: Final = b"\x1f\x8b"
_COMPRESSION: Final = 6


class RecordingHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The first line of a recording."""

    kubestow_recording: int
    started_at: str
    """RFC 3339."""
    server: str = ""
    """The API server's version, such as v1.37.2."""
    recorder: str = ""
    """The version of Kubestow."""

    @property
    def started_s(self) -> float:
        """Return the start in seconds since the epoch. Raises ValueError."""
        moment = dt.datetime.fromisoformat(self.started_at)
        if moment.tzinfo is None:
            raise ValueError("has no time zone")
        return moment.timestamp()


class RecordedEvent(msgspec.Struct, frozen=True):
    """One line after the header. `object` of a DELETED event has its metadata only; that of SYNCED is empty."""

    t: float
    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Owner(msgspec.Struct, frozen=True):
    """The fields that every API server requires of a reference to an owner."""

    kind: str
    name: str
    uid: str


class _Names(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    owner_references: tuple[_Owner, ...] | None = None


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _Names = _Names()


class ObjectEvent(msgspec.Struct, frozen=True):
    """One change of an object, read and checked. `line` is its place in the file."""

    line: int
    at_s: float
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: str
    """As in `scheduler.kube.resources`: `Pod`, `PodGroup.scheduling.x-k8s.io`."""
    namespace: str
    name: str
    uid: str
    raw: bytes

    def value(self) -> dict[str, Any]:
        """Decode the object without its nulls, which mean absence. Raises InputError."""
        try:
            found: dict[str, Any] = msgspec.json.decode(self.raw)
        except msgspec.DecodeError as error:  # in a part that the typed object keeps as bytes
            raise InputError(f"{self}: {error}") from error
        return without_nulls(found, str(self)) if b"null" in self.raw else found

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"line {self.line}: {self.type} {self.kind} {name}"


class RecordingWriter:
    """Write a recording. Raises FileExistsError and other OSErrors."""

    def __init__(self, path: str, *, started_s: float, server: str) -> None:
        """Create the file, which must not exist."""
        self._path = Path(path)
        self._raw = self._path.open("xb")
        self._file = gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=self._raw, mtime=0)
        self._flushed_s = 0.0
        self.events = 0
        self._write(RecordingHeader(FORMAT_VERSION, seconds(started_s), server=server, recorder=__version__))

    def event(self, at_s: float, type_: str, obj: dict[str, Any] | msgspec.Raw | None = None) -> None:
        """Append one event. The time is rounded to milliseconds."""
        line = {"t": round(at_s, 3), "type": type_} | ({"object": obj} if obj is not None else {})
        self._write(line)
        self.events += 1
        if at_s - self._flushed_s >= _FLUSH_S:
            self._flushed_s = at_s
            self.flush()

    def flush(self) -> None:
        """Write everything to the file, so that a killed process loses nothing before this call."""
        self._file.flush()
        self._raw.flush()

    def size_bytes(self) -> int:
        """Return the size of the file, as far as it is flushed."""
        return self._path.stat().st_size

    def close(self) -> None:
        """Finish the file. Idempotent."""
        self._file.close()
        self._raw.close()

    def _write(self, line: Any) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


class RecordingReader:
    """Read a recording, line by line, in bounded memory. Every mistake is an InputError that names the line."""

    def __init__(self, path: str) -> None:
        """Read the header."""
        self._path = path
        self.is_cut_short = False
        """Whether the file ended abruptly. Correct once all events are read."""
        self.duration_s = 0.0
        """The time of the last event that was read."""
        with self._opened() as file:
            self.header = self._header(self._line(file, 1))

    def events(self) -> Iterator[ObjectEvent | None]:
        """Yield the events; None is the end of the first state, and comes once."""
        self.duration_s, number, is_synced = 0.0, 1, False
        with self._opened() as file:
            self._line(file, 1)
            while (line := self._line(file, number + 1)) is not None:
                number += 1
                event = self._event(line, number)
                self.duration_s = event.t
                if event.type == "SYNCED":
                    if is_synced:
                        raise self._wrong(number, "SYNCED comes twice, and must come once")
                    is_synced = True
                    yield None
                else:
                    yield self._object(event, number)
        if not is_synced:
            raise InputError(
                f"{self._path}: the recording ends before its first state is complete; record again, for a longer time"
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _opened(self) -> gzip.GzipFile | BinaryIO:
        try:
            with Path(self._path).open("rb") as file:
                is_compressed = file.read(len(_MAGIC)) == _MAGIC
            return gzip.open(self._path) if is_compressed else Path(self._path).open("rb")
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror}") from error

    def _line(self, file: gzip.GzipFile | BinaryIO, number: int) -> bytes | None:
        """Return the next line; None at the end. A last line without its end is left out."""
        try:
            line = file.readline(LINE_BYTES_MAX + 1)
        except EOFError:
            self.is_cut_short = True
            return None
        except (OSError, zlib.error) as error:
            raise self._wrong(number, f"the file is damaged: {error}") from error
        if len(line) > LINE_BYTES_MAX:
            raise self._wrong(number, f"is longer than {LINE_BYTES_MAX} bytes, which no event is")
        if line and not line.endswith(b"\n"):
            self.is_cut_short = True
            return None
        return line or None

    def _header(self, line: bytes | None) -> RecordingHeader:
        try:
            header = msgspec.json.decode(line or b"", type=RecordingHeader)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            why = "expected the header of a recording, as `kubestow record` writes it"
            raise self._wrong(1, f"{why} ({error})") from error
        if header.kubestow_recording != FORMAT_VERSION:
            why = (
                f"the format has version {header.kubestow_recording}, and this Kubestow reads version {FORMAT_VERSION}"
            )
            raise self._wrong(1, f"{why}; use the Kubestow that recorded it ({header.recorder or 'unknown version'})")
        try:
            _ = header.started_s
        except (ValueError, OverflowError) as error:
            raise self._wrong(1, f"startedAt: {header.started_at!r} is not a time in RFC 3339: {error}") from error
        return header

    def _event(self, line: bytes, number: int) -> RecordedEvent:
        try:
            event = msgspec.json.decode(line, type=RecordedEvent)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._wrong(number, f"is not an event: {error}") from error
        if not math.isfinite(event.t) or not 0 <= event.t <= SECONDS_MAX:
            raise self._wrong(number, f"t: must be 0 to {SECONDS_MAX:.0f} seconds, got {event.t}")
        if event.t < self.duration_s:
            raise self._wrong(
                number, f"t: is {event.t}, and {self.duration_s} in an earlier line; time must not go back"
            )
        return event

    def _object(self, event: RecordedEvent, number: int) -> ObjectEvent:
        try:
            head = msgspec.json.decode(event.object, type=_Head)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._wrong(number, f"object: {error}") from error
        group = head.api_version.rpartition("/")[0]
        kind = f"{head.kind}.{group}" if f"{head.kind}.{group}" in RECORDED else head.kind
        if kind not in RECORDED:
            raise self._wrong(number, f"object.kind: {head.kind!r} is no kind of a recording")
        if head.api_version not in RECORDED[kind].group_versions:
            raise self._wrong(
                number,
                f"object.apiVersion: {head.api_version} is not read; {kind} is in {RECORDED[kind].group_versions[0]}",
            )
        names, spec = head.metadata, RECORDED[kind]
        if not names.name or not names.uid or bool(names.namespace) != spec.namespaced:
            wanted = "name, namespace and uid" if spec.namespaced else "name and uid, and no namespace"
            raise self._wrong(number, f"object.metadata: {kind} must have {wanted}")
        raw = bytes(event.object)
        if event.type != "DELETED":
            read = _decoder(kind).decode(raw)
            if isinstance(read, Broken):
                raise self._wrong(number, f"object: {kind} {names.name}: {read.why}")
            if isinstance(
                read, PartlyReadPod
            ):  # the scheduler reads parts of a bound pod; a replay needs the whole pod
                try:
                    from_manifest(Pod, msgspec.json.decode(raw))
                except (msgspec.ValidationError, ValueError) as error:
                    raise self._wrong(number, f"object: {kind} {names.name}: {error}") from error
        assert event.type != "SYNCED"
        return ObjectEvent(number, event.t, event.type, kind, names.namespace, names.name, names.uid, raw)

    def _wrong(self, number: int, why: str) -> InputError:
        return InputError(f"{self._path}: line {number}: {why}")


@cache
def _decoder(kind: str) -> ObjectDecoder[Any]:
    return ObjectDecoder(kind, type_of(kind))
