"""The bodies of requests to an extender, and its answers. Bytes to values, without I/O.

Go reads field names regardless of case, so extenders in other languages answer in various spellings, and so does this
module. An answer is not trusted: a wrong type is an error that names the field.

Upstream: staging/src/k8s.io/kube-scheduler/extender/v1/types.go ExtenderArgs, ExtenderFilterResult
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.core import api_json
from scheduler.core.errors import shortened
from scheduler.framework.extender import ExtenderError, FilterResult, MetaVictims, Victims

T = TypeVar("T")

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_encode: Final = msgspec.json.Encoder().encode


class _Named(msgspec.Struct, rename="camel"):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


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
    """Return the victims by uid."""
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
    """The answer of one call. `about` names the extender and the verb in errors."""

    body: bytes
    about: str

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
        known = frozenset(sent)
        for name in names:
            if name not in known:
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
        """Return a HostPriorityList."""
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
        victims = {}
        for name, raw in found.items():
            path = f"NodeNameToMetaVictims[{shortened(name, 100)}]."
            fields = self._decoded(_fields, raw, path[:-1]) or {}
            pods = self._get(fields, "Pods", _field_lists, within=path) or ()
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
            return api_json.decode(decoder, raw)
        except (msgspec.DecodeError, ValueError) as error:
            where = f"{path} in " if path else ""
            raise ExtenderError(f"{where}the answer of {self.about} is unreadable: {error}") from error


def _without_null(texts: Mapping[str, str | None] | None) -> dict[str, str]:
    return {name: text or "" for name, text in (texts or {}).items()}
