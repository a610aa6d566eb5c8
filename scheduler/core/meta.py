"""The frozen base of every cached object and the metadata they share (architecture D5).

Structs hold only the fields that Kubestow reads; unknown fields are skipped, because servers are newer than we are.
`gc=False` is safe: decoded JSON cannot contain a cycle, and it keeps fifty thousand pods out of the collector's way.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Labels: TypeAlias = dict[str, str]
Key: TypeAlias = str
"""`namespace/name`, or `name` for cluster-scoped kinds."""
Values: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]
"""Of a selector. More are unreadable: 100,000 values in one pod would hold the event loop for a tenth of a second."""
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""As the API has it: an object with any other number cannot be read."""


class Frozen(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Decoded API data. Never changed after decoding; `msgspec.structs.replace` makes a changed copy."""


class OwnerReference(Frozen, frozen=True):
    """Who made this object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Frozen, frozen=True):
    """`metadata`. `resource_version` is opaque: equal or not.

    Without annotations: an object may hold 256 KiB of them, and of most kinds none is read.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> Key:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class AnnotatedMetadata(Metadata, frozen=True):
    """`metadata` of the kinds whose annotations are read."""

    annotations: Labels = {}
