"""Versions of pods that a watch shows, in the order of resourceVersions: bindings and deletions."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator

from aiohttp import ClientSession, ClientTimeout

from tests.e2e.cluster import PODS, Json


async def pod_events(http: ClientSession, version: str, path: str = PODS) -> AsyncIterator[Json]:
    """What a watch of pods, or of another collection, shows; a stream may end at any moment and is resumed where it ended."""
    while True:
        query = {"watch": "1", "resourceVersion": version}
        async with http.get(path, params=query, timeout=ClientTimeout(total=None)) as stream:
            stream.raise_for_status()
            rest = b""
            async for chunk in stream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    assert event["type"] != "ERROR", event
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event


class History:
    def __init__(self) -> None:
        self.nodes_of: dict[str, list[str]] = defaultdict(list)
        """Every node name that was seen on a pod."""
        self.versions: dict[str, list[Json]] = defaultdict(list)
        """By name, each in full; those of namesakes one after the other."""
        self.deleted: list[Json] = []
        """As they were last."""

    async def follow(self, http: ClientSession, version: str) -> None:
        """Read until cancelled."""
        async for event in pod_events(http, version):
            pod = event["object"]
            name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName")
            self.versions[name].append(pod)
            if node_name and self.nodes_of[name][-1:] != [node_name]:
                self.nodes_of[name].append(node_name)
            if event["type"] == "DELETED":
                self.deleted.append(pod)
