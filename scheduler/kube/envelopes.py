"""What objects come wrapped in: the pages of a list and the lines of a watch. Objects stay raw, to be decoded singly."""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core import apijson
from scheduler.core.errors import ApiError
from scheduler.core.meta import AnnotatedMetadata


class Line(msgspec.Struct):
    """One line of a watch stream."""

    type: str
    object: msgspec.Raw


class Mark(msgspec.Struct):
    """The object of a BOOKMARK: only its metadata is filled."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; `metadata.continue_` is empty on the last."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


LINES: Final = msgspec.json.Decoder(Line)
MARKS: Final = msgspec.json.Decoder(Mark)
_PAGES: Final = msgspec.json.Decoder(Page)


def page_of(body: bytes) -> Page:
    """Decode a list's envelope; what is not one is an `ApiError`, as if the server had failed.

    Every list has a version. An answer without one, such as `{}` from a proxy, does not say that there are no objects.
    """
    try:
        page = apijson.decode(_PAGES, body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ApiError(f"unreadable list: {error}") from error
    if not page.metadata.resource_version:
        raise ApiError("unreadable list: it has no metadata.resourceVersion")
    return page
