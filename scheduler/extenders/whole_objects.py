"""The JSON of objects as the API server sent them, for extenders.

The cache has only the fields that scheduling reads, but an extender gets whole objects. `metadata.managedFields` is
removed, as kube-scheduler removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, Delta, ObjectDecoder
from scheduler.core import api_json

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MANAGED: Final = "managedFields"


class WholeObjects:
    """The JSON of pods by uid and of nodes by name.

    `wants_pod` says whether a pod is kept. It is called for each version of a pod.
    """

    def __init__(self, wants_pod: Callable[[Pod], bool], *, keeps_nodes: bool) -> None:
        self._wants_pod = wants_pod
        self._keeps_nodes = keeps_nodes
        self._kept: dict[str, tuple[str, bytes]] = {}
        """Uid of a pod or name of a node → uid and JSON. A uid is no name of a node in practice."""

    def keeping(self, typ: type[Any] | None, decoder: ObjectDecoder[Any]) -> ObjectDecoder[Any]:
        """Return a decoder that keeps the JSON of pods or nodes; for other types the decoder itself."""
        if typ is Pod:
            return _KeepingDecoder(decoder, self._keep_pod)
        return _KeepingDecoder(decoder, self._keep_node) if typ is Node and self._keeps_nodes else decoder

    def forget_deleted(self, deltas: Iterable[Delta[Any]]) -> None:
        """Drop the JSON of deleted objects."""
        for delta in deltas:
            if delta.new is None and delta.old is not None:
                metadata = delta.old.metadata
                for key in (metadata.uid, metadata.name):
                    if key in self._kept and self._kept[key][0] == metadata.uid:
                        del self._kept[key]

    def get(self, key: str) -> bytes | None:
        """Return the JSON of the pod with this uid, or of the node with this name; None if it is not kept."""
        kept = self._kept.get(key)
        return None if kept is None else kept[1]

    def _keep_pod(self, pod: Pod, raw: bytes | msgspec.Raw) -> None:
        uid = pod.metadata.uid
        if self._wants_pod(pod):
            self._kept[uid] = (uid, without_managed_fields(raw))
        else:
            self._kept.pop(uid, None)

    def _keep_node(self, node: Node, raw: bytes | msgspec.Raw) -> None:
        self._kept[node.metadata.name] = (node.metadata.uid, without_managed_fields(raw))


class _KeepingDecoder(ObjectDecoder[Any]):
    """A decoder that passes each readable object with its JSON to `keep`."""

    def __init__(self, decoder: ObjectDecoder[Any], keep: Callable[[Any, bytes | msgspec.Raw], None]) -> None:
        self._decoder_of_kind = decoder
        self._keep = keep

    def decode(self, raw: bytes | msgspec.Raw, version: str = "") -> Any:
        decoded = self._decoder_of_kind.decode(raw, version)
        if not isinstance(decoded, Broken):
            self._keep(decoded, raw)
        return decoded


def without_managed_fields(raw: bytes | msgspec.Raw) -> bytes:
    """Return the object without `metadata.managedFields`; the other fields keep their bytes."""
    fields = api_json.decode(_fields, raw)
    metadata = api_json.decode(_fields, fields["metadata"])
    if metadata.pop(_MANAGED, None) is None:
        return bytes(raw)
    return msgspec.json.encode({**fields, "metadata": metadata})
