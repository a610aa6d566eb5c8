"""What a watch saw of pods, in the order of resourceVersions: who was bound where, and when."""

import json
from collections import defaultdict

from aiohttp import ClientSession, ClientTimeout

from tests.e2e.cluster import PODS, Json


class History:
    """Every node name that a watch saw on a pod, in order, and the resourceVersion at which it first had one."""

    def __init__(self) -> None:
        self.nodes_of: dict[str, list[str]] = defaultdict(list)
        self.bound_at: dict[str, int] = {}

    async def follow(self, http: ClientSession, version: str) -> None:
        """Until cancelled; a stream may end at any moment and is resumed where it ended."""
        while True:
            query = {"watch": "1", "resourceVersion": version}
            async with http.get(PODS, params=query, timeout=ClientTimeout(total=None)) as stream:
                stream.raise_for_status()
                rest = b""
                async for chunk in stream.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self._see(json.loads(line))

    def _see(self, event: Json) -> str:
        seen = event["object"]
        assert event["type"] != "ERROR", seen
        name, node_name = seen["metadata"]["name"], seen["spec"].get("nodeName")
        version = str(seen["metadata"]["resourceVersion"])
        if node_name and self.nodes_of[name][-1:] != [node_name]:
            self.nodes_of[name].append(node_name)
            self.bound_at.setdefault(name, int(version))
        return version
