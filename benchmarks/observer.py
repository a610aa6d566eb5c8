"""A separate process that watches pods and prints when each was bound.

`python -m benchmarks.observer KUBECONFIG NAMESPACE` lists, says `ready`, and then prints one line per binding:
`<time.monotonic> <pod> <node>`. That clock is the machine's, so times of two processes compare. The first node to which a
pod is nominated is printed as `<time.monotonic> <pod> <node> nominated`. A pod whose node changes is printed as `moved`, and
the run that sees one is worth nothing.

Server time, watch latency and this process's share of the cores are in every measurement, the same for all schedulers.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import yaml
from aiohttp import ClientSession, ClientTimeout, TCPConnector

from benchmarks.watching import changes, listed


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815 (the API's name)


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Status(msgspec.Struct):
    nominatedNodeName: str = ""  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _PodList(msgspec.Struct):
    metadata: _Metadata
    items: list[_Pod]


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_list = msgspec.json.Decoder(_PodList).decode


def session(kubeconfig: Path) -> ClientSession:
    """A client of the cluster that a test control plane's kubeconfig names (one CA file, one token)."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    return ClientSession(
        cluster["server"],
        headers={"Authorization": f"Bearer {user['token']}"},
        connector=TCPConnector(ssl=trust, limit=0),
        timeout=ClientTimeout(total=None),
    )


class Observer:
    """Remembers bindings and prints new ones."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._node_of: dict[str, str] = {}
        self._nominated: set[str] = set()
        self.version = ""

    def start(self, pods: _PodList) -> None:
        self.version = pods.metadata.resourceVersion
        for pod in pods.items:
            if pod.spec.nodeName:
                self._node_of[pod.metadata.name] = pod.spec.nodeName
        self._print("ready")

    def see(self, lines: list[bytes]) -> None:
        now = time.monotonic()
        told = [line for event in lines for line in self._lines(_decode_event(event), now)]
        if told:
            self._print("\n".join(told))

    def _lines(self, event: _Event, now: float) -> Iterator[str]:
        name, node = event.object.metadata.name, event.object.spec.nodeName
        if event.type == "ERROR":
            raise RuntimeError("the watch ended with an error: too old, or refused")
        self.version = event.object.metadata.resourceVersion
        nominated = event.object.status.nominatedNodeName
        if event.type == "DELETED":
            self._node_of.pop(name, None)
        elif nominated and not node and name not in self._nominated:
            self._nominated.add(name)
            yield f"{now:.6f} {name} {nominated} nominated"
        elif node and event.type != "BOOKMARK":
            before = self._node_of.get(name)
            self._node_of[name] = node
            if before is None:
                yield f"{now:.6f} {name} {node}"
            elif before != node:
                yield f"moved {name} {before} {node}"

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


async def watch(kubeconfig: Path, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    observer = Observer(sys.stdout)
    async with session(kubeconfig) as http:
        observer.start(_decode_list(await listed(http, path)))
        async for lines in changes(http, path, lambda: observer.version):
            observer.see(lines)


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1]), sys.argv[2]))
