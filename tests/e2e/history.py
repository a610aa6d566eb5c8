"""What a watch saw of pods, in the order of resourceVersions: who was bound where, and when."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator

from aiohttp import ClientSession, ClientTimeout

from tests.e2e.cluster import PODS, Json


async def pod_events(http: ClientSession, version: str) -> AsyncIterator[Json]:
    """What a watch shows; a stream may end at any moment and is resumed where it ended."""
    while True:
        query = {"watch": "1", "resourceVersion": version}
        async with http.get(PODS, params=query, timeout=ClientTimeout(total=None)) as stream:
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
    """Every node name that a watch saw on a pod, in order, and the resourceVersion at which it first had one."""

    def __init__(self) -> None:
        self.nodes_of: dict[str, list[str]] = defaultdict(list)
        self.bound_at: dict[str, int] = {}

    async def follow(self, http: ClientSession, version: str) -> None:
        """Until cancelled."""
        async for event in pod_events(http, version):
            self.see(event["object"])

    def see(self, pod: Json) -> None:
        """One version of a pod, as a watch or a list shows it."""
        name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if node_name and self.nodes_of[name][-1:] != [node_name]:
            self.nodes_of[name].append(node_name)
            self.bound_at.setdefault(name, int(pod["metadata"]["resourceVersion"]))
