"""Metadata of API objects, names, addresses and timestamps.

`Frozen` is the base of every cached object (ADR 0005). Structs have only the fields that Kubestow reads; unknown
fields are skipped, because servers may be newer. `gc=False` is safe, because decoded JSON has no cycles, and keeps
fifty thousand pods out of the garbage collector. The rules for names return complaints in Kubernetes' words.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec

Labels: TypeAlias = dict[str, str]
Key: TypeAlias = str
"""`namespace/name`, or `name` for cluster-scoped kinds."""
Values: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]
"""Values of a selector.

Longer lists are unreadable: 100,000 values in one pod would block the event loop for a tenth of a second.
"""
PREFERRED_MAX: Final = 4
"""The preferred topology keys of a group that count."""
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""The API's range: an object with another number is unreadable."""


_VERSION_DIGITS: Final = 20
"""Digits of the largest unsigned 64-bit number."""


class Frozen(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Decoded API data. Never changed after decoding; `msgspec.structs.replace` makes a changed copy."""


class OwnerReference(Frozen, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Identity(Frozen, frozen=True):
    """The part of `metadata` that identifies an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def version(self) -> int:
        """`resource_version` as a number, for comparisons of one object or kind (KEP-5504); 0 if it is none."""
        text = self.resource_version
        return int(text) if text.isdecimal() and len(text) <= _VERSION_DIGITS else 0


class Metadata(Identity, frozen=True):
    """`metadata`. Annotations are not read: an object may have 256 KiB of them."""

    generation: int = 0
    labels: Labels = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class AnnotatedMetadata(Metadata, frozen=True):
    """`metadata` of the kinds whose annotations are read."""

    annotations: Labels = {}


class GroupAnnotations(Frozen, frozen=True):
    """The annotations of a pod that are read: those by which Volcano knows its group. The rest is skipped."""

    group_name: str = msgspec.field(default="", name="scheduling.k8s.io/group-name")
    task: str = msgspec.field(default="", name="volcano.sh/task-spec")
    """The role of the pod in its group, for `minTaskMember`."""


class PodMetadata(Metadata, frozen=True):
    annotations: GroupAnnotations = GroupAnnotations()


class PodGroupAnnotations(Frozen, frozen=True):
    """The annotation of a PodGroup that is read."""

    preferred_topology: str = msgspec.field(default="", name="kubestow.dev/preferred-topology")
    """Keys of node labels, separated by commas, the closest domains first."""


class PodGroupMetadata(Metadata, frozen=True):
    """`metadata` of a PodGroup of any kind."""

    annotations: PodGroupAnnotations = PodGroupAnnotations()

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The keys of the labels of which all pods should have one value, the first ones if there are many."""
        keys = (key.strip() for key in self.annotations.preferred_topology.split(","))
        return tuple(dict.fromkeys(key for key in keys if key))[:PREFERRED_MAX]


class NamespacedObject(Frozen, frozen=True):
    """The base of kinds with a namespace."""

    metadata: Metadata

    @property
    def key(self) -> Key:
        return self.metadata.key


class ClusterObject(Frozen, frozen=True):
    """The base of cluster-scoped kinds."""

    metadata: Metadata

    @property
    def key(self) -> Key:
        return self.metadata.name


def seconds(wall_s: float) -> str:
    """Return a metav1.Time: `2026-01-02T03:04:05Z`."""
    return datetime.fromtimestamp(int(wall_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(wall_s: float) -> str:
    """Return a metav1.MicroTime: `2026-01-02T03:04:05.000006Z`."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_KEY: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_KEY_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_RULE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253


def subdomain(value: str) -> list[str]:
    """Check the name of most objects: `gpu.example.com`."""
    found = _longer(value, _LONGEST_NAME, "characters")
    return found if NAME.fullmatch(value) else [*found, NAME_RULE]


def dns_label(value: str) -> list[str]:
    """Check a part of such a name: `gpu-0`."""
    found = _longer(value, _LONGEST_LABEL, "characters")
    if _LABEL.fullmatch(value):
        return found
    return [*found, "must not contain dots" if NAME.fullmatch(value) else _LABEL_RULE]


def dns_1035_label(value: str) -> list[str]:
    """Check the older rule that requires a first letter: the name of a Service."""
    found = _longer(value, _LONGEST_LABEL, "characters")
    return found if _LABEL_1035.fullmatch(value) else [*found, _LABEL_1035_RULE]


def label_key(value: str) -> list[str]:
    """Check a qualified name: `example.com/My_Name`, with or without the domain."""
    prefix, slash, name = value.partition("/")
    if "/" in name:
        return [
            f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found: list[str] = []
    if slash:
        found = [f"prefix part {why}" for why in _prefix(prefix)]
    else:
        name = value
    if not name:
        found.append("name part must be non-empty")
    found += [f"name part {why}" for why in _longer(name, _LONGEST_LABEL, "bytes")]
    return found if _KEY.fullmatch(name) else [*found, f"name part {_KEY_RULE}"]


def label_value(value: str) -> list[str]:
    """Check a label value: empty, or like the name part of a key."""
    found = _longer(value, _LONGEST_LABEL, "bytes")
    return found if not value or _KEY.fullmatch(value) else [*found, _VALUE_RULE]


def c_identifier(value: str) -> list[str]:
    """Check a C identifier such as `my_name`: attributes and capacities of devices."""
    return [] if _IDENTIFIER.fullmatch(value) else [_IDENTIFIER_RULE]


def _prefix(value: str) -> list[str]:
    if not value:
        return ["must be non-empty"]
    found = _longer(value, _LONGEST_NAME, "bytes")
    return found if NAME.fullmatch(value) else [*found, NAME_RULE]


def _longer(value: str, most: int, unit: str) -> list[str]:
    """Check the length in bytes, whatever the unit is called. The texts for labels say bytes, the older ones do not."""
    return [f"must be no more than {most} {unit}"] if len(value.encode(errors="surrogatepass")) > most else []


_NO_PART_OF_AN_ADDRESS: Final = re.compile(r"[^!-~\u00a1-\uffff]|[\\<>\"^`{|}]")
_HOST: Final = re.compile(r"\[[0-9a-f:.]+(%[\w.~%-]+)?\]|[\w.-]+", re.IGNORECASE)
_PORT: Final = re.compile(r":0*[1-9]\d{0,4}", re.ASCII)


def http_address(text: str) -> SplitResult:
    """Parse the address of a server, which may have a path. Raises ValueError, without the text: it may have a password.

    `urlsplit` alone drops blanks and line ends, accepts a host of any characters, and reads an empty port as none.
    """
    if (found := _NO_PART_OF_AN_ADDRESS.search(text)) is not None:
        raise ValueError(f"must not have the character {found[0]!r}")
    try:
        parts = urlsplit(text)
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise ValueError("must name a valid host") from None
    authority = parts.netloc.rpartition("@")[2]
    if parts.scheme not in {"http", "https"} or (host := _HOST.match(authority)) is None:
        raise ValueError("must begin with https:// or http:// and name a host")
    port = authority[host.end() :]
    if port and not (_PORT.fullmatch(port) and int(port[1:]) <= 65535):
        raise ValueError("must have only a colon and a port of 1 to 65535 after the host")
    if "?" in text or "#" in text:
        raise ValueError("must end with the path")
    return parts
