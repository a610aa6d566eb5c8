"""Record a cluster: list and watch the kinds that the scheduler watches, and write each change to a file.

The informers of the scheduler read them, so a cut connection, an expired version or an upgrade of the server costs no
change. An object is written only if a field that is kept has changed: the heartbeats of nodes, for instance, are not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.api.decode import Broken, Delta, ObjectDecoder
from scheduler.api.meta import Frozen, Metadata
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError
from scheduler.core.terminal import counted
from scheduler.kube.client_config import SettingsError, load_settings
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import POD_GROUPS, DiscoveryFailed, KindSpec, ServedKind, discover
from scheduler.kube.server_version import server_version
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Transport
from simulator.replay.recording import LINE_BYTES_MAX, SECONDS_MAX, RecordingWriter
from simulator.replay.reduction import RECORDED, reduced
from simulator.simulate.input.from_cluster import kubectl, rbac_name, what_to_do
from simulator.simulate.input.sources import InputError

Written: TypeAlias = Callable[[int, int], object]
"""Called with the events and the bytes of the file."""

_POLL_S: Final = 0.2
_SYNC_S: Final = 120.0
"""Time limit of the first state."""
_ROLE: Final = "kubestow-record"
_DROPPED: Final = ("resourceVersion", "managedFields", "selfLink")
_IDENTITY: Final = ("name", "namespace", "uid")
_ANY: Final[msgspec.json.Decoder[Mapping[str, Any]]] = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How long a recording lasts, and where it is written."""

    path: str
    duration_s: float | None = None
    """None: until it is stopped."""
    size_max_bytes: int = 2**30
    kubeconfig: str | None = None
    context: str | None = None
    allows_partial: bool = False
    """Whether it goes on without kinds that the user may not read."""


class _Reduced(Frozen, frozen=True):
    """An object as it is recorded."""

    metadata: Metadata
    body: bytes

    @property
    def key(self) -> str:
        return self.metadata.key


class _ReducingDecoder(ObjectDecoder[Any]):
    """Decode objects of one kind to what is recorded of them."""

    def __init__(self, spec: KindSpec, version: str) -> None:
        super().__init__(spec.name, spec.typ or object)
        self._api_version = f"{spec.group}/{version}" if spec.group else version

    def decode(self, raw: bytes | msgspec.Raw) -> Any:
        """Return the object, or a `Broken` that is not recorded."""
        read = super().decode(raw)
        if isinstance(read, Broken):
            return read
        obj = reduced(self.kind, apijson.decode(_ANY, raw))
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _DROPPED}
        kind = self.kind.partition(".")[0]
        body = msgspec.json.encode({"apiVersion": self._api_version, "kind": kind} | obj | {"metadata": metadata})
        if len(body) > LINE_BYTES_MAX - 1024:
            return Broken(kind=self.kind, metadata=read.metadata, why="is too large for a recording")
        names = {name: metadata.get(name, "") for name in _IDENTITY}
        return _Reduced(Metadata(**names, resource_version=read.metadata.resource_version), body)


