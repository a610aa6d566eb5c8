"""`kubestow bugreport`: one archive with what the scheduler and the cluster show, without secrets.

Each part has its share of the time. A part that cannot be read is named in the manifest, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import platform
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from kubestow.commands.archive import CHECKS, MANIFEST, Archive, write_new
from kubestow.commands.pages import READYZ, answered, read_pages
from kubestow.commands.queue import QUEUE, queue_of, queue_text
from kubestow.commands.status import METRICS, as_json, status_of, status_text
from kubestow.commands.unreachable import SELECTOR
from scheduler import __version__
from scheduler.cli.client_flags import label, object_name
from scheduler.cli.cluster_commands import NO_ANSWER, fail
from scheduler.cli.debug_request import Client
from scheduler.cli.leader import NoAnswer, one_line
from scheduler.core import api_json
from scheduler.core.errors import ApiError
from scheduler.core.terminal import counted, printable
from scheduler.kube.transport import HttpTransport
from simulator.simulate.input.dump import dumped
from simulator.simulate.input.from_cluster import ClusterOptions, read_cluster
from simulator.simulate.input.manifests import InputError

CACHE: Final = "/debug/cache"
_PAGES: Final[Mapping[str, tuple[str, str]]] = {
    READYZ: ("readyz.txt", "all health checks"),
    METRICS: ("metrics.txt", "metrics"),
    "/configz": ("configz.json", "the configuration in force"),
    "/debug/audit": ("audit.json", "the self-audit"),
    QUEUE: ("debug-queue.json", "the queue"),
    CACHE: ("debug-cache.json", "the cache: sizes, volumes and devices in flight, and the first nodes"),
}
_SHARES: Final = (0.4, 0.3, 0.95)
"""Of the time that is left, for the pages, for the scheduler's own objects and logs, and for the objects of the cluster."""
_PODS_MAX: Final = 5
_EVENTS_MAX: Final = 500
_CACHED_NODES_MAX: Final = 200
_LOG_BYTES_MAX: Final = 8 * 2**20
_TEXT: Final = "application/json, */*"
_MESSAGES: Final = frozenset({"BackOff", "FailedScheduling", "Killing", "LeaderElection", "Preempted", "Scheduled"})
"""Reasons of events whose messages are kept. Other messages may quote the output of a container."""
_ANY: Final = msgspec.json.Decoder(dict[str, Any])


