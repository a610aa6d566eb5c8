"""Texts of bounded length: what a tenant wrote may be megabytes long and ends up in logs, records and pages."""

from __future__ import annotations

from typing import Final

LIMIT_BYTES: Final = 1024
_ELLIPSIS: Final = b" ..."


def shortened(text: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return `text` cut to at most `limit_bytes` of UTF-8, ending in an ellipsis where it was cut.

    Lone surrogates, which no log or page can be written with, become question marks.
    """
    if text.isascii() and len(text) <= limit_bytes:
        return text
    encoded = text[: limit_bytes + 1].encode(errors="replace")
    if len(encoded) > limit_bytes:
        encoded = encoded[: limit_bytes - len(_ELLIPSIS)].decode(errors="ignore").encode() + _ELLIPSIS
    return encoded.decode()
