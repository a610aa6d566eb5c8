"""The bodies of requests to an extender, and its answers. Bytes to values, without I/O.

Go reads field names regardless of case, so extenders in other languages answer in various spellings, and so does this
module. An answer is not trusted: a wrong type is an error that names the field, and so is a list that is too long. The cache has only the fields that
scheduling reads, but an extender gets whole objects, without `metadata.managedFields`, as from kube-scheduler.

Upstream: staging/src/k8s.io/kube-scheduler/extender/v1/types.go ExtenderArgs, ExtenderFilterResult
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, Delta, ObjectDecoder
from scheduler.api.podinfo import PodInfo
from scheduler.core import api_json
from scheduler.core.errors import shortened
from scheduler.framework.extender import ExtenderError, FilterResult, MetaVictims, Victims

T = TypeVar("T")

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_encode: Final = msgspec.json.Encoder().encode
_MOST_ENTRIES: Final = 20_000
"""The entries of a list or map in an answer, and of all lists of victims together, unless more nodes were sent.

Converting 20,000 entries takes up to 0.2 s of CPU.
"""


class _Named(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""


class _Node(msgspec.Struct, frozen=True, gc=False):
    metadata: _Named = _Named()


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_field_lists: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw] | None] | None)
_text: Final = msgspec.json.Decoder(str | None)
_texts: Final = msgspec.json.Decoder(list[str | None] | None)
_map_of_texts: Final = msgspec.json.Decoder(dict[str, str | None] | None)
_nodes: Final = msgspec.json.Decoder(list[_Node | None] | None)
_int64: Final = msgspec.json.Decoder(_Int64 | None)


# -- requests --------------------------------------------------------------------------------------------------------


def of_nodes(pod: bytes, *, nodes: Iterable[bytes] | None, names: Sequence[str] | None) -> bytes:
    """Return ExtenderArgs with whole nodes or with their names."""
    items = b"null" if nodes is None else b'{"metadata":{},"items":[' + b",".join(nodes) + b"]}"
    return b'{"Pod":' + pod + b',"Nodes":' + items + b',"NodeNames":' + _encode(names) + b"}"


def of_victims(pod: bytes, *, whole: Mapping[str, tuple[Sequence[bytes], int]] | None, meta: Any) -> bytes:
    """Return ExtenderPreemptionArgs with whole victims or with their uids (`meta_victims`)."""
    victims = b"null"
    if whole is not None:
        each = (
            _encode(name) + b':{"Pods":[' + b",".join(pods) + b'],"NumPDBViolations":%d}' % violations
            for name, (pods, violations) in whole.items()
        )
        victims = b"{" + b",".join(each) + b"}"
    return b'{"Pod":' + pod + b',"NodeNameToVictims":' + victims + b',"NodeNameToMetaVictims":' + _encode(meta) + b"}"


def meta_victims(victims: Mapping[str, Victims]) -> dict[str, Any]:
    return {
        name: {"Pods": [{"UID": pod.uid} for pod in each.pods], "NumPDBViolations": each.violations}
        for name, each in victims.items()
    }


def of_binding(pod: PodInfo, node_name: str) -> bytes:
    """Return ExtenderBindingArgs."""
    metadata = pod.pod.metadata
    return _encode(
        {"PodName": metadata.name, "PodNamespace": metadata.namespace, "PodUID": metadata.uid, "Node": node_name}
    )


# -- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one call. `about` names the extender and the verb in errors; `node_count` nodes were sent."""

    body: bytes
    about: str
    node_count: int = 0

    def filter_result(self, sent: Sequence[str], url_prefix: str) -> FilterResult:
        """Return which of the nodes passed. Names win over whole nodes, as upstream.

        A node that was not sent is an error. Upstream accepts it among whole nodes.
        """
        fields = self._struct()
        self._raise_error(fields)
        names = self._get(fields, "NodeNames", _texts)
        if names is None:
            nodes = self._get(fields, "Nodes", _fields) or {}
            items = self._get(nodes, "items", _nodes, within="Nodes.") or ()
            names = [node.metadata.name if node is not None else "" for node in items]
        sent_names = frozenset(sent)
        for name in names:
            if name not in sent_names:
                raise ExtenderError(
                    f'extender "{url_prefix}" claims a filtered node "{shortened(name or "", 300)}" '
                    "which is not found in the input node list"
                )
        return FilterResult(
            frozenset(name for name in names if name),
            _without_null(self._get(fields, "FailedNodes", _map_of_texts)),
            _without_null(self._get(fields, "FailedAndUnresolvableNodes", _map_of_texts)),
        )

    def host_priorities(self) -> list[tuple[str, int]]:
        hosts = self._decoded(_field_lists, self.body, "HostPriorityList") or ()
        return [
            (
                self._get(host or {}, "Host", _text, within=f"[{at}].") or "",
                self._get(host or {}, "Score", _int64, within=f"[{at}].") or 0,
            )
            for at, host in enumerate(hosts)
        ]

    def preemption_result(self) -> dict[str, MetaVictims]:
        """Return the accepted candidates with their victims."""
        found = self._get(self._struct(), "NodeNameToMetaVictims", _fields) or {}
        victims, count = {}, 0
        for name, raw in found.items():
            path = f"NodeNameToMetaVictims[{shortened(name, 100)}]."
            fields = self._decoded(_fields, raw, path[:-1]) or {}
            pods = self._get(fields, "Pods", _field_lists, within=path) or ()
            count += len(pods)
            self._raise_too_many(count, "NodeNameToMetaVictims")
            uids = (self._get(pod or {}, "UID", _text, within=f"{path}Pods[{at}].") for at, pod in enumerate(pods))
            violations = self._get(fields, "NumPDBViolations", _int64, within=path) or 0
            victims[name] = MetaVictims(tuple(uid or "" for uid in uids), violations)
        return victims

    def binding_result(self) -> None:
        """Return if the extender has bound the pod."""
        self._raise_error(self._struct())

    def _raise_error(self, fields: Mapping[str, msgspec.Raw]) -> None:
        if error := self._get(fields, "Error", _text):
            raise ExtenderError(error, is_answer=True)

    def _struct(self) -> Mapping[str, msgspec.Raw]:
        return self._decoded(_fields, self.body, "") or {}

    def _get(
        self, fields: Mapping[str, msgspec.Raw], name: str, decoder: msgspec.json.Decoder[T], *, within: str = ""
    ) -> T | None:
        raw = fields.get(name)
        if raw is None:
            raw = next((value for key, value in fields.items() if key.lower() == name.lower()), None)
        return None if raw is None else self._decoded(decoder, raw, within + name)

    def _decoded(self, decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, path: str) -> T:
        try:
            found = api_json.decode(decoder, raw)
        except (msgspec.DecodeError, ValueError) as error:
            where = f"{path} in " if path else ""
            raise ExtenderError(f"{where}the answer of {self.about} is unreadable: {error}") from error
        if isinstance(found, (dict, list)):
            self._raise_too_many(len(found), path)
        return found

    def _raise_too_many(self, count: int, path: str) -> None:
        most = max(_MOST_ENTRIES, self.node_count)
        if count > most:
            where = f"{path} in " if path else ""
            raise ExtenderError(f"{where}the answer of {self.about} has more than {most} entries")


def _without_null(texts: Mapping[str, str | None] | None) -> dict[str, str]:
    return {name: text or "" for name, text in (texts or {}).items()}


_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
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

    def decode(self, raw: bytes | msgspec.Raw) -> Any:
        decoded = self._decoder_of_kind.decode(raw)
        if not isinstance(decoded, Broken):
            self._keep(decoded, raw)
        return decoded


def without_managed_fields(raw: bytes | msgspec.Raw) -> bytes:
    """Return the object without `metadata.managedFields`; the other fields keep their bytes."""
    fields = api_json.decode(_parts, raw)
    metadata = api_json.decode(_parts, fields["metadata"])
    if metadata.pop(_MANAGED, None) is None:
        return bytes(raw)
    return msgspec.json.encode({**fields, "metadata": metadata})