def bugreport(arguments: argparse.Namespace) -> int:
    """Write the archive and print what to check in it. Return the exit code."""

    async def collected(client: Client) -> _Report:
        moment = datetime.fromtimestamp(client.clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
        report = _Report(client, Archive(f"kubestow-bugreport-{moment}"), arguments)
        await report.collect()
        return report

    if arguments.output_file and Path(arguments.output_file).exists():
        return fail(arguments, f"--output-file: {arguments.output_file}: File exists; name another file", 1)
    report = answered(arguments, collected)
    if isinstance(report, int):
        return report
    archive = report.archive
    if not report.has_read:
        return fail(arguments, report.first_problem or "nothing could be read", NO_ANSWER)
    file = arguments.output_file or f"{archive.directory}.tar.gz"
    body = archive.packed(report.client.clock.wall())
    try:
        write_new(file, body)
    except OSError as error:
        return fail(arguments, f"--output-file: {file}: {error.strerror}; name another file", 1)
    size = f"{counted(len(archive) + 1, 'file')}, {len(body)} bytes"
    listing = f"`tar -xOf {file} {archive.directory}/{MANIFEST}` lists what it has and lacks"
    sys.stdout.write(printable(f"{file}: {size}; {listing}\n\n{CHECKS}\n"))
    return 0


@dataclass(slots=True)
class _Report:
    """One report while it is collected."""

    client: Client
    archive: Archive
    arguments: argparse.Namespace
    has_read: bool = False
    """Whether the scheduler or the API server has answered."""
    first_problem: str = ""
    _until: float = field(init=False, default=0.0)

    async def collect(self) -> None:
        """Collect all parts. Does not raise for a part that cannot be read."""
        system = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
        self.archive.add_text("version.txt", "this program", f"kubestow {__version__}\n{system}\n")
        self._until = self.client.clock.now() + 0.95 * self.client.access.timeout_s
        await self._part("pages of the scheduler", _SHARES[0], self._pages)
        if not self.client.settings.server:
            self.archive.lacks("objects", "with --server=http://… no kubeconfig is read")
            return
        await self._part("the scheduler's objects", _SHARES[1], self._own_objects)
        if self.arguments.without_objects:
            self.archive.lacks("objects.json", "--without-objects is given")
        else:
            await self._part("objects.json", _SHARES[2], self._cluster)

    async def _part(self, name: str, share: float, part: Callable[[float], Awaitable[None]]) -> None:
        """Run a part, which gets its time limit in seconds."""
        limit_s = share * max(0.0, self._until - self.client.clock.now())
        try:
            async with asyncio.timeout(limit_s):
                await part(limit_s)
        except TimeoutError:
            self._lacks(name, f"not complete within {limit_s:.1f} s; --timeout gives more time")
        except (NoAnswer, InputError) as why:
            self._lacks(name, str(why))
        except ApiError as error:
            self._lacks(name, one_line(error.message))
        except Exception as error:  # noqa: BLE001 (a strange answer costs its own part)
            self._lacks(name, f"{type(error).__name__}: {one_line(str(error))}")

    @contextlib.contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Name a file in the manifest instead, if the block cannot read what the API server answers."""
        try:
            yield
        except ApiError as error:
            self._lacks(name, one_line(error.message))
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._lacks(name, f"the answer cannot be read: {one_line(str(error))}")

    def _lacks(self, name: str, why: str) -> None:
        self.first_problem = self.first_problem or why
        self.archive.lacks(name, why)

    # -- the scheduler -----------------------------------------------------------------------------------------------

    async def _pages(self, limit_s: float) -> None:
        pages = await read_pages(self.client, tuple(_PAGES), limit_s=limit_s)
        self.has_read = True
        wall_s = self.client.clock.wall()
        status = status_of(pages)
        self.archive.add_text("status.txt", "kubestow status", status_text(status, wall_s))
        self.archive.add_text("status.json", "kubestow status -o json", as_json(status))
        for path, (name, title) in _PAGES.items():
            if path in pages.missing:
                self._lacks(name, pages.missing[path])
            elif path == CACHE:
                self.archive.add_text(name, title, _shortened_cache(pages.texts[path]))
            else:
                self.archive.add_text(name, title, pages.texts[path])
        if QUEUE in pages.texts:
            queue = queue_of(pages.texts[QUEUE], wall_s, namespace="", limit=10_000)
            self.archive.add_text("queue.txt", "kubestow queue --limit 10000", queue_text(queue))

    async def _own_objects(self, _: float) -> None:
        lease, namespace = self.client.access.lease, self.client.access.lease.pod_namespace
        chosen = {"labelSelector": SELECTOR, "limit": str(_PODS_MAX)}
        core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
        path = f"/apis/coordination.k8s.io/v1/namespaces/{lease.namespace}/leases/{lease.name}"
        async with self.client.api_server() as transport:
            await self._object(transport, "lease.json", "the Lease", path, {})
            await self._object(transport, "deployments.json", "the Deployments", f"{apps}/deployments", chosen)
            pods = await self._object(transport, "pods.json", "the scheduler's pods", f"{core}/pods", chosen)
            for each in pods[:_PODS_MAX]:
                await self._logs(transport, f"{core}/pods", each)
            await self._events(transport, f"{core}/events")

    async def _object(
        self, transport: HttpTransport, name: str, title: str, path: str, query: Mapping[str, str]
    ) -> Sequence[dict[str, Any]]:
        """Add the objects without secrets, and return them; none if they cannot be read."""
        found: list[dict[str, Any]] = []
        with self._readable(name):
            answer = api_json.decode(_ANY, await transport.get(path, query=query))
            found = [each for each in answer.get("items", [answer]) if isinstance(each, dict)]
            self.has_read = True
            for each in found:
                if isinstance(metadata := each.get("metadata"), dict):
                    metadata.pop("managedFields", None)
            self.archive.add_text(name, title, msgspec.json.format(dumped(found), indent=2).decode())
        return found

    async def _logs(self, transport: HttpTransport, path: str, pod: Mapping[str, Any]) -> None:
        """Add the end of the log of each container, and of the one before a restart."""
        try:
            name = object_name(pod["metadata"]["name"])  # it is a part of paths
            containers = [label(each["name"]) for each in pod["spec"]["containers"]][:_PODS_MAX]
        except (KeyError, TypeError, argparse.ArgumentTypeError) as error:
            self._lacks("logs", f"a pod has no name: {one_line(str(error))}")
            return
        for container in containers:
            for kind, previous in (("", {}), (" before the last restart", {"previous": "true"})):
                query = {
                    "container": container,
                    "tailLines": str(self.arguments.log_lines),
                    "limitBytes": str(_LOG_BYTES_MAX),
                    **previous,
                }
                file = f"logs/{name}-{container}{'-previous' if previous else ''}.txt"
                try:
                    raw = await transport.get(f"{path}/{name}/log", query=query, accept=_TEXT)
                except ApiError as error:
                    if not previous:  # most containers have not been restarted
                        self._lacks(file, one_line(error.message))
                    continue
                self.archive.add_text(file, f"the log of the container {container}{kind}", raw.decode(errors="replace"))

    async def _events(self, transport: HttpTransport, path: str) -> None:
        with self._readable("events.json"):
            answer = api_json.decode(_ANY, await transport.get(path, query={"limit": str(_EVENTS_MAX)}))
            rows = [_event(each) for each in answer.get("items") or ()]
            text = msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()
            self.archive.add_text("events.json", "events of the scheduler's namespace", text)

    # -- the cluster -------------------------------------------------------------------------------------------------

    async def _cluster(self, _: float) -> None:
        access = self.client.access
        options = ClusterOptions(kubeconfig=access.kubeconfig, context=access.context, allows_partial=True)
        read = await read_cluster(options, clock=self.client.clock, progress=lambda *_: None)
        self.has_read = True
        title = "the objects that scheduling reads, as of `kubestow simulate --from-cluster --save`"
        self.archive.add_bytes("objects.json", title, dumped(each.former for each in read.objects))
        for gap in read.gaps:
            self.archive.lacks(f"objects.json: {gap.kind.spec.name}", f"the user may not {gap}")
        for note in read.notes:
            self.archive.lacks("objects.json", note)


def _shortened_cache(text: str) -> str:
    """Return the page with the first nodes only. A text that is not such a page stays as it is."""
    try:
        page = msgspec.json.decode(text)
        nodes = page["nodes"]
        page["nodes"] = nodes[:_CACHED_NODES_MAX]
        page["nodesInAll"] = len(nodes)
    except (msgspec.DecodeError, UnicodeEncodeError, KeyError, TypeError, RecursionError):
        return text
    return msgspec.json.format(msgspec.json.encode(page), indent=2).decode()


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event says about scheduling."""
    kept = {
        name: event.get(name) for name in ("type", "reason", "count", "firstTimestamp", "lastTimestamp", "eventTime")
    }
    about = event.get("involvedObject") or event.get("regarding") or {}
    kept["object"] = {name: about.get(name) for name in ("kind", "namespace", "name")}
    kept["component"] = event.get("reportingComponent") or (event.get("source") or {}).get("component")
    if event.get("reason") in _MESSAGES:
        kept["message"] = event.get("message") or event.get("note")
    return kept