@dataclass(eq=False)
class ClusterRecording:
    """One recording: `run` until it ends, or is cancelled. Requests are lists and watches only."""

    transport: Transport
    writer: RecordingWriter
    clock: Clock
    options: RecordOptions
    served: Mapping[str, ServedKind]
    progress: Written = lambda *_: None
    notes: list[str] = field(default_factory=list)
    """What the recording lacks."""

    def __post_init__(self) -> None:
        self._began_s = self.clock.now()
        self._bodies: dict[tuple[str, str], int] = {}
        """Kind and key → hash of the body that was written last."""
        self._reflectors = [self._reflector(RECORDED[name], place) for name, place in self.served.items()]
        self._is_synced = False

    async def run(self) -> str:
        """Record until the time or the size is reached. Return why it ended.

        Raises InputError for missing permissions and a full disk.
        """
        tasks = [asyncio.ensure_future(each.run()) for each in self._reflectors]
        try:
            while not (end := self._end()):
                await self.clock.sleep(_POLL_S)
                for task in tasks:
                    if task.done():
                        task.result()
                if not self._is_synced:
                    self._check_first_state()
                self.progress(self.writer.events, self.writer.size_bytes())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return end

    @property
    def at_s(self) -> float:
        """Return the seconds since the start."""
        return self.clock.now() - self._began_s

    # -- inside --------------------------------------------------------------------------------------------------------

    def _reflector(self, spec: KindSpec, served: ServedKind) -> Reflector[Any]:
        return Reflector(
            spec,
            served,
            decoder=_ReducingDecoder(spec, served.version),
            transport=self.transport,
            on_batch=partial(self._write, spec),
            clock=self.clock,
            rng=random.Random(),
            locate=partial(self._locate, spec),
        )

    async def _locate(self, spec: KindSpec) -> ServedKind | None:
        return (await discover(self.transport, [spec]))[spec.name]

    def _write(self, spec: KindSpec, deltas: list[Delta[Any]]) -> None:
        for delta in deltas:
            if isinstance(delta.new, _Reduced):
                self._changed(spec, delta.new)
            elif (
                delta.new is None
                and delta.old is not None
                and self._bodies.pop((spec.name, delta.old.key), None) is not None
            ):
                self._deleted(spec, delta.old)

    def _changed(self, spec: KindSpec, obj: _Reduced) -> None:
        key, body = (spec.name, obj.key), hash(obj.body)
        if self._bodies.get(key) == body:
            return
        type_ = "MODIFIED" if key in self._bodies else "ADDED"
        self._bodies[key] = body
        self.writer.event(self.at_s, type_, msgspec.Raw(obj.body))

    def _deleted(self, spec: KindSpec, obj: Any) -> None:
        metadata = {name: value for name in _IDENTITY if (value := getattr(obj.metadata, name))}
        version = self.served[spec.name].version
        api_version = f"{spec.group}/{version}" if spec.group else version
        kind = spec.name.partition(".")[0]
        self.writer.event(self.at_s, "DELETED", {"apiVersion": api_version, "kind": kind, "metadata": metadata})

    def _check_first_state(self) -> None:
        """Write SYNCED once all kinds are complete."""
        denied = [each for each in self._reflectors if each.stats.denied]
        groups = [each for each in denied if each.spec in POD_GROUPS]
        if len(denied) > len(groups) and not self.options.allows_partial:
            raise InputError(_explained(denied))
        waiting = [each for each in self._reflectors if not each.stats.synced and each not in denied]
        if not waiting:
            self._is_synced = True
            self.notes += [f"{each.spec.plural} are not recorded: {each.stats.denied}" for each in denied]
            self.writer.event(self.at_s, "SYNCED")
            self.writer.flush()
        elif self.at_s > _SYNC_S:
            plurals = ", ".join(each.spec.plural for each in waiting)
            errors = {each.stats.last_error for each in waiting if each.stats.last_error}
            raise InputError(f"no complete list within {_SYNC_S:.0f} s: {plurals}. {'; '.join(sorted(errors))}")

    def _end(self) -> str:
        """Return why the recording has ended; "" if it has not."""
        limit_s = min(self.options.duration_s or SECONDS_MAX, SECONDS_MAX)
        if self._is_synced and self.at_s >= limit_s:
            return "its time is over"
        size = self.writer.size_bytes()
        if size >= self.options.size_max_bytes:
            return f"the file has {size} bytes, which is the limit of --max-size"
        return ""


def _explained(denied: list[Reflector[Any]]) -> str:
    resources = ",".join(rbac_name(each.spec) for each in denied)
    return "\n".join(
        (
            f"the user may not read {counted(len(denied), 'kind')}: {', '.join(each.stats.denied for each in denied)}",
            "Grant it:",
            f"  kubectl create clusterrole {_ROLE} --verb=list,watch --resource={resources}",
            f"  kubectl create clusterrolebinding {_ROLE} --clusterrole={_ROLE} --user=NAME",
            "--allow-partial goes on without these objects.",
        )
    )


async def record(options: RecordOptions, *, clock: Clock, progress: Written = lambda *_: None) -> tuple[str, list[str]]:
    """Record a cluster to a new file. Return why the recording ended, and what it lacks.

    When it is cancelled, the file is complete up to that moment. Raises InputError with one line for an unreadable
    cluster or a file that cannot be written.
    """
    try:
        settings = await load_settings(options.kubeconfig, context=options.context)
    except SettingsError as why:
        name = kubectl(options.kubeconfig, options.context)
        raise InputError(f"{why}. Check --kubeconfig and --context; {name} must work, too") from why
    transport = HttpTransport(settings, clock=clock)
    try:
        return await _record(transport, options, clock, progress)
    except ApiError as why:
        raise InputError(what_to_do(why, settings, kubectl(options.kubeconfig, options.context))) from why
    finally:
        await transport.close()


async def _record(
    transport: Transport, options: RecordOptions, clock: Clock, progress: Written
) -> tuple[str, list[str]]:
    try:
        places = await discover(transport, RECORDED.values())
    except DiscoveryFailed as why:
        raise ApiError(f"API discovery failed: {why}") from why
    served = {name: place for name, place in places.items() if place is not None}
    git_version = await server_version(transport, clock)
    try:
        writer = RecordingWriter(options.path, started_s=clock.wall(), server=git_version)
    except FileExistsError:
        raise InputError(f"{options.path}: exists; give the name of a new file") from None
    except OSError as error:
        raise InputError(f"{options.path}: {error.strerror}") from error
    recording = ClusterRecording(transport, writer, clock, options, served, progress)
    try:
        return await recording.run(), recording.notes
    except OSError as error:
        raise InputError(f"{options.path}: {error.strerror}; the recording is readable up to here") from error
    finally:
        writer.close()
